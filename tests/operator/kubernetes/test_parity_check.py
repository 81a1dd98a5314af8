"""Reading golden sets and having workers score them; the worker is a FakeWorker, the API server a dictionary."""

import asyncio
from functools import partial
from typing import Any

import aiohttp
import pytest
from support.fake_worker import FakeWorker, breaks_off, refuses, says, score_of
from support.kube_builders import a_pool

from rewardpool_api import names
from rewardpool_api.contract import CallerError
from rewardpool_control.golden_set import GoldenProblem, parse_golden_set, scores_of_annotation
from rewardpool_control.plan import Measure
from rewardpool_kube.errors import KubeError, KubeUnreachableError
from rewardpool_operator.kubernetes.polls import parity_check
from rewardpool_operator.kubernetes.polls.parity_check import ParityCheck, score_golden_set
from rewardpool_operator.kubernetes.polls.reading import Polling
from rewardpool_operator.probe import NoScoreError, score_text

TEXTS = '{"text": "four"}\n{"text": "twelve"}\n'
GOLDEN = parse_golden_set(TEXTS)
POOL = a_pool(rollout={"parity": {"goldenSetRef": {"name": "golden"}, "maxAbsDiff": 0.1}})


class FakeKube:
    """Has ConfigMaps, and keeps patches of Deployments."""

    def __init__(self, data: dict[str, str] | None = None) -> None:
        self.data = data
        self.reads = 0
        self.error: Exception | None = None
        self.annotations: dict[str, Any] = {}

    async def get(self, _resource: Any, _namespace: str, _name: str) -> Any:
        self.reads += 1
        if self.error is not None:
            raise self.error
        return None if self.data is None else {"data": self.data}

    async def merge(self, _resource: Any, _namespace: str, name: str, patch: Any) -> Any:
        self.annotations[name] = patch["metadata"]["annotations"]
        return {"metadata": {"name": name}}


class FakeClock:
    seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


def check_of(kube: FakeKube, session: Any = None, *, clock: FakeClock | None = None) -> ParityCheck:
    return ParityCheck(
        kube,  # type: ignore[arg-type]
        Polling(session=session, clock=clock or FakeClock()),
        keep=lambda _: None,
    )


async def test_a_pool_that_asks_for_no_comparison_reads_nothing() -> None:
    kube = FakeKube()
    assert await check_of(kube).golden(a_pool(), revision="new") is None
    assert kube.reads == 0


async def test_the_set_is_read_from_its_config_map() -> None:
    golden = await check_of(FakeKube({"golden.jsonl": TEXTS})).golden(POOL, revision="new")
    assert golden == GOLDEN


@pytest.mark.parametrize(
    ("kube", "words"),
    [
        (FakeKube(), "no such ConfigMap in rl"),
        (FakeKube({"other.jsonl": TEXTS}), "entries: other.jsonl"),
        (FakeKube({"golden.jsonl": TEXTS + "{"}), "line 3 is not JSON"),
    ],
)
async def test_a_set_that_cannot_be_used_names_config_map_and_entry(kube: FakeKube, words: str) -> None:
    golden = await check_of(kube).golden(POOL, revision="new")
    assert isinstance(golden, GoldenProblem)
    assert "entry golden.jsonl of ConfigMap golden" in golden.message
    assert words in golden.message


async def test_a_refusal_is_told_in_the_api_servers_words() -> None:
    kube = FakeKube()
    kube.error = KubeError("GET", status=403, reason="Forbidden", message="configmaps is forbidden")
    golden = await check_of(kube).golden(POOL, revision="new")
    assert isinstance(golden, GoldenProblem)
    assert "configmaps is forbidden" in golden.message


async def test_what_was_read_holds_while_the_api_server_is_away() -> None:
    kube, clock = FakeKube({"golden.jsonl": TEXTS}), FakeClock()
    check = check_of(kube, clock=clock)
    await check.golden(POOL, revision="new")
    kube.error = KubeUnreachableError("away")
    clock.seconds += 3600
    assert await check.golden(POOL, revision="new") == GOLDEN


async def test_a_set_that_was_never_read_lets_nobody_pass() -> None:
    kube = FakeKube()
    kube.error = KubeUnreachableError("away")
    assert isinstance(await check_of(kube).golden(POOL, revision="new"), GoldenProblem)


async def test_a_reading_that_is_under_way_ends_with_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parity_check, "READ_PATIENCE_SECONDS", 0.0)
    ended = asyncio.Event()

    class SilentKube(FakeKube):
        async def get(self, *_: Any) -> Any:
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

    check = check_of(SilentKube())
    await check.golden(POOL, revision="new")
    await asyncio.sleep(0)
    check.close()
    async with asyncio.timeout(5):
        await ended.wait()


