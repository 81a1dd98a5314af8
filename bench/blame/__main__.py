"""Measures what failures of a reward cost and change, and writes the figures to one file.

python -m blame --groups 2000 --seeds 2
"""

import argparse
import asyncio
import json
import logging
import random
import statistics
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from blame import bandit, broken_pools, survivors, waste
from blame.aims import missed

RESULT: Final = Path(__file__).parents[2] / ".rewardpool" / "bench" / "blame.json"
FAILING: Final = 0.05
"""Share of the rollouts that fail for no fault of the policy."""
CHECKED_GROUPS: Final = 2_000
MIXED_GROUPS: Final = 100


def measured(*, groups: int, seeds: int, steps: int) -> dict[str, Any]:
    """Return all figures."""
    rng = random.Random(0)
    failed = waste.failures(groups, FAILING, rng)
    ways = {
        "drop_groups": waste.dropped_groups(failed),
        "replace_samples": waste.replaced_samples(failed, FAILING, rng),
        "leave_out": waste.trained_without(failed, FAILING, rng),
    }
    differences = survivors.largest_difference(failed[:CHECKED_GROUPS], rng)
    mixture = survivors.largest_difference_of_mixtures(failed[:MIXED_GROUPS], rng)
    return {
        "failing": FAILING,
        "group_size": waste.GROUP_SIZE,
        "drop_groups_expected": round(1 - (1 - FAILING) ** waste.GROUP_SIZE, 4),
        "rollouts": {
            way: {"made": one.rollouts, "wasted": one.wasted, "share": round(one.share, 5), "extra_rounds": one.rounds}
            for way, one in ways.items()
        },
        "largest_difference_from_oracle": {**differences, "mixture": mixture},
        "bandit": {way: _learnt(way, seeds=seeds, steps=steps) for way in bandit.WAYS},
        "broken_pools": broken_pools.tried(),
    }


def _learnt(way: bandit.Way, *, seeds: int, steps: int) -> dict[str, Any]:
    found = [asyncio.run(bandit.learn(way, steps=steps, seed=seed)) for seed in range(seeds)]
    return {
        "provokes_before": round(statistics.fmean(one.provokes_before for one in found), 4),
        "provokes_after": round(statistics.fmean(one.provokes_after for one in found), 4),
        "provokes_after_most": round(max(one.provokes_after for one in found), 4),
        "right_after": round(statistics.fmean(one.right_after for one in found), 4),
        "wasted": round(statistics.fmean(one.wasted for one in found), 4),
        "seeds": seeds,
        "steps": steps,
    }


def show(found: Mapping[str, Any], console: Console) -> None:
    """Print the figures."""
    table = Table("rollouts of which 5 % fail", "made", "wasted", "share", "extra rounds")
    for way, one in found["rollouts"].items():
        table.add_row(
            way, *(f"{one[key]:,}" for key in ("made", "wasted")), f"{one['share']:.2%}", str(one["extra_rounds"])
        )
    console.print(table)
    table = Table("largest difference from the oracle", "")
    for scale, difference in found["largest_difference_from_oracle"].items():
        table.add_row(scale, f"{difference:.1e}")
    console.print(table)
    table = Table("the tiny policy", "provokes before", "after", "most", "right", "wasted")
    for way, one in found["bandit"].items():
        keys = ("provokes_before", "provokes_after", "provokes_after_most", "right_after", "wasted")
        table.add_row(way, *(f"{one[key]:.1%}" for key in keys))
    console.print(table)
    table = Table("a broken pool, failures forgiven", "samples", "scored", "raised")
    for name, one in found["broken_pools"].items():
        table.add_row(name, str(one["samples"]), str(one["wrong"]), one["raised"] or "nothing")
    console.print(table)


def main() -> int:
    """Entry point; returns 1 where an aim is missed."""
    parser = argparse.ArgumentParser(
        prog="blame",
        description="Measure what failures of a reward cost, and what a policy learns from them.",
        epilog='example: make bench-blame BENCH_ARGS="--groups 2000 --seeds 2"',
    )
    parser.add_argument("--groups", type=int, default=8_000, help="of which rollouts fail; a multiple of 50")
    parser.add_argument("--seeds", type=int, default=3, help="of the tiny policy")
    parser.add_argument("--steps", type=int, default=400, help="of its training")
    given = parser.parse_args()
    logging.disable(logging.ERROR)  # the client warns of each of the many failures
    found = measured(groups=given.groups, seeds=given.seeds, steps=given.steps)
    found["missed"] = missed(found)
    RESULT.parent.mkdir(parents=True, exist_ok=True)
    RESULT.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    console = Console()
    show(found, console)
    for aim in found["missed"]:
        console.print(f"missed: {aim}")
    console.print(f"written to {RESULT}")
    return 1 if found["missed"] else 0


if __name__ == "__main__":
    sys.exit(main())
