"""Running somebody else's function: what is a score, and what each way of failing becomes."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewardpool_runtime.function_runner import (
    Failed,
    FunctionArguments,
    FunctionNotFoundError,
    LocalRunner,
    ProcessRunner,
    Scored,
    load_function,
    read_result,
)
from rewardpool_worker.function_sample import parse_sample
from rewardpool_worker.score_middleware import InvalidSampleError


@pytest.fixture(autouse=True)
def _users_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(Path(__file__).parent / "functions"), *sys.path])


def sample(solution: str) -> FunctionArguments:
    return FunctionArguments(data_source="test", solution_str=solution)


def local(function: str, *, concurrency: int = 4, timeout_seconds: float = 5) -> LocalRunner:
    return LocalRunner(f"rewards:{function}", concurrency=concurrency, timeout_seconds=timeout_seconds)


# What is a score


@pytest.mark.parametrize(("result", "value"), [(1, 1.0), (-0.5, -0.5), (Fraction(1, 4), 0.25), ({"score": 2}, 2.0)])
def test_any_real_number_is_a_score(result: Any, value: float) -> None:
    assert read_result(result) == Scored(value)


@given(st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**53), 2**53))
def test_no_score_is_changed(value: float) -> None:
    assert read_result(value) == Scored(float(value))


@pytest.mark.parametrize(
    ("result", "value"),
    [
        (True, 1.0),
        (numpy.bool_(False), 0.0),
        (numpy.float32(0.5), 0.5),
        (numpy.array(2), 2.0),
        ({"score": numpy.bool_(True)}, 1.0),
    ],
)
def test_a_truth_value_and_a_scalar_of_numpy_are_scores(result: Any, value: float) -> None:
    assert read_result(result) == Scored(value)


@pytest.mark.parametrize(
    ("result", "said"),
    [
        (None, "returned None"),
        ("1.0", "returned '1.0' (a str)"),
        (float("nan"), "returned nan"),
        (float("inf"), "returned inf"),
        (numpy.float32("nan"), "no finite number"),
        ([1.0], r"returned [1.0] (a list)"),
        (numpy.array([1.0]), "returned array([1.]) (a ndarray)"),
        ({}, "without `score`"),
        ({"reward": 1.0}, "without `score`; it has ['reward']"),
        ({"score": None}, "returned None"),
        (10**400, "no finite number"),
        pytest.param(10**5000, "returned an int, no finite number", id="digits"),
        (1j, "returned 1j (a complex)"),
    ],
)
def test_anything_else_is_a_failure_that_shows_the_value(result: Any, said: str) -> None:
    outcome = read_result(result)
    assert isinstance(outcome, Failed)
    assert said in outcome.message


def test_what_comes_beside_the_score_is_json() -> None:
    result = {"score": 1, "acc": numpy.bool_(True), "pred": numpy.array([1, 2]), "nan": float("nan")}
    assert read_result(result) == Scored(1.0, {"acc": True, "pred": [1, 2], "nan": None})


class Unreadable:
    def tolist(self) -> list[Any]:
        raise RuntimeError("the device is gone")


@pytest.mark.parametrize(
    ("pred", "why"),
    [(Path("/a"), "is a PosixPath"), ((1, 2), "is a tuple"), (Unreadable(), "cannot be read: the device is gone")],
)
def test_what_json_cannot_hold_never_costs_the_score(pred: Any, why: str) -> None:
    outcome = read_result({"score": 1, "acc": 1, "pred": pred})
    assert isinstance(outcome, Scored)
    assert (outcome.value, outcome.info["acc"], "pred" in outcome.info) == (1.0, 1, False)
    assert why in outcome.info["left_out"]["pred"]


# What is a sample


def test_a_sample_has_verls_four_arguments() -> None:
    text = '{"data_source": "gsm8k", "solution_str": "4", "ground_truth": ["4"], "extra_info": {"index": 1}}'
    assert parse_sample(text) == FunctionArguments(
        data_source="gsm8k", solution_str="4", ground_truth=["4"], extra_info={"index": 1}
    )


@pytest.mark.parametrize(
    "text",
    [
        "plain text",
        "3",
        "{}",
        '{"data_source": "a"}',
        '{"data_source": 1, "solution_str": "b"}',
        '{"data_source": "a", "solution_str": "b", "extra_info": []}',
        '{"data_source": "a", "solution_str": "b", "prompt": "c"}',
    ],
)
def test_anything_else_is_an_invalid_sample(text: str) -> None:
    with pytest.raises(InvalidSampleError, match="sample"):
        parse_sample(text)


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        ("nowhere:f", "ModuleNotFoundError"),
        ("rewards:nothing", "the module rewards has no function nothing"),
        ("rewards:not_callable", "it is a int"),
        ("broken:f", "no licence"),
        ("interrupted:f", "KeyboardInterrupt: no licence"),
    ],
)
def test_a_function_that_is_not_there_is_named_with_what_is_missing(reference: str, words: str) -> None:
    with pytest.raises(FunctionNotFoundError, match=f"{reference}.*{words}"):
        load_function(reference)


def trl_style(completions: list[Any], solution: list[str], **kwargs: Any) -> list[float]:
    raise AssertionError("never called")


class Rule:
    def compute(self, x: Any) -> float:
        return 1.0


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (trl_style, "missing a required argument: 'completions'"),
        (lambda solution, truth: 1.0, "missing a required argument: 'solution'"),
        (lambda data_source, solution_str: 1.0, "got an unexpected keyword argument 'ground_truth'"),
        (Rule, "got an unexpected keyword argument"),
    ],
)
def test_a_function_with_other_parameters_is_refused_before_the_first_sample(function: Any, said: str) -> None:
    with pytest.raises(FunctionNotFoundError, match="it cannot be called with data_source, solution_str") as caught:
        LocalRunner(function, concurrency=1, timeout_seconds=5)
    assert said in str(caught.value)


def test_further_arguments_count_too() -> None:
    def strict(data_source: str, solution_str: str, ground_truth: Any, extra_info: Any, level: int) -> float:
        return float(level)

    LocalRunner(strict, concurrency=1, timeout_seconds=5, further={"level": 2, "ground_truth": 1})
    with pytest.raises(FunctionNotFoundError, match="missing a required argument: 'level'"):
        LocalRunner(strict, concurrency=1, timeout_seconds=5)


async def test_a_process_refuses_other_parameters_too() -> None:
    runner = ProcessRunner("rewards:needs_level", processes=1, timeout_seconds=5)
    with pytest.raises(FunctionNotFoundError, match="rewards:needs_level: it cannot be called with data_source"):
        await runner.start()
    await runner.close()


# In this process


@pytest.mark.parametrize("function", ["length", "length_async"])
async def test_functions_and_coroutines_score(function: str) -> None:
    assert await local(function).run(sample("four")) == Scored(4.0)


@pytest.mark.parametrize("function", ["obedient", "obedient_async"])
async def test_an_exception_is_told_with_its_type_and_text(function: str) -> None:
    assert await local(function).run(sample("raise")) == Failed("KeyError: 'no such answer'")


RAISED = ["SystemExit", "KeyboardInterrupt", "GeneratorExit", "CancelledError", "OwnError"]


@pytest.mark.parametrize("name", RAISED)
@pytest.mark.parametrize("function", ["raises", "raises_async", "raises_as_it_returns"])
async def test_what_is_no_exception_is_a_failure_of_its_sample_alone(function: str, name: str) -> None:
    runner = local(function, concurrency=1)
    async with asyncio.timeout(20):
        assert await runner.run(sample(name)) == Failed(f"{name}: of the function")
        assert await runner.run(sample("nothing")) == Scored(1.0)


@pytest.mark.parametrize("name", RAISED)
async def test_nor_does_it_end_a_process(name: str) -> None:
    runner = ProcessRunner("rewards:raises", processes=1, timeout_seconds=20)
    try:
        assert await runner.run(sample(name)) == Failed(f"{name}: of the function")
    finally:
        await runner.close()


async def test_an_exception_whose_text_raises_is_a_failure_too() -> None:
    assert await local("raises").run(sample("UnspeakableError")) == Failed(
        "UnspeakableError: (its text cannot be read)"
    )


async def test_a_caller_that_is_cancelled_is_not_told_that_the_function_failed() -> None:
    task = asyncio.create_task(local("raises_async").run(sample("waits")))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize(("function", "hang"), [("obedient", "sleep 0.2"), ("obedient_async", "hang")])
async def test_a_call_that_takes_too_long_is_a_failure(function: str, hang: str) -> None:
    outcome = await local(function, timeout_seconds=0.05).run(sample(hang))
    assert outcome == Failed("TimeoutError: the function took longer than 0.05 s, its limit by timeout")


async def test_no_more_calls_run_at_once_than_allowed() -> None:
    runner = local("obedient", concurrency=1)
    running = asyncio.create_task(runner.run(sample("sleep 0.3")))
    begun = asyncio.Event()
    waiting = asyncio.create_task(runner.run(sample("score"), started=begun.set))
    await asyncio.wait({waiting}, timeout=0.05)
    assert not begun.is_set()
    assert await asyncio.gather(running, waiting) == [Scored(1.0), Scored(1.0)]


async def test_a_thread_that_hangs_gives_its_place_to_others() -> None:
    runner = local("obedient", concurrency=1, timeout_seconds=0.05)
    assert isinstance(await runner.run(sample("sleep 1")), Failed)
    assert await runner.run(sample("score")) == Scored(1.0)
    assert not runner.is_stuck


async def test_where_all_threads_hang_samples_fail_instead_of_waiting() -> None:
    runner = local("obedient", concurrency=1, timeout_seconds=0.05)
    outcomes = await asyncio.gather(*(runner.run(sample("sleep 1")) for _ in range(5)))
    assert all(isinstance(outcome, Failed) for outcome in outcomes)
    assert "all 2 threads hang" in str(outcomes[-1])
    assert runner.is_stuck


async def test_a_stuck_thread_is_told_at_the_end() -> None:
    runner = local("obedient", timeout_seconds=0.05)
    assert await runner.close()
    runner = local("obedient", timeout_seconds=0.05)
    await runner.run(sample("sleep 0.3"))
    assert not await runner.close()


# In processes


@pytest.fixture
async def processes() -> AsyncIterator[ProcessRunner]:
    runner = ProcessRunner("rewards:obedient", processes=2, timeout_seconds=5)
    yield runner
    await runner.close()


async def pids(runner: ProcessRunner) -> set[int]:
    outcomes = await asyncio.gather(*(runner.run(sample("pid")) for _ in range(8)))
    return {outcome.info["pid"] for outcome in outcomes if isinstance(outcome, Scored)}


async def test_calls_are_spread_over_processes_of_their_own(processes: ProcessRunner) -> None:
    found = await pids(processes)
    assert len(found) == 2
    assert os.getpid() not in found


async def test_a_process_that_dies_is_replaced_and_the_sample_tried_again(
    processes: ProcessRunner, tmp_path: Path
) -> None:
    before = await pids(processes)
    assert await processes.run(sample(f"die-once {tmp_path / 'died'}")) == Scored(1.0)
    assert len(before & await pids(processes)) == 1


async def test_a_sample_that_kills_its_process_again_fails_alone(processes: ProcessRunner) -> None:
    deadly, harmless = await asyncio.gather(processes.run(sample("die")), processes.run(sample("sleep 0.5")))
    assert deadly == Failed("the function's process died, twice")
    assert harmless == Scored(1.0)


async def test_a_process_that_hangs_is_ended() -> None:
    runner = ProcessRunner("rewards:obedient", processes=1, timeout_seconds=0.3)
    try:
        before = await pids(runner)
        assert isinstance(await runner.run(sample("sleep 600")), Failed)
        assert before.isdisjoint(await pids(runner))
    finally:
        await runner.close()


async def test_a_coroutine_runs_in_a_process_too() -> None:
    runner = ProcessRunner("rewards:length_async", processes=1, timeout_seconds=5)
    try:
        assert await runner.run(sample("four")) == Scored(4.0)
    finally:
        await runner.close()


@pytest.mark.parametrize(
    ("reference", "said"), [("rewards:nothing", "has no function nothing"), ("interrupted:f", "no licence")]
)
async def test_a_missing_function_is_found_missing_at_the_start(reference: str, said: str) -> None:
    runner = ProcessRunner(reference, processes=1, timeout_seconds=5)
    with pytest.raises(FunctionNotFoundError, match=said):
        await runner.start()


@given(st.builds(FunctionArguments, data_source=st.text(), solution_str=st.text(), ground_truth=st.text() | st.none()))
def test_a_sample_survives_its_trip_as_text(one: FunctionArguments) -> None:
    assert parse_sample(json.dumps(vars(one))) == one
