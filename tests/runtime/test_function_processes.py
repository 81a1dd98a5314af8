"""What a function may do in its processes, and that all of it costs its own call alone."""

import asyncio
import importlib
import os
import re
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from support.patience import PATIENCE

from rewardpool_runtime.functions import runner as runner_module
from rewardpool_runtime.functions.limits import MAX_OUTPUT_BYTES, MAX_PROCESSES, CallLimits, Usage, exceeded
from rewardpool_runtime.functions.load import FunctionLoadError
from rewardpool_runtime.functions.outcome import Failed, FunctionArguments, FunctionScore, Outcome
from rewardpool_runtime.functions.parent import environment
from rewardpool_runtime.functions.runner import ProcessRunner
from rewardpool_runtime.functions.source import FunctionSource

FUNCTIONS = Path(__file__).parents[1] / "worker" / "functions"
LIMITS = CallLimits(concurrency=2, cpu_seconds=60, idle_seconds=60, memory_mib=512)
BUSY, IDLE = replace(LIMITS, cpu_seconds=0.3), replace(LIMITS, idle_seconds=0.5)
Printed = list[tuple[str, str]]


@pytest.fixture(autouse=True)
def _users_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(FUNCTIONS)


def sample(what: str, truth: Any = None) -> FunctionArguments:
    return FunctionArguments(data_source="test", solution_str=what, ground_truth=truth)


@asynccontextmanager
async def running(
    function: Any = "hostile:compute_score",
    *,
    limits: CallLimits = LIMITS,
    env: tuple[str, ...] = (),
    printed: Any = None,
) -> AsyncIterator[ProcessRunner]:
    runner = ProcessRunner(
        FunctionSource.from_function(function), limits=limits, env=environment(env, os.environ), printed=printed
    )
    try:
        await runner.start()
        yield runner
    finally:
        await runner.close()


async def until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 10 * PATIENCE
    while not holds():
        assert time.monotonic() < deadline, f"not so: {what}"
        await asyncio.sleep(0.02)


COSTS_ITSELF = [
    ("loop", None, "used 0.3 s of processor time, its limit by cpu_seconds", "policy"),
    ("match_without_end", None, "used 0.3 s of processor time", "policy"),
    ("loop_in_a_child", None, "used 0.3 s of processor time", "policy"),
    ("loop_in_a_thread", None, "used 0.3 s of processor time", "policy"),
    ("sleep", None, "waited for 0.5 s in which it could have run, its limit by idle_seconds", "verifier"),
    ("allocate", None, "MemoryError: .*its limit is 512 MiB, by memory_mib", "verifier"),
    ("recurse", 1, "RecursionError: ", "verifier"),
    ("crash", None, "was killed by SIGSEGV in this call", "verifier"),
    ("exit", None, "ended with exit code 7 in this call", "verifier"),
    ("kill_itself", None, "was killed by SIGTERM in this call", "verifier"),
    ("fork", 200, "processes at once; it may have 64", "verifier"),
    ("close_descriptors", None, "closed the descriptor of its results|ended with exit code 1", "verifier"),
    ("unknown", None, r"KeyError: 'does_unknown' \(hostile.py:\d+ compute_score\)", "verifier"),
]


@pytest.mark.parametrize(("what", "truth", "said", "fault"), COSTS_ITSELF, ids=[case[0] for case in COSTS_ITSELF])
async def test_what_a_call_does_costs_that_call_alone(what: str, truth: Any, said: str, fault: str) -> None:
    async with running(limits=BUSY if fault == "policy" else IDLE if what == "sleep" else LIMITS) as runner:
        outcome, neighbour = await asyncio.gather(runner.run(sample(what, truth)), runner.run(sample("nothing")))
        assert isinstance(outcome, Failed)
        assert pytest.approx(1.0) == neighbour.value  # type: ignore[union-attr]
        assert re.search(said, outcome.message), outcome.message
        assert outcome.fault == fault
        after = await runner.run(sample("nothing"))
        assert isinstance(after, FunctionScore)
        assert after.info["calls"] == 1
        parent = runner._supply._parent
        assert parent is not None
        await until(lambda: len(psutil.Process(parent.pid).children(recursive=True)) <= 4, "what it started is gone")


