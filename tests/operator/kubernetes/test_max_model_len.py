"""Which workers are asked how long a sample may be. Workers are a fake that counts the questions."""

import asyncio

import pytest
from support.decide_builders import a_worker
from support.kube_builders import a_pool

from rewardpool_operator.kubernetes.polls import max_model_len as lengths
from rewardpool_operator.kubernetes.polls.max_model_len import RETRY_SECONDS, MaxModelLens
from rewardpool_operator.probe import ProbeResult


class Surroundings:
    """What workers answer, a clock, and what was told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.answer = ProbeResult(ok=True, max_model_len=4096)
        self.asked: list[str] = []
        self.news = 0
        self.now = 0.0
        monkeypatch.setattr(lengths, "probe_score", self._probe)
        self.max_model_lens = MaxModelLens(
            None, news=self._tell, poll_limit=asyncio.Semaphore(1), clock=lambda: self.now
        )  # type: ignore[arg-type]

    async def _probe(self, session: None, url: str, **_: object) -> ProbeResult:
        self.asked.append(url)
        return self.answer

    def _tell(self) -> None:
        self.news += 1

    async def ask(self, *revisions: str) -> list[int | None]:
        workers = [a_worker(f"{revision}-{index}", revision=revision) for index, revision in enumerate(revisions)]
        self.max_model_lens.ask(a_pool(), workers, key=None)
        for _ in range(10):
            await asyncio.sleep(0)
        return [self.max_model_lens.described(worker).max_model_len for worker in workers]


@pytest.fixture
def around(monkeypatch: pytest.MonkeyPatch) -> Surroundings:
    return Surroundings(monkeypatch)


async def test_one_worker_speaks_for_its_revision(around: Surroundings) -> None:
    assert await around.ask("new", "new", "old") == [4096, 4096, 4096]
    await around.ask("new", "new", "old")
    assert len(around.asked) == 2
    assert around.news == 2


async def test_a_revision_whose_workers_left_is_forgotten(around: Surroundings) -> None:
    await around.ask("old")
    await around.ask("new")
    await around.ask("old")
    assert len(around.asked) == 3


async def test_who_does_not_say_is_not_asked_again_soon(around: Surroundings) -> None:
    around.answer = ProbeResult(ok=False, error="busy")
    for moment in (0.0, 1.0, RETRY_SECONDS):
        around.now = moment
        assert await around.ask("new") == [None]
    assert len(around.asked) == 2
    assert around.news == 0
