"""`rewardpool verify --determinism`: what is sent, what is concluded, and replicas that are asked past the router."""

import asyncio
import io
import json
import math
import re
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from rich.console import Console
from support.fake_worker import Behaviour, FakeWorker, breaks_off, hangs, refuses, says
from support.kube_builders import a_pod, a_pool
from support.local_pool import POOL, on_this_machine, write_local_pool
from support.odd_engine import SHIFT, numbers_of
from typer.testing import CliRunner

from rewardpool._discovery.endpoint import Endpoint
from rewardpool._discovery.pool_sources import KubernetesSource
from rewardpool_api import RewardPoolSpec, RewardPoolStatus, names
from rewardpool_api.contract import CallerError
from rewardpool_api.engines import FOR_MODELS
from rewardpool_cli import app
from rewardpool_cli.commands.verify import certificate_screen
from rewardpool_cli.verification import Tolerance
from rewardpool_cli.verification.determinism import (
    Answer,
    Arrangement,
    Certificate,
    Measured,
    Samples,
    SendStep,
    certify,
    own_samples,
    plan,
    samples_of,
)
from rewardpool_cli.verification.replicas import CheckedReplica, QuestionSettings, measure, replicas_of
from rewardpool_local.folder import PoolFolder

EXACT = Tolerance(max_abs_diff=0.0)
CACHED, BATCHED, REORDERED, CHUNKED, REPLICAS = (each for each in Arrangement if each is not Arrangement.ALONE)
BY_ITSELF = {CACHED, BATCHED, REORDERED, CHUNKED}


def spec(kind: str = "Discriminative", **engine: Any) -> RewardPoolSpec:
    return RewardPoolSpec.model_validate({"model": {"source": "hf://org/rm", "type": kind}, "engine": engine})


# What is sent.


@pytest.mark.parametrize("most_tokens", [None, 1, 2, 64, 512, 100_000])
def test_own_samples_fit_into_the_model_and_long_ones_fill_more_than_a_step(most_tokens: int | None) -> None:
    samples = own_samples(7, most_tokens=most_tokens, chunks=True)
    lengths = [len(item) for item in samples.items]
    assert max(lengths) <= max(2, most_tokens or math.inf)
    assert min(lengths) >= 2
    if most_tokens is None or most_tokens >= 512:
        assert sum(lengths[at] for at in samples.long) > 8192


def test_samples_of_a_group_begin_alike_and_another_seed_makes_others() -> None:
    samples = own_samples(7, most_tokens=1024, chunks=True)
    beginnings = [{samples.items[at][:160] for at in group} for group in samples.groups]
    assert [len(some) for some in beginnings] == [1] * len(samples.groups)
    assert not {*samples.items} & {*own_samples(8, most_tokens=1024, chunks=True).items}


@pytest.mark.parametrize("together", [True, False])
def test_every_sample_is_sent_alone_and_in_each_condition(together: bool) -> None:
    samples = own_samples(7, most_tokens=1024, chunks=True)
    sent: dict[Arrangement, set[int]] = {}
    for step in plan(samples, together=together, seed=1):
        positions = [at for request in step.requests for at in request]
        sent.setdefault(step.condition, set()).update(positions)
        assert together or {*map(len, step.requests)} == {1}
    short = {*range(samples.long.start)}
    assert sent == {
        Arrangement.ALONE: {*range(len(samples.items))},
        **dict.fromkeys((CACHED, BATCHED, REORDERED), short),
        CHUNKED: {*samples.long},
    }


def test_half_of_the_samples_are_in_a_batch_before_they_are_alone() -> None:
    first: dict[int, Arrangement] = {}
    samples = own_samples(7, most_tokens=1024, chunks=False)
    for step in plan(samples, together=True, seed=1):
        for at in (at for request in step.requests for at in request):
            first.setdefault(at, step.condition)
    assert sorted(first.values()) == [Arrangement.ALONE] * 16 + [BATCHED] * 16


