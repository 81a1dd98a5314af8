"""Runs of the client in a simulated world, one for each seed, and whether anything was wrong in one.

python -m simulation.client --seeds 1000
python -m simulation.client --seed 81 --seeds 1 --samples 300 --faults nothing worker_killed
"""

import argparse
import gc
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final

from simulation.client.faults import FAULTS, PAIRS
from simulation.client.plan import plan_of
from simulation.client.run import Result, simulate
from simulation.client.shrink import shortest

OUT: Final = Path(__file__).resolve().parents[3] / ".rewardpool" / "simulation" / "client.json"
SHOWN: Final = 5
"""Failing seeds that are told at length."""
PROGRESS_SECONDS: Final = 30.0


def main() -> int:
    """Entry point; 1 when a run has a violation."""
    parser = argparse.ArgumentParser(prog="simulation.client", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=len(PAIRS), help="how many; default: one for every pair of faults")
    parser.add_argument("--seed", type=int, default=None, help="the first of them; default: a new one")
    parser.add_argument("--samples", type=int, default=None, help="of each run; default: drawn")
    parser.add_argument("--faults", nargs=2, choices=sorted(FAULTS), metavar=("FIRST", "SECOND"), help="default: drawn")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes; default: one for each core")
    parser.add_argument("--out", type=Path, default=OUT)
    given = parser.parse_args()
    first = time.time_ns() // 10**6 % 10**9 if given.seed is None else given.seed
    faults = tuple(given.faults) if given.faults else None
    print(f"seeds {first} to {first + given.seeds - 1}", flush=True)
    play = partial(_play, samples=given.samples, faults=faults)
    began, results = time.monotonic(), []
    told = began
    for result in _all(play, range(first, first + given.seeds), given.jobs):
        results.append(result)
        if result.violations:
            print(f"seed {result.plan.seed}: {result.violations[0]}", flush=True)
        if time.monotonic() - told > PROGRESS_SECONDS:
            told = time.monotonic()
            print(f"{len(results)} of {given.seeds} seeds", flush=True)
    report = summary(results, wall_seconds=time.monotonic() - began, jobs=given.jobs)
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps(report, indent=2) + "\n")
    failed = [result for result in results if result.violations]
    for result in failed[:SHOWN]:
        print(shortest(result.plan))
    counts = ("seeds", "pairs", "samples", "scored", "requests", "virtual_hours")
    print(", ".join(f"{name} {report[name]:,}" for name in counts))
    print(f"samples a minute: {report['samples_a_minute']:,} with {given.jobs} processes,", end=" ")
    print(f"{report['samples_a_cpu_minute']:,} a minute of CPU")
    print("faults: " + ", ".join(f"{name} {count}" for name, count in report["faults"].items()))
    print(f"violations: {len(failed)}; {given.out}")
    return 1 if failed else 0


def _play(seed: int, *, samples: int | None, faults: tuple[str, str] | None) -> Result:
    return simulate(plan_of(seed, samples=samples, faults=faults))


def _all(play: Callable[[int], Result], seeds: range, jobs: int) -> Iterator[Result]:
    gc.collect()
    gc.freeze()  # what is there already need not be looked through before and after each run
    if jobs == 1 or len(seeds) == 1:
        yield from map(play, seeds)
        return
    with ProcessPoolExecutor(jobs, initializer=gc.freeze) as pool:
        yield from pool.map(play, seeds, chunksize=4)


def summary(results: list[Result], *, wall_seconds: float, jobs: int) -> dict[str, Any]:
    """The report, as it is written."""
    samples, cpu = sum(result.samples for result in results), sum(result.cpu_seconds for result in results)
    faults = Counter(name for result in results for name in result.plan.faults)
    pairs = Counter(" and ".join(sorted(result.plan.faults)) for result in results)
    failures = sum((result.failures for result in results), Counter[str]())
    return {
        "seeds": len(results),
        "first_seed": min(result.plan.seed for result in results),
        "samples": samples,
        "scored": sum(result.scored for result in results),
        "requests": sum(result.requests for result in results),
        "hedges": sum(result.hedges for result in results),
        "retries": sum(result.retries for result in results),
        "failures": dict(failures),
        "virtual_hours": round(sum(result.virtual_seconds for result in results) / 3600, 1),
        "wall_seconds": round(wall_seconds, 1),
        "cpu_seconds": round(cpu, 1),
        "processes": jobs,
        "samples_a_minute": round(samples / wall_seconds * 60),
        "samples_a_cpu_minute": round(samples / max(cpu, 1e-9) * 60),
        "faults": dict(faults),
        "pairs": len(pairs),
        "seeds_by_pair": dict(pairs),
        "violations": [
            {"seed": result.plan.seed, "plan": str(result.plan), "violations": result.violations[:20]}
            for result in results
            if result.violations
        ],
    }


if __name__ == "__main__":
    sys.exit(main())
