"""Runs every schedule against the pools of each protocol, one after the other, and writes the figures to one file.

python -m training_step --protocols samples --only one_step_off_minibatch sync --factor 60 --steps 2
"""

import argparse
import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from local_pool import local_pool
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from rewardpool import RewardConfig
from rewardpool_train.pipeline.schedule import SCHEDULES, ScheduleName
from training_step import course, pools
from training_step.aims import vs
from training_step.pairs import PairProtocol
from training_step.protocol import AT_ONCE, FIXED, POOLS, Protocol
from training_step.report import show

RESULT: Final = Path(__file__).parents[2] / ".rewardpool" / "bench" / "step.json"
BASELINE: Final[ScheduleName] = "sync"
BEST: Final[ScheduleName] = "one_step_off_minibatch"
"""The only one that is run with every score there at once: the others' devices wait for each other in any case."""
PROTOCOLS: Final[dict[str, type[Protocol]]] = {kind.name: kind for kind in (Protocol, PairProtocol)}


def measured(names: list[ScheduleName], only_pools: list[str], protocol: Protocol, *, steps: int) -> dict[str, Any]:
    """All figures; `vs_sync` is beside the schedule `sync` with a fixed number of callers, where that was run."""
    courses: dict[tuple[ScheduleName, str], course.Course] = {}
    for pool in [pool for pool in only_pools if pool in protocol.pools]:
        with _settings(pool, protocol) as settings:
            for name in names:
                if pool == AT_ONCE and name != BEST:
                    continue
                minibatches = 4 * (course.WARM_UP_STEPS + steps + course.COOL_DOWN_STEPS)
                with _progress(f"{protocol.name}, {name}, {pool}", total=minibatches) as advance:
                    running = course.run(name, settings, protocol, steps=steps, on_minibatch=advance)
                    courses[name, pool] = asyncio.run(running)
    baseline = courses.get((BASELINE, FIXED))
    result: dict[str, Any] = {}
    for (name, pool), one in courses.items():
        result.setdefault(name, {})[pool] = {
            "step_seconds": round(one.step_seconds, 3),
            "vs_sync": None if baseline is None else vs(one.step_seconds, baseline.step_seconds),
            "waited_seconds": round(one.waited_seconds, 3),
            "steps": [round(seconds, 3) for seconds in one.steps],
        }
    return result


@contextmanager
def _settings(pool: str, protocol: Protocol) -> Iterator[RewardConfig | None]:
    if pool == AT_ONCE:
        yield None
        return
    with local_pool(pools.manifest(pool, protocol)) as key:
        yield course.config(key, callers=pools.callers(pool, protocol), protocol=protocol)


@contextmanager
def _progress(what: str, *, total: int) -> Iterator[Any]:
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True)) as progress:
        bar = progress.add_task(f"{what}: mini-batches", total=total)
        yield lambda: progress.advance(bar)


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(
        prog="training_step",
        description="Measure how long a training step takes while rewards are slow.",
        epilog='example: make bench-step BENCH_ARGS="--only one_step_off_minibatch sync --steps 1"',
    )
    parser.add_argument("--only", nargs="+", choices=SCHEDULES, default=list(SCHEDULES), metavar="SCHEDULE")
    parser.add_argument("--pools", nargs="+", choices=POOLS, default=list(POOLS))
    parser.add_argument("--protocols", nargs="+", choices=PROTOCOLS, default=list(PROTOCOLS), metavar="PROTOCOL")
    parser.add_argument("--steps", type=int, default=3, help="that are counted, of each schedule")
    parser.add_argument("--factor", type=float, default=20.0, help="by which all times are divided")
    parser.add_argument("--trial", type=int, default=1, help="so many times fewer prompts in a step, at most 32")
    given = parser.parse_args()
    protocols = [
        PROTOCOLS[name](factor=given.factor, prompts=PROTOCOLS[name].whole_prompts // given.trial)
        for name in given.protocols
    ]
    result: dict[str, Any] = {"factor": given.factor, "floor_seconds": round(protocols[0].floor_seconds, 3)}
    for protocol in protocols:
        figures = measured(given.only, given.pools, protocol, steps=given.steps)
        if isinstance(protocol, PairProtocol):
            result[protocol.name] = {"samples_per_step": protocol.samples, **figures}
        else:
            result |= {"samples_per_step": protocol.samples, **figures}
    RESULT.parent.mkdir(parents=True, exist_ok=True)
    RESULT.write_text(json.dumps(result, indent=2) + "\n")
    show(result)


if __name__ == "__main__":
    main()
