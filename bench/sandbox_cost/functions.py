"""An ordinary function in a process for each call, in processes that are kept, and in threads of the caller's."""

import asyncio
import os
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from rich.progress import track

from rewardpool_runtime.functions.limits import CallLimits
from rewardpool_runtime.functions.outcome import FunctionArguments, FunctionScore
from rewardpool_runtime.functions.parent import environment
from rewardpool_runtime.functions.runner import FunctionRunner, ProcessRunner
from rewardpool_runtime.functions.source import FunctionSource
from rewardpool_runtime.functions.threads import ThreadRunner

CALLERS: Final = 2 * (os.cpu_count() or 1)
LONG_SECONDS: Final = 0.005
SAMPLE: Final = FunctionArguments(data_source="bench", solution_str="so the answer is 42", ground_truth="42")


def short(data_source: str, solution_str: str, ground_truth: str, extra_info: dict[str, Any] | None = None) -> float:
    """Return 1.0 for an answer that ends right: microseconds."""
    return float(solution_str.split()[-1] == ground_truth)


def long(data_source: str, solution_str: str, ground_truth: str, extra_info: dict[str, Any] | None = None) -> float:
    """Return the same after 5 ms of processor time, as checkers of mathematics take."""
    end = time.thread_time() + LONG_SECONDS
    while time.thread_time() < end:
        pass
    return short(data_source, solution_str, ground_truth)


def _in_processes(limits: CallLimits) -> Callable[[Callable[..., float]], FunctionRunner]:
    return lambda function: ProcessRunner(
        FunctionSource.from_function(function), limits=limits, env=environment((), os.environ)
    )


WAYS: Final[Mapping[str, Callable[[Callable[..., float]], FunctionRunner]]] = {
    "process_a_call": _in_processes(CallLimits()),
    "kept_process": _in_processes(CallLimits(calls_per_process=0)),
    "thread": lambda function: ThreadRunner(function, limits=CallLimits()),
}


async def _called(runner: FunctionRunner, calls: int) -> tuple[float, list[float]]:
    """Return the samples a second of so many calls, `CALLERS` at once, and their seconds."""
    left, seconds = iter(range(calls)), []

    async def caller() -> None:
        for _ in left:
            began = time.perf_counter()
            outcome = await runner.run(SAMPLE)
            seconds.append(time.perf_counter() - began)
            if not isinstance(outcome, FunctionScore) or outcome.value != 1.0:
                raise RuntimeError(f"a right answer has {outcome}")

    began = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(CALLERS)))
    return calls / (time.perf_counter() - began), seconds


async def _compared(function: Callable[..., float], *, calls: int, rounds: int) -> dict[str, Any]:
    runners = {name: make(function) for name, make in WAYS.items()}
    rates: dict[str, list[float]] = {name: [] for name in WAYS}
    seconds: dict[str, list[float]] = {name: [] for name in WAYS}
    try:
        for runner in runners.values():
            await runner.start()
            await _called(runner, CALLERS)
        for _ in track(range(rounds), description=function.__name__):
            for name, runner in runners.items():
                rate, each = await _called(runner, calls)
                rates[name].append(rate)
                seconds[name] += each
    finally:
        for runner in runners.values():
            await runner.close()
    ratios = {
        name: sorted(one / thread for one, thread in zip(rates[name], rates["thread"], strict=True)) for name in WAYS
    }
    return {
        name: {
            "samples_per_second": round(statistics.median(rates[name])),
            "p50_ms": round(statistics.median(seconds[name]) * 1e3, 3),
            "over_thread": [round(one, 3) for one in (statistics.median(all_of), all_of[0], all_of[-1])],
        }
        for name, all_of in ratios.items()
    }


def compare(*, calls: int, rounds: int) -> dict[str, Any]:
    """Return samples a second and p50 of each function by each way, and its rate over the thread's (median, least,
    most of the rounds).
    """
    return {
        function.__name__: asyncio.run(_compared(function, calls=calls, rounds=rounds)) for function in (short, long)
    }