async def test_the_set_is_not_read_at_every_pass() -> None:
    kube, clock = FakeKube({"golden.jsonl": TEXTS}), FakeClock()
    check = check_of(kube, clock=clock)
    for _ in range(4):
        await check.golden(POOL, revision="new")
    clock.seconds += 6
    await check.golden(POOL, revision="new")
    assert kube.reads == 2


async def test_a_new_revision_is_compared_with_the_set_of_its_own_time() -> None:
    kube = FakeKube({"golden.jsonl": TEXTS})
    check = check_of(kube)
    await check.golden(POOL, revision="old")
    kube.data = {"golden.jsonl": '{"text": "another"}'}
    assert await check.golden(POOL, revision="new") == parse_golden_set('{"text": "another"}')


async def scored(worker: FakeWorker, *, give_up: bool = False) -> Any:
    async with aiohttp.ClientSession() as session:
        ask = partial(score_text, session, worker.url, "k", "rm")
        return await score_golden_set(GOLDEN, ask, give_up=give_up)


async def test_a_worker_scores_every_text_with_the_pools_key() -> None:
    async with FakeWorker() as worker:
        scores = await scored(worker)
    assert scores.scores == (score_of("four"), score_of("twelve"))
    assert {headers["authorization"] for headers in worker.headers} == {"Bearer k"}


@pytest.mark.parametrize(
    ("behaviour", "words"),
    [
        (refuses(CallerError(code="sample_too_long", message="9 tokens")), "sample_too_long: 9 tokens"),
        (says('{"data": [{"index": 0, "embedding": [NaN]}]}'), "not one finite number"),
    ],
)
async def test_a_text_that_the_model_refuses_has_no_score(behaviour: Any, words: str) -> None:
    async with FakeWorker(behaviour, behaviour) as worker:
        scores = await scored(worker)
    assert scores.scores == (None, None)
    assert words in scores.refusal


async def test_a_worker_that_breaks_off_is_tried_again_later_and_given_up_in_the_end() -> None:
    async with FakeWorker(breaks_off, breaks_off) as worker:
        with pytest.raises(NoScoreError, match="line"):
            await scored(worker)
    async with FakeWorker(breaks_off, breaks_off) as worker:
        assert (await scored(worker, give_up=True)).scores == (None, None)


async def test_scores_are_kept_on_the_revisions_deployment_and_measured_once() -> None:
    kube = FakeKube({"golden.jsonl": TEXTS})
    done = asyncio.Event()
    async with FakeWorker() as worker, aiohttp.ClientSession() as session:
        check = ParityCheck(
            kube,  # type: ignore[arg-type]
            Polling(session=session, news=done.set),
            keep=lambda _: None,
        )
        for _ in range(3):
            check.measure(POOL, GOLDEN, [Measure(revision="new", worker_url=worker.url)], key=None)
        await asyncio.wait_for(done.wait(), 30)
    assert len(worker.requests) == len(GOLDEN.texts)
    annotation = kube.annotations["rm-worker-new"][names.ANNOTATION_GOLDEN_SCORES]
    kept = scores_of_annotation(annotation)
    assert kept is not None
    assert (kept.digest, kept.scores) == (GOLDEN.digest, (score_of("four"), score_of("twelve")))


async def test_pauses_between_measurements_grow_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails(*_: Any, **__: Any) -> Any:
        raise NoScoreError("no answer")

    monkeypatch.setattr(parity_check, "score_golden_set", fails)
    clock = FakeClock()
    check = check_of(FakeKube(), clock=clock)
    for _ in range(1100):
        clock.seconds += parity_check.LONGEST_PAUSE_SECONDS
        check.measure(POOL, GOLDEN, [Measure(revision="new", worker_url="http://w0")], key=None)
        assert check._measuring
        while check._measuring:  # noqa: ASYNC110 - it fails at once
            await asyncio.sleep(0)


async def test_a_failed_measurement_pauses() -> None:
    clock, done = FakeClock(), asyncio.Event()
    async with FakeWorker(breaks_off, breaks_off) as worker, aiohttp.ClientSession() as session:
        check = ParityCheck(
            FakeKube(),  # type: ignore[arg-type]
            Polling(session=session, news=done.set, clock=clock),
            keep=lambda _: None,
        )
        wanted = [Measure(revision="new", worker_url=worker.url)]
        check.measure(POOL, GOLDEN, wanted, key=None)
        await asyncio.wait_for(done.wait(), 30)
        asked = len(worker.requests)
        check.measure(POOL, GOLDEN, wanted, key=None)
        await asyncio.sleep(0)
        assert len(worker.requests) == asked