@pytest.mark.parametrize(
    "what",
    [
        "alarm",
        "leave_threads",
        "register_an_end",
        "open_files",
        "read_stdin",
        "patch",
        "return_much",
        "write_to_descriptors",
    ],
)
async def test_a_call_has_a_process_and_its_main_thread_to_itself(what: str, tmp_path: Path) -> None:
    async with running() as runner:
        outcome = await runner.run(sample(what, str(tmp_path / "end")))
        assert isinstance(outcome, FunctionScore) or what in ("open_files", "patch"), outcome
        after = await runner.run(sample("nothing"))
        assert (after.value, after.info["calls"]) == (1.0, 1)  # type: ignore[union-attr]
    assert not (tmp_path / "end").exists()


async def test_a_process_that_left_its_session_ends_with_its_call(tmp_path: Path) -> None:
    async with running() as runner:
        assert await runner.run(sample("leave_a_daemon", str(tmp_path / "pid"))) == FunctionScore(1.0)
        pid = int((tmp_path / "pid").read_text())
        await until(lambda: not psutil.pid_exists(pid), "the daemon is gone")


async def test_many_calls_that_hang_leave_their_places_to_others() -> None:
    async with running(limits=CallLimits(concurrency=4, idle_seconds=0.3)) as runner:
        hung = await asyncio.gather(*(runner.run(sample("sleep")) for _ in range(9)))
        assert all(isinstance(one, Failed) and "idle_seconds" in one.message for one in hung)
        assert isinstance(await runner.run(sample("nothing")), FunctionScore)


async def test_a_value_that_json_cannot_hold_never_costs_the_score() -> None:
    async with running() as runner:
        outcome = await runner.run(sample("return_an_object"))
    assert isinstance(outcome, FunctionScore)
    assert (outcome.info["kept"], list(outcome.info["left_out"])) == ("x", ["pred"])


async def test_a_file_has_a_limit_that_the_error_names(tmp_path: Path) -> None:
    async with running() as runner:
        outcome = await runner.run(sample("write_a_large_file", str(tmp_path / "file")))
    assert "a file may have 1 GiB" in outcome.message  # type: ignore[union-attr]


async def test_what_is_printed_is_passed_on_by_line_with_the_samples_label() -> None:
    lines: Printed = []
    async with running(printed=lambda *line: lines.append(line)) as runner:
        assert await runner.run(sample("print", "hello\nworld"), label="e1") == FunctionScore(1.0)
    result = '{"id": 1, "score": 5.0, "info": {}}'
    assert lines == [("e1", text) for text in ("hello", "world", "to stderr", "by a program", result)]


async def test_of_a_flood_the_beginning_is_kept_and_the_score_stays() -> None:
    lines: Printed = []
    async with running(printed=lambda *line: lines.append(line)) as runner:
        assert await runner.run(sample("flood", 100)) == FunctionScore(1.0)
    kept = sum(len(text) for _, text in lines)
    assert MAX_OUTPUT_BYTES <= kept < 2 * MAX_OUTPUT_BYTES
    assert "bytes more were printed and not kept" in lines[-1][1]


async def test_a_function_gets_the_variables_that_are_given_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HF_TOKEN", "WANTED", "REWARDPOOL_KEY_FILE"):
        monkeypatch.setenv(name, "x")
    async with running(env=("WANTED",)) as runner:
        found = (await runner.run(sample("show_its_environment"))).info["environ"]  # type: ignore[union-attr]
    assert {"WANTED", "PATH"} <= set(found)
    assert not {"HF_TOKEN", "REWARDPOOL_KEY_FILE"} & set(found)


def test_all_variables_are_all_but_rewardpools_own() -> None:
    given = environment(["*"], {"DATA": "/data", "REWARDPOOL_KEY_FILE": "/key"})
    assert given["DATA"] == "/data"
    assert "REWARDPOOL_KEY_FILE" not in given


@pytest.mark.parametrize(("calls", "served"), [(2, [1, 2, 1, 2]), (0, [1, 2, 3, 4])])
async def test_a_process_serves_as_many_calls_as_it_is_to(calls: int, served: list[int], monkeypatch: Any) -> None:
    monkeypatch.setattr("rewardpool_runtime.functions.supply.RESERVE", 0)
    async with running(limits=CallLimits(concurrency=1, calls_per_process=calls)) as runner:
        outcomes = [await runner.run(sample("nothing")) for _ in range(4)]
    assert [one.info["calls"] for one in outcomes] == served  # type: ignore[union-attr]


