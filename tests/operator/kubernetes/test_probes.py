"""Which workers that start are asked for a score, and what follows. Workers are a fake that counts the questions."""

import asyncio
from typing import Any

import pytest
from support.decide_builders import a_pool, a_worker

from rewardpool_api import RewardPoolStatus
from rewardpool_api.first_score import FirstScorePart, FirstScoreStatus
from rewardpool_api.status import CertificateStatus
from rewardpool_control.snapshot import Failure, Worker
from rewardpool_operator.kubernetes.polls import probes
from rewardpool_operator.kubernetes.polls.probes import LONGEST_SECONDS, MAX_ASKED, Probes
from rewardpool_operator.kubernetes.polls.reading import Polling
from rewardpool_operator.probe import ProbeResult


class Surroundings:
    """What workers answer, a clock, and what was told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ok = True
        self.reached = True
        self.reasons: list[str | None] = []
        self.scores: list[float | None] = []
        self.failure: Failure | None = None
        self.failures: list[Failure | None] = []
        self.certificates: list[CertificateStatus | None] = []
        self.asked: list[str] = []
        self.news = 0
        self.now = 0.0
        monkeypatch.setattr(probes, "probe_score", self._probe)
        monkeypatch.setattr(probes, "PAUSE_SECONDS", 0.0)
        session: Any = None
        self.probes = Probes(Polling(session=session, news=self._tell, clock=lambda: self.now))

    async def _probe(self, session: None, url: str, **_: object) -> ProbeResult:
        self.asked.append(url)
        if not self.ok:
            return ProbeResult(ok=False, error="it loads", failure=self.failure, reached=self.reached)
        certificate = CertificateStatus(outcome="Certified", max_abs_diff=0.0)
        return ProbeResult(ok=True, max_model_len=4096, probe_score=0.5, certificate=certificate)

    def _tell(self) -> None:
        self.news += 1

    async def observe(
        self, *workers: Worker, waits_for: FirstScorePart | None = "Load", container: str = "first"
    ) -> list[bool]:
        first = FirstScoreStatus(since="2026-01-01T00:00:00Z", seconds=1.0, waits_for=waits_for)
        pool = a_pool(RewardPoolStatus(first_score=first))
        self.probes.observe(pool, [(worker, container) for worker in workers], key=None)
        for _ in range(10):
            await asyncio.sleep(0)
        seen = self.probes.observe(pool, [(worker, container) for worker in workers], key=None)
        self.reasons = [worker.no_score for worker in seen]
        self.scores = [worker.probe_score for worker in seen]
        self.failures = [worker.failure for worker in seen]
        self.certificates = [worker.certificate for worker in seen]
        return [worker.answering for worker in seen]


@pytest.fixture
def around(monkeypatch: pytest.MonkeyPatch) -> Surroundings:
    return Surroundings(monkeypatch)


def starting(name: str = "w", **fields: Any) -> Worker:
    return a_worker(name, **({"answering": False} | fields))


async def test_a_worker_that_starts_answers_as_soon_as_it_scores(around: Surroundings) -> None:
    assert await around.observe(starting()) == [True]
    assert (around.asked, around.news) == (["http://w:8000"], 1)


@pytest.mark.parametrize(
    "worker",
    [starting(running=False), starting(url=None), starting(deleting=True), a_worker("w", deleting=True)],
    ids=["does not run", "has no address", "leaves", "answers and leaves"],
)
async def test_nobody_is_asked_who(around: Surroundings, worker: Worker) -> None:
    await around.observe(worker)
    assert around.asked == []


async def test_a_worker_that_answers_is_asked_once_for_its_score_of_the_probe_text(around: Surroundings) -> None:
    await around.observe(a_worker("w"), waits_for=None)
    assert await around.observe(a_worker("w"), waits_for=None) == [True]
    assert (around.asked, around.scores) == (["http://w:8000"], [0.5])


async def test_a_worker_that_starts_has_its_score_with_its_first_answer(around: Surroundings) -> None:
    await around.observe(starting())
    assert around.scores == [0.5]


async def test_a_worker_that_the_kubelet_reports_first_is_asked_at_once(around: Surroundings) -> None:
    await around.observe(starting(), waits_for=None)
    await around.observe(a_worker("w"), waits_for=None)
    assert around.scores == [0.5]


async def lengths_of_judges(around: Surroundings, *revisions: str) -> list[int | None]:
    pool = a_pool(model={"source": "hf://org/judge", "type": "Generative"})
    workers = [a_worker(f"{revision}-{index}", revision=revision) for index, revision in enumerate(revisions)]
    looked_at = [(worker, "first") for worker in workers]
    around.probes.observe(pool, looked_at, key=None)
    for _ in range(10):
        await asyncio.sleep(0)
    return [worker.max_model_len for worker in around.probes.observe(pool, looked_at, key=None)]


async def test_of_judges_one_speaks_for_its_revision(around: Surroundings) -> None:
    assert await lengths_of_judges(around, "new", "new", "old") == [4096, 4096, 4096]
    await lengths_of_judges(around, "new", "new", "old")
    assert (len(around.asked), around.news) == (2, 2)


async def test_a_revision_whose_workers_left_is_forgotten(around: Surroundings) -> None:
    for revision in ("old", "new", "old"):
        await lengths_of_judges(around, revision)
    assert len(around.asked) == 3


async def test_who_does_not_say_is_not_asked_again_soon(around: Surroundings) -> None:
    around.ok = False
    for _ in range(2):
        assert await lengths_of_judges(around, "new") == [None]
    assert (len(around.asked), around.news) == (1, 0)
    around.probes.close()


async def test_nobody_is_asked_where_no_first_score_is_waited_for(around: Surroundings) -> None:
    assert await around.observe(starting(), waits_for=None) == [False]
    assert around.asked == []
    around.probes.close()


async def test_a_container_that_was_started_again_is_asked_again(around: Surroundings) -> None:
    await around.observe(starting())
    around.ok = False
    asked = len(around.asked)
    assert await around.observe(starting(), container="second") == [False]
    assert len(around.asked) > asked
    around.probes.close()


async def test_the_reason_for_no_score_is_passed_on_at_once(around: Surroundings) -> None:
    around.ok = False
    assert await around.observe(starting()) == [False]
    assert (around.reasons, around.news) == (["it loads"], 1)
    around.probes.close()


async def test_a_worker_whose_numbers_vary_has_failed(around: Surroundings) -> None:
    around.ok, around.failure = False, Failure(reason="NumbersVary", message="in a batch by 0.5")
    await around.observe(starting())
    assert around.failures == [around.failure]
    around.probes.close()


async def test_a_worker_that_answers_has_its_certificate(around: Surroundings) -> None:
    await around.observe(starting())
    assert around.certificates == [CertificateStatus(outcome="Certified", max_abs_diff=0.0)]


async def test_an_engine_that_does_not_listen_yet_gives_no_reason(around: Surroundings) -> None:
    around.ok = around.reached = False
    await around.observe(starting())
    assert (around.reasons, around.news) == ([None], 0)
    around.probes.close()


async def test_the_reason_of_an_earlier_start_is_forgotten(around: Surroundings) -> None:
    around.ok = False
    await around.observe(starting())
    around.reached = False
    await around.observe(starting(), container="second")
    assert around.reasons == [None]
    around.probes.close()


async def test_a_worker_beside_one_that_serves_is_asked_for_its_reason(
    around: Surroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probes, "RETRY_SECONDS", 0.0)
    around.ok = False
    await around.observe(starting(), waits_for=None)
    assert around.reasons == ["it loads"]
    around.probes.close()


async def test_one_that_takes_long_is_left_to_the_kubelet(around: Surroundings) -> None:
    around.ok = False
    await around.observe(starting())
    around.now = LONGEST_SECONDS
    await around.observe(starting())
    asked = len(around.asked)
    await around.observe(starting())
    assert asked > 1
    assert len(around.asked) == asked
    around.probes.close()


async def test_some_of_many_are_asked(around: Surroundings) -> None:
    around.ok = False
    await around.observe(*(starting(f"w{index}") for index in range(2 * MAX_ASKED)))
    assert len(set(around.asked)) == MAX_ASKED
    around.probes.close()
