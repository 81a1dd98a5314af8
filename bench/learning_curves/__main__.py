"""Trains under every schedule with several seeds, and compares where they end.

python -m learning_curves --only sync one_step_off_minibatch --seeds 2 --steps 30
"""

import argparse
import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Final

from local_pool import local_pool
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from learning_curves.jobs import Job, run
from learning_curves.picture import draw
from learning_curves.verdict import Curve, verdicts
from rewardpool_train.pipeline.schedule import SCHEDULES, ScheduleName

ROOT: Final = Path(__file__).parents[2]
RESULT: Final = ROOT / ".rewardpool" / "bench" / "learning.json"
QUICKSTART: Final = ROOT / "examples" / "quickstart"
WORKERS: Final = 2


def manifest() -> dict[str, Any]:
    """A pool of the function that can be learned from."""
    return {
        "apiVersion": "rewardpool.dev/v1alpha1",
        "kind": "RewardPool",
        "metadata": {"name": "vowels"},
        "spec": {
            "model": {"source": "python://learning_curves.judge:compute_score"},
            "sandbox": {"concurrency": 64},
            "replicas": WORKERS,
        },
    }


def trained(names: list[ScheduleName], *, seeds: int, steps: int, python: Path) -> dict[str, dict[int, Curve]]:
    """Run all jobs one after the other, the seeds in turns, so that a machine that slows down does so for all."""
    curves: dict[str, dict[int, Curve]] = {name: {} for name in names}
    with tempfile.TemporaryDirectory(prefix="rewardpool-bench-") as folder, local_pool(manifest()) as pool:
        models = Path(folder, "models")
        subprocess.run([python, QUICKSTART / "models.py", "--out", models], check=True, stdin=subprocess.DEVNULL)
        columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
        with Progress(*columns, console=Console(stderr=True)) as progress:
            bar = progress.add_task("jobs", total=seeds * len(names))
            for seed in range(seeds):
                for name in names:
                    progress.update(bar, description=f"{name}, seed {seed}")
                    own = Path(folder, f"{name}-{seed}")
                    own.mkdir()
                    job = Job(
                        schedule=name,
                        seed=seed,
                        steps=steps,
                        pool=pool,
                        policy=models / "policy",
                        prompts=QUICKSTART / "prompts.jsonl",
                    )
                    curves[name][seed] = run(job, python=python, folder=own)
                    progress.advance(bar)
    return curves


def table(found: dict[str, Any]) -> Table:
    """The verdicts."""
    columns = ("schedule", "final reward", "least to most", "beside sync", "within the seeds' spread")
    made = Table(*columns, title="Where the jobs ended", title_justify="left")
    for name, one in found.items():
        apart = "" if one["vs_sync"] is None else f"{one['vs_sync']:+.4f}"
        within = {None: "", True: "yes", False: "no"}[one["within_spread"]]
        made.add_row(name, f"{one['final_reward']:.4f}", f"{one['least']:.4f} to {one['most']:.4f}", apart, within)
    return made


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(
        prog="learning_curves",
        description="Compare what the schedules learn.",
        epilog='example: make bench-learning BENCH_ARGS="--only sync one_step_off_minibatch --seeds 2 --steps 30"',
    )
    parser.add_argument("--only", nargs="+", choices=SCHEDULES, default=list(SCHEDULES), metavar="SCHEDULE")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=40)
    given = parser.parse_args()
    python = Path(os.environ["REWARDPOOL_TRAINER_PYTHON"])
    curves = trained(given.only, seeds=given.seeds, steps=given.steps, python=python)
    found = verdicts(curves)
    RESULT.parent.mkdir(parents=True, exist_ok=True)
    RESULT.write_text(json.dumps({**found, "curves": curves}, indent=2) + "\n")
    draw(curves, RESULT.with_suffix(".png"))
    Console().print(table(found), f"curves: {RESULT.with_suffix('.png')}")


if __name__ == "__main__":
    main()