def test_an_engine_without_chunks_is_sent_no_long_samples() -> None:
    assert not own_samples(7, most_tokens=None, chunks=False).long
    assert not FOR_MODELS["transformers"].no_chunks.args


# What is concluded.

TEXTS = samples_of(["a", "b", "c"])
STEPS = tuple(
    SendStep(condition=condition, requests=((0, 1, 2),), at_once=True)
    for condition in (Arrangement.ALONE, CACHED, BATCHED, REORDERED, CHUNKED)
)
RIGHT = ((1.0,), (1.5,), (2.0,))


def measured(name: str = "worker-1", alone: tuple[Answer, ...] = RIGHT, **odd: tuple[Answer, ...]) -> Measured:
    """A replica with these answers alone and, but for the odd ones, in each condition."""
    answers = [dict(enumerate(odd.get(step.condition.value, alone))) for step in STEPS]
    return Measured(replica=name, answers=tuple(answers))


def certificate(*replicas: Measured, pool: RewardPoolSpec | None = None, tolerance: Tolerance = EXACT) -> Certificate:
    return certify(TEXTS, STEPS, replicas, tolerance, pool or spec(dtype="float32"))


def broken(found: Certificate) -> set[Arrangement]:
    return {finding.condition for finding in found.findings if not finding.holds}


def test_the_same_numbers_everywhere_hold() -> None:
    found = certificate(measured(), measured("worker-2"))
    assert (found.holds, found.remedies) == (True, ())
    assert [finding.max_abs_diff for finding in found.findings] == [0.0] * 5


@pytest.mark.parametrize("condition", ["cached", "batched", "reordered", "chunked"])
def test_another_number_in_one_condition_is_found_there_alone(condition: str) -> None:
    found = certificate(measured(**{condition: ((1.0,), (1.75,), (2.0,))}))
    assert broken(found) == {Arrangement(condition)}
    (finding,) = [each for each in found.findings if not each.holds]
    assert (finding.max_abs_diff, [pair.sample for pair in finding.off]) == (0.25, [1])


def test_differences_up_to_the_tolerance_at_the_score_hold() -> None:
    odd = measured(batched=((1.0,), (1.5,), (2.0 + 2**-4,)))
    assert certificate(odd, tolerance=Tolerance(dtype="bfloat16")).holds
    assert not certificate(odd, tolerance=Tolerance(dtype="float16")).holds


def test_pairs_in_another_order_are_flips_and_ties_are_none() -> None:
    found = certificate(measured(alone=((1.0,), (1.5,), (1.5,)), batched=((2.0,), (1.75,), (3.0,))))
    batches = found.findings[1]
    assert (batches.flips, batches.ordered) == (1, 2)


def test_teachers_have_no_order_and_each_of_their_numbers_counts() -> None:
    odd = measured(alone=((-1.0, -2.0),) * 3, cached=((-1.0, -2.0), (-1.0, -2.5), (-1.0, -2.0)))
    found = certificate(odd, pool=spec("Teacher", dtype="float32"))
    assert [(finding.max_abs_diff, finding.flips) for finding in found.findings[:2]] == [(0.5, None), (0.0, None)]


def test_an_answer_with_fewer_numbers_does_not_hold() -> None:
    found = certificate(measured(alone=((-1.0, -2.0),) * 3, cached=((-1.0,), (-1.0, -2.0), (-1.0, -2.0))))
    assert "1 numbers, and alone 2" in found.remedies[0]


def test_of_three_replicas_the_odd_one_is_named_whichever_is_first() -> None:
    odd = ((1.25,), (1.5,), (2.0,))
    found = certificate(measured("worker-1", odd), measured("worker-2"), measured("worker-3"))
    assert (broken(found), found.reference) == ({REPLICAS}, "worker-2")
    assert found.remedies[0].startswith("worker-1 and worker-2 have other numbers")