async def test_no_more_calls_run_at_once_than_there_are_places() -> None:
    async with running(limits=CallLimits(concurrency=1, idle_seconds=0.5)) as runner:
        first = asyncio.create_task(runner.run(sample("sleep")))
        begun = asyncio.Event()
        second = asyncio.create_task(runner.run(sample("nothing"), started=begun.set))
        await asyncio.wait({second}, timeout=0.1)
        assert not begun.is_set()
        assert isinstance(await first, Failed)
        assert isinstance(await second, FunctionScore)


async def test_a_call_whose_caller_has_gone_is_ended() -> None:
    async with running(limits=CallLimits(concurrency=1)) as runner:
        begun = asyncio.Event()
        call = asyncio.create_task(runner.run(sample("sleep"), started=begun.set))
        await begun.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert isinstance(await runner.run(sample("nothing")), FunctionScore)


# The parent


async def test_a_parent_that_is_killed_is_replaced_and_what_was_running_is_run_again() -> None:
    async with running(limits=CallLimits(concurrency=2, idle_seconds=2)) as runner:
        parent = runner._supply._parent
        assert parent is not None
        slow = asyncio.create_task(runner.run(sample("alarm")))
        os.kill(parent.pid, signal.SIGKILL)
        assert await slow == FunctionScore(1.0)
        assert isinstance(await runner.run(sample("nothing")), FunctionScore)


async def test_a_call_that_kills_the_parent_each_time_is_nobodys_fault_and_never_a_score() -> None:
    async with running() as runner:
        outcome = await runner.run(sample("kill_its_parent"))
        assert isinstance(outcome, Failed)
        assert outcome.fault == "infra"
        assert isinstance(await runner.run(sample("nothing")), FunctionScore)


async def test_a_module_that_cannot_be_imported_again_is_tried_until_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "count").write_text("")
    monkeypatch.setenv("COUNT_FILE", str(tmp_path / "count"))
    async with running("fails_every_second_time:compute_score", env=("COUNT_FILE",)) as runner:
        parent = runner._supply._parent
        assert parent is not None
        os.kill(parent.pid, signal.SIGKILL)
        assert await runner.run(sample("")) == FunctionScore(1.0)
    assert (tmp_path / "count").read_text() == "xxx"


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("rewards:nothing", "the module rewards has no function nothing"),
        ("interrupted:f", "interrupted.py:3: KeyboardInterrupt: no licence"),
        ("rewards:needs_level", "it cannot be called with data_source"),
    ],
)
async def test_what_cannot_be_loaded_is_refused_at_the_start(reference: str, said: str) -> None:
    with pytest.raises(FunctionLoadError, match=f"cannot load the function {reference}: .*{said}"):
        async with running(reference):
            pass


async def test_a_module_that_starts_threads_is_imported_by_each_process(caplog: pytest.LogCaptureFixture) -> None:
    async with running("starts_threads:compute_score", limits=CallLimits(concurrency=1)) as runner:
        outcomes = [await runner.run(sample("")) for _ in range(2)]
    assert [one.info["threads"] for one in outcomes] == [2, 2]  # type: ignore[union-attr]
    assert "importing starts_threads:compute_score starts 1 threads (of-the-module)" in caplog.text


async def test_what_the_module_started_serves_all_calls_and_ends_with_them() -> None:
    async with running("starts_a_server:compute_score", limits=CallLimits(concurrency=1)) as runner:
        outcomes = [await runner.run(sample(str(number))) for number in range(4)]
        server = psutil.Process(outcomes[0].info["server"])  # type: ignore[union-attr]
    assert [one.value for one in outcomes] == [0, 1, 2, 3]  # type: ignore[union-attr]
    await until(lambda: not server.is_running(), "it has ended")


@pytest.mark.parametrize(("calls", "processes"), [(None, 1), (1, 4)])
async def test_the_processes_of_a_function_that_uses_the_sandbox_are_kept(calls: int | None, processes: int) -> None:
    limits = CallLimits(concurrency=1, calls_per_process=calls)
    async with running("uses_the_sandbox:compute_score", limits=limits) as runner:
        outcomes = [await runner.run(sample("rewardpool.sandbox")) for _ in range(4)]
    assert len({one.info["process"] for one in outcomes}) == processes  # type: ignore[union-attr]


async def test_closing_leaves_no_process() -> None:
    async with running() as runner:
        parent = runner._supply._parent
        assert parent is not None
        await until(lambda: len(psutil.Process(parent.pid).children()) > 2, "processes wait for calls")
        members = [psutil.Process(parent.pid), *psutil.Process(parent.pid).children(recursive=True)]
    await until(lambda: not any(member.is_running() for member in members), "all have ended")


# Async functions


