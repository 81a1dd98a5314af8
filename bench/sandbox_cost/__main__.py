"""Measures the sandbox beside a plain subprocess, and writes the figures to one file.

python -m sandbox_cost --snippets 1000
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.progress import track
from rich.table import Table

from rewardpool.sandbox import Call, Verdict, run
from rewardpool.sandbox.parent import zygotes
from rewardpool.sandbox.process import ForkedProcess, ProcessLimits
from sandbox_cost.functions import compare
from sandbox_cost.snippets import EXPECTED, HOSTILE, RIGHT, SLOW_EXPECTED, SLOW_RIGHT

RESULT: Final = Path(__file__).parents[2] / ".rewardpool" / "bench" / "sandbox.json"
CORES: Final = os.cpu_count() or 1
BURST: Final = 300
LIMIT_SECONDS: Final = 0.2
ALLOWANCE: Final = ProcessLimits(cpu_seconds=2, idle_seconds=2, memory_bytes=256 << 20, output_bytes=64 << 10)


def milliseconds(times: Sequence[float]) -> dict[str, float]:
    """Return the figures of some durations in seconds."""
    ordered = sorted(times)
    return {
        "p50_ms": round(statistics.median(ordered) * 1e3, 2),
        "p99_ms": round(ordered[int(len(ordered) * 0.99)] * 1e3, 2),
    }


def timed(work: Callable[[], Any]) -> float:
    """Return the seconds that a call takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def start() -> float:
    """Return the seconds until a process is guarded and ready."""
    began = time.perf_counter()
    process = ForkedProcess(zygotes.get(()), ALLOWANCE)
    seconds = time.perf_counter() - began
    process.close()
    return seconds


def sandboxed() -> Verdict:
    """Judge a right answer."""
    return run(RIGHT, calls=[Call(function="answer", expected=EXPECTED)])


def plain() -> None:
    """Run the same in a subprocess without any protection, as checkers commonly do."""
    program = f"{RIGHT}\nassert answer() == {EXPECTED}".encode()
    subprocess.run([sys.executable, "-I", "-"], input=program, check=True)


def among(*, snippets: int, hostile: bool) -> dict[str, Any]:
    """Judge right answers, every tenth of them replaced by a hostile one, on twice as many threads as cores."""

    def judged(number: int) -> tuple[bool, Verdict, float]:
        is_hostile = hostile and number % 10 == 0
        code = HOSTILE[number // 10 % len(HOSTILE)] if is_hostile else RIGHT
        began = time.perf_counter()
        verdict = run(
            code,
            calls=[Call(function="answer", expected=EXPECTED)],
            cpu_seconds=LIMIT_SECONDS,
            idle_seconds=LIMIT_SECONDS,
            memory_mib=64,
        )
        return is_hostile, verdict, time.perf_counter() - began

    with ThreadPoolExecutor(2 * CORES) as threads:
        found = list(
            track(threads.map(judged, range(snippets)), total=snippets, description="hostile" * hostile or "right")
        )
    good = [(verdict, seconds) for bad, verdict, seconds in found if not bad]
    return {
        "snippets": snippets,
        "neighbours_failed": sum(verdict.outcome != "passed" for verdict, _ in good),
        "forged": sum(verdict.passed for bad, verdict, _ in found if bad),
        **milliseconds([seconds for _, seconds in good]),
    }


@contextmanager
def busy(processes: int) -> Iterator[None]:
    """So many processes compute until the end of the block."""
    started = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def on_a_busy_machine(verdicts: int) -> dict[str, Any]:
    """Judge answers that use half of their processor time, on a machine with twice as much to do as it can."""
    call = Call(function="answer", expected=SLOW_EXPECTED)
    with busy(2 * CORES), ThreadPoolExecutor(CORES) as threads:
        work = (threads.submit(run, SLOW_RIGHT, calls=[call], cpu_seconds=0.1) for _ in range(verdicts))
        found = [one.result() for one in track(list(work), description="busy")]
    return {"verdicts": verdicts, "changed": sum(verdict.outcome != "passed" for verdict in found)}


def measured(*, snippets: int, rounds: int, calls: int = 500) -> dict[str, Any]:
    """Return all figures."""
    sandboxed()
    plain()
    alone = [start() for _ in range(BURST)]
    with ThreadPoolExecutor(2 * CORES) as threads:
        burst = list(threads.map(lambda _: start(), range(BURST)))
    pairs = [(timed(sandboxed), timed(plain)) for _ in range(rounds)]
    without, beside = among(snippets=snippets, hostile=False), among(snippets=snippets, hostile=True)
    return {
        "cores": CORES,
        "start": milliseconds(alone),
        "start_in_bursts": milliseconds(burst),
        "verdict": milliseconds([one for one, _ in pairs]),
        "plain_subprocess": milliseconds([other for _, other in pairs]),
        "verdict_over_plain": round(statistics.median(one / other for one, other in pairs), 3),
        "without_hostile": without,
        "with_hostile": beside,
        "neighbours_slowed": round(beside["p50_ms"] / without["p50_ms"], 3),
        "busy": on_a_busy_machine(max(1, snippets // 10)),
        "functions": compare(calls=calls, rounds=7),
    }


def show(found: dict[str, Any]) -> None:
    """Print the figures as a table."""
    table = Table("figure", "value", title=f"sandbox, {found['cores']} cores")
    figures = {name: value for name, value in found.items() if name != "functions"}
    for function, ways in found["functions"].items():
        figures |= {f"function {function}, {way}": value for way, value in ways.items()}
    for name, value in figures.items():
        table.add_row(
            name, ", ".join(f"{key} {one}" for key, one in value.items()) if isinstance(value, dict) else f"{value}"
        )
    Console().print(table)


def main() -> int:
    """Measure, print and write; return 1 where a verdict was forged, lost or changed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--snippets", type=int, default=10_000, metavar="N", help="programs beside hostile ones")
    parser.add_argument("--rounds", type=int, default=200, metavar="N", help="verdicts beside a plain subprocess")
    options = parser.parse_args()
    found = measured(snippets=options.snippets, rounds=options.rounds)
    RESULT.parent.mkdir(parents=True, exist_ok=True)
    RESULT.write_text(json.dumps(found, indent=2) + "\n")
    show(found)
    hostile = found["with_hostile"]
    return int(bool(hostile["neighbours_failed"] or hostile["forged"] or found["busy"]["changed"]))


if __name__ == "__main__":
    sys.exit(main())