def test_a_silent_replica_is_said_once_and_is_never_the_reference() -> None:
    found = certificate(measured("worker-1", ("no answer in time",) * 3), measured("worker-2"))
    assert (found.holds, found.reference) == (False, "worker-2")
    assert found.remedies == ("worker-1 gives no numbers: no answer in time",)
    json.dumps(found.as_json(), allow_nan=False)


OTHER = ((3.0,), (1.5,), (2.0,))


@pytest.mark.parametrize(
    ("pool", "odd", "said"),
    [
        (spec(), ["cached"], "--no-enable-prefix-caching in spec.engine.args"),
        (spec(), ["cached", "batched", "reordered"], "--no-enable-prefix-caching in spec.engine.args"),
        (spec(), ["batched"], "spec.engine.deterministic to true, which takes a GPU"),
        (spec(), ["chunked"], "--no-enable-chunked-prefill in spec.engine.args"),
        (spec(name="sglang"), ["cached"], "--disable-radix-cache in"),
        (spec(name="sglang"), ["reordered", "chunked"], "spec.engine.deterministic to true"),
        (spec(name="sglang"), ["chunked"], "--chunked-prefill-size -1 in"),
        (spec(name="sglang", args=["--chunked-prefill-size=-1"]), ["chunked"], "spec.engine.deterministic to true"),
        (spec(name="transformers"), ["cached"], "spec.engine.deterministic to true, and"),
        (spec(args=["--no-enable-prefix-caching"]), ["cached"], "spec.engine.deterministic to true, which takes a GPU"),
        (spec("Teacher"), ["cached"], "spec.engine.deterministic to true, which takes a GPU"),
        (spec("Teacher"), ["chunked"], "spec.engine.deterministic to true, which takes a GPU"),
        (spec("Teacher", name="sglang"), ["chunked"], "--chunked-prefill-size -1 in"),
        (spec(env=[{"name": "VLLM_BATCH_INVARIANT", "value": "1"}]), ["batched"], "vllm has no further setting"),
        (spec(deterministic=True), ["batched"], "vllm has no further setting"),
    ],
)
def test_what_remedies_it_is_the_engines_setting_against_the_likeliest_cause(
    pool: RewardPoolSpec, odd: list[str], said: str
) -> None:
    found = certificate(measured(**dict.fromkeys(odd, OTHER)), pool=pool)
    assert len(found.remedies) == 1
    assert said in found.remedies[0]


def test_the_screen_shows_each_condition_and_what_remedies_it() -> None:
    console = Console(width=120, file=io.StringIO(), record=True)
    found = certificate(measured(batched=OTHER))
    console.print(certificate_screen(found, pool="rl/rm", allowed="0"))
    shown = console.export_text()
    assert "rl/rm against itself: does not hold" in shown
    assert re.search(r"in batches +2 +1 of 3 +2 of 3\n", shown)
    assert re.search(r"on every replica +not measured *\n", shown)
    assert "1. set spec.engine.deterministic to true" in shown


# Replicas, asked one by one.

SAMPLES = own_samples(7, most_tokens=1024, chunks=True)


async def measured_on(
    *behaviours: Behaviour, kind: str = "Discriminative", samples: Samples = SAMPLES, **limits: float
) -> Certificate:
    """The certificate of a pool whose replicas behave so."""
    async with AsyncExitStack() as stack:
        workers = [await stack.enter_async_context(FakeWorker(afterwards=behaviour)) for behaviour in behaviours]
        replicas = [CheckedReplica(name=f"worker-{n}", url=worker.url) for n, worker in enumerate(workers, start=1)]
        is_teacher = kind == "Teacher"
        steps = plan(samples, together=not is_teacher, seed=7)
        asked = QuestionSettings(fields={"model": "rm"}, key=None, top_k=2 if is_teacher else None, **limits)
        done: list[int] = []
        answers = await measure(replicas, samples, steps, asked, on_progress=done.append)
        assert done == [*range(1, len(replicas) * sum(len(step.requests) for step in steps) + 1)]
        return certify(samples, steps, answers, Tolerance(dtype="float32"), spec(kind, dtype="float32"))