@pytest.mark.parametrize("function", ["score", "decorated", "judge", "partial"])
async def test_an_async_function_is_recognised_by_what_it_returns(function: str) -> None:
    async with running(f"hostile:{function}") as runner:
        outcomes = await asyncio.gather(*(runner.run(sample("four")) for _ in range(4)))
    assert outcomes == [FunctionScore(4.0)] * 4


async def test_calls_of_an_async_function_share_one_loop_and_what_lives_on_it() -> None:
    lines: Printed = []
    async with running(
        "hostile:shares_a_lock", printed=lambda *line: lines.append(line), limits=CallLimits()
    ) as runner:
        assert runner.places == 32
        for _ in range(2):
            assert await asyncio.gather(*(runner.run(sample(n), label=n) for n in "abc")) == [FunctionScore(1.0)] * 3
    assert sorted(lines) == sorted([(n, f"scores {n}") for n in "abc"] * 2)


async def test_an_async_call_that_takes_too_long_is_cancelled_alone() -> None:
    async with running("hostile:may_block", limits=CallLimits(cpu_seconds=0.2, idle_seconds=0.2)) as runner:
        overdue, other = await asyncio.gather(runner.run(sample("wait")), runner.run(sample("")))
        again = await runner.run(sample(""))
    assert "took longer than 0.4 s, its limit by cpu_seconds plus idle_seconds" in overdue.message  # type: ignore[union-attr]
    assert other == again


async def test_the_death_of_the_loops_process_is_told_to_its_calls_and_it_is_replaced() -> None:
    async with running("hostile:may_block") as runner:
        waiting = asyncio.create_task(runner.run(sample("wait")))
        died = await runner.run(sample("exit"))
        assert all("ended with exit code 7" in one.message for one in (died, await waiting))  # type: ignore[union-attr]
        assert isinstance(await runner.run(sample("")), FunctionScore)


async def test_a_loop_that_is_blocked_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner_module, "BLOCKED_SECONDS", 0.2)
    async with running("hostile:may_block", limits=CallLimits(cpu_seconds=0.2, idle_seconds=0.2)) as runner:
        before = await runner.run(sample(""))
        blocking = asyncio.create_task(runner.run(sample("block")))
        assert isinstance(await blocking, Failed)
        process = runner._loop
        assert process is not None
        await until(lambda: process.has_ended, "the process was ended")
        after = await runner.run(sample(""))
    assert before.info["pid"] != after.info["pid"]  # type: ignore[union-attr]


# What a function is


async def test_a_closure_is_given_to_the_processes_by_value() -> None:
    factor = 3

    def tripled(solution_str: str, **_: Any) -> float:
        return factor * len(solution_str)

    async with running(tripled) as runner:
        assert await runner.run(sample("four")) == FunctionScore(12.0)


def test_what_another_process_cannot_have_is_refused_by_name() -> None:
    lock = threading.Lock()
    with pytest.raises(
        FunctionLoadError, match=r"cannot load the function .*lambda.* '_thread.lock' object.*run_in: threads"
    ):
        FunctionSource.from_function(lambda **_: float(lock.locked()))


def test_a_function_of_a_module_that_can_be_imported_goes_by_its_name() -> None:
    # By its name: another folder of the tests is called so.
    function = importlib.import_module("hostile").compute_score
    assert FunctionSource.from_function(function).reference == "hostile:compute_score"


# What a call may use


def used(**more: Any) -> Usage:
    return Usage(**{"wall": 1.0, "cpu": 0.1, "idle": 0.1, "processes": 1, **more})


@pytest.mark.parametrize(
    ("usage", "fault", "said"),
    [
        (used(), None, ""),
        (used(wall=59, cpu=29, idle=29), None, ""),
        (used(cpu=30.1), "policy", "spec.sandbox.cpuSeconds"),
        (used(idle=30.1), "verifier", "spec.sandbox.idleSeconds"),
        (used(wall=61, cpu=5, idle=2), "infra", "starved: the function got 5.0 s of processor time in 61 s"),
        (used(processes=MAX_PROCESSES + 1), "verifier", "65 processes"),
    ],
)
def test_a_call_is_judged_by_what_it_used_and_not_by_the_clock(usage: Usage, fault: str | None, said: str) -> None:
    outcome: Outcome | None = exceeded(usage, CallLimits(of_pool=True))
    assert (outcome.fault if isinstance(outcome, Failed) else None) == fault
    assert said in (outcome.message if isinstance(outcome, Failed) else "")