@pytest.mark.parametrize("kind", ["Discriminative", "Teacher"])
async def test_two_replicas_of_a_right_engine_hold(kind: str) -> None:
    found = await measured_on(numbers_of(), numbers_of(), kind=kind)
    assert found.holds
    assert all(finding.pairs for finding in found.findings)


# A sample that comes a second time comes so in a batch too, and alone behind one.
@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        ("cached", {CACHED, BATCHED, REORDERED, CHUNKED}),
        ("batched", {BATCHED, REORDERED}),
        ("reordered", {REORDERED}),
        ("chunked", {CHUNKED}),
    ],
)
async def test_an_engine_that_is_wrong_in_one_condition_is_caught(wrong: str, expected: set[Arrangement]) -> None:
    found = await measured_on(numbers_of(wrong))
    assert broken(found) == expected
    assert max(finding.max_abs_diff or 0 for finding in found.findings) == pytest.approx(SHIFT)


@pytest.mark.parametrize(
    ("wrong", "expected"), [("cached", {CACHED, BATCHED, REORDERED, CHUNKED}), ("chunked", {CHUNKED})]
)
async def test_a_teacher_that_is_wrong_in_one_condition_is_caught(wrong: str, expected: set[Arrangement]) -> None:
    assert broken(await measured_on(numbers_of(wrong), kind="Teacher")) == expected


@pytest.mark.parametrize("kind", ["Discriminative", "Teacher"])
async def test_one_of_two_replicas_that_is_odd_is_caught(kind: str) -> None:
    found = await measured_on(numbers_of(), numbers_of("always"), kind=kind)
    assert broken(found) == {REPLICAS}


@pytest.mark.parametrize(
    ("behaviour", "said"),
    [
        (hangs, "no answer in time"),
        (breaks_off, "ServerDisconnectedError"),
        (says("gone", status=503), "status 503: gone"),
        (says('{"data": [{"index": 0, "embedding": [NaN]}]}'), "not one finite number"),
    ],
)
async def test_one_of_two_replicas_that_does_not_answer_is_asked_once_and_named(
    behaviour: Behaviour, said: str
) -> None:
    found = await measured_on(behaviour, numbers_of(), request_seconds=1)
    assert (found.holds, found.reference) == (False, "worker-2")
    (remedy,) = found.remedies
    assert remedy.startswith("worker-1 gives no numbers")
    assert said in remedy


async def test_a_replica_that_is_slow_holds() -> None:
    right = numbers_of()

    async def slow(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(0.01)
        return await right(request)

    assert (await measured_on(numbers_of(), slow)).holds


async def test_what_is_not_done_in_all_the_time_there_is_does_not_hold() -> None:
    found = await measured_on(numbers_of(), replica_seconds=0)
    assert found.remedies == ("worker-1 gives no numbers: not done within 0 s",)


async def test_a_sample_that_the_model_refuses_does_not_silence_its_replica() -> None:
    refused = refuses(CallerError(code="invalid_sample", message="no such token"))
    async with FakeWorker(refused, afterwards=numbers_of()) as worker:
        steps = plan(TEXTS, together=True, seed=7)
        asked = QuestionSettings(fields={"model": "rm"}, key=None, top_k=None)
        replica = CheckedReplica(name="worker-1", url=worker.url)
        (answers,) = await measure([replica], TEXTS, steps, asked, on_progress=[].append)
    alone = [answer for found in answers.answers for answer in found.values()]
    assert [answer for answer in alone if isinstance(answer, str)] == ["invalid_sample: no such token"]


KEY = "key-of-the-pool-0123456789"


async def test_the_words_of_a_replica_are_fit_for_a_terminal_and_without_the_key() -> None:
    error = {"code": "odd", "message": f"\x1b[31m{KEY}" + "a" * 5000}
    async with FakeWorker(afterwards=says(json.dumps({"error": error}))) as worker:
        steps = plan(TEXTS, together=True, seed=7)
        asked = QuestionSettings(fields={"model": "rm"}, key=KEY, top_k=None)
        replica = CheckedReplica(name="worker-1", url=worker.url)
        (answers,) = await measure([replica], TEXTS, steps, asked, on_progress=[].append)
    said = str(answers.answers[0][0])
    assert said.isprintable()
    assert (KEY in said, len(said) <= 500) == (False, True)


class Cluster(KubernetesSource):
    """An API server that has these pods."""

    def __init__(self, *pods: dict[str, Any]) -> None:
        super().__init__({})
        self._pods = [*pods]

    async def request(self, call: Any, what: str, *, verb: str = "get", kube: Any = None) -> Any:
        return self._pods


async def test_in_a_cluster_the_ready_pods_of_the_present_revision_are_asked() -> None:
    unready, old, leaving = a_pod("unready"), a_pod("old"), a_pod("leaving")
    unready["status"]["conditions"][0]["status"] = "False"
    old["metadata"]["labels"][names.LABEL_REVISION] = "former"
    leaving["metadata"]["annotations"] = {names.ANNOTATION_DRAINING_SINCE: "2026-01-01T12:00:00Z"}
    pool = a_pool().model_copy(update={"status": RewardPoolStatus(current_revision="new")})
    source = Cluster(a_pod("w1", ip="10.0.0.8"), unready, old, leaving, a_pod("w0", ip="10.0.0.7"))
    endpoint = Endpoint(url="http://router", pool="rl/rm", served_name="rm", origin="here", source=source)
    found = await replicas_of(endpoint, pool)
    assert found == [
        CheckedReplica(name="w0", url="http://10.0.0.7:8000"),
        CheckedReplica(name="w1", url="http://10.0.0.8:8000"),
    ]


# The command.


@pytest.mark.parametrize(("shift", "code"), [(0.0, 0), (1e-3, 1)])
async def test_the_command_asks_the_pools_workers_and_ends_by_what_it_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shift: float, code: int
) -> None:
    on_this_machine(monkeypatch, tmp_path)
    async with (
        FakeWorker(afterwards=numbers_of()) as one,
        FakeWorker(afterwards=numbers_of("always", shift=shift)) as two,
    ):
        workers = {"worker-1": one.url, "worker-2": two.url}
        folder = write_local_pool(tmp_path, engine={"dtype": "float32"}, workers=workers)
        invoke = partial(CliRunner().invoke, app, ["verify", POOL, "--determinism", "--json"])
        with PoolFolder(folder).supervised():
            result = await asyncio.to_thread(invoke)
    assert result.exit_code == code, result.output
    found = json.loads(result.stdout)
    assert (found["holds"], found["replicas"]) == (code == 0, ["worker-1", "worker-2"])
    largest = {each["condition"]: each["max_abs_diff"] for each in found["conditions"]}
    assert largest == {**dict.fromkeys(BY_ITSELF, 0.0), "replicas": pytest.approx(shift)}


@pytest.mark.parametrize(
    ("model", "options", "said"),
    [
        ({}, ["--transformers"], "leave out --transformers"),
        ({"model_type": "Generative"}, [], "spec.model.type is Generative"),
        ({"model_type": "Teacher"}, ["--golden", "-"], "a teacher takes token ids"),
        ({"head": {"type": "TokenLevel", "stepToken": "<s>", "aggregate": "min"}}, [], "give some by --golden FILE"),
        ({}, [], "no replica of rl/skywork's revision"),
    ],
)
def test_what_cannot_be_measured_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: dict[str, Any], options: list[str], said: str
) -> None:
    on_this_machine(monkeypatch, tmp_path)
    folder = write_local_pool(tmp_path, engine={"dtype": "float32"}, **model)
    with PoolFolder(folder).supervised():
        result = CliRunner().invoke(app, ["verify", POOL, "--determinism", *options])
    assert said in str(result.exception)
