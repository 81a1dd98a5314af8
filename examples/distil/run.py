"""The whole example in one run, as `make distil`: a student, two replicas of its teacher, and a job.

Half way one replica is killed with all its processes. What it starts it also ends; it takes a quarter of an hour on two
CPU cores. No divergence that fell, a lost question or no kill is a failure.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl
import student
import yaml
from demo import DemoError, read_steps, watch
from matplotlib.figure import Figure

from rewardpool_api import names

HERE = Path(__file__).resolve().parent
NAME = "distil-teacher"
START_SECONDS, TRAINING_SECONDS, DRAIN_SECONDS = 600, 2_400, 120
WINDOW = 8
"""Steps of the moving mean, and of the means that are compared."""


def train(out: Path, *, steps: int) -> dict[str, int]:
    """Run the job to its end; return the worker that was killed half way, with the steps that were done then.

    Raises:
        SystemExit: The job failed, or was not done in time.
    """
    command = [sys.executable, "-m", "rewardpool_train", HERE / "train.yaml", "--output", out / "train"]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    try:
        kills = watch(process, out / "train", env=os.environ, steps=steps, seconds=TRAINING_SECONDS, name=NAME)
    except DemoError as error:
        raise SystemExit(str(error)) from error
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(DRAIN_SECONDS)
    return {kill.worker: kill.after_step for kill in kills}


def draw(records: list[dict[str, Any]], kills: list[int], path: Path) -> None:
    """Write a PNG of the divergence, step by step."""
    mpl.rcParams.update({"font.size": 11, "axes.spines.top": False, "axes.spines.right": False})
    figure = Figure(figsize=(9, 4.8), layout="constrained")
    axes = figure.subplots()
    steps, values = [record["step"] for record in records], [record["teacher_kl"] for record in records]
    means = [statistics.fmean(values[max(0, at - WINDOW + 1) : at + 1]) for at in range(len(values))]
    axes.plot(steps, values, ".", color="#4c78a8", alpha=0.4, label="a step")
    axes.plot(steps, means, color="#4c78a8", linewidth=2, label=f"mean of {WINDOW} steps")
    for at in kills:
        axes.axvline(at + 0.5, color="black", linestyle="--", linewidth=1, label="kill -9 of a teacher's replica")
    axes.set_title("Divergence from the student to its teacher, nats per token", loc="left")
    axes.set_xlabel("step")
    axes.set_ylim(bottom=0)
    axes.legend(loc="upper right", frameon=False)
    figure.savefig(path, dpi=120)


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(
        description="Distil a small model into a smaller one, and kill a teacher half way."
    )
    parser.add_argument("--out", type=Path, required=True, help="folder for the results")
    parser.add_argument("--rewardpool", type=Path, required=True, help="the command `rewardpool`")
    given = parser.parse_args()
    out, program = given.out.resolve(), given.rewardpool.resolve()
    # A folder of its own for the pool's state, and no cluster that may have a pool of this name.
    os.environ |= {names.ENV_STATE_DIR: str(out / "state"), "KUBECONFIG": str(out / "none"), "HF_HUB_OFFLINE": "1"}
    for name in ("metrics.jsonl", "metrics.json"):
        (out / "train" / name).unlink(missing_ok=True)
    student.make(student.OUT)
    up = [program, "up", "-f", "pool.yaml", "--detach", "--wait-seconds", str(START_SECONDS)]
    subprocess.run(up, cwd=HERE, check=True, timeout=2 * START_SECONDS, stdin=subprocess.DEVNULL)
    try:
        killed = train(out, steps=yaml.safe_load((HERE / "train.yaml").read_text())["steps"])
    finally:
        subprocess.run([program, "down", NAME], check=True, timeout=DRAIN_SECONDS, stdin=subprocess.DEVNULL)
    records = read_steps(out / "train" / "metrics.jsonl")
    totals = json.loads((out / "train" / "metrics.json").read_text())
    divergence = [record["teacher_kl"] for record in records]
    first, last = statistics.fmean(divergence[:WINDOW]), statistics.fmean(divergence[-WINDOW:])
    summary = {
        "divergence_first": first,
        "divergence_last": last,
        "killed_after_step": killed,
        **{name: totals[name] for name in ("steps", "samples", "scored", "unscored", "lost", "retried", "seconds")},
    }
    (out / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
    draw(records, list(killed.values()), out / "distil.png")
    print(f"divergence {first:.2f} nats a token in the first {WINDOW} steps, {last:.2f} in the last")
    print(f"{totals['samples']} responses, {totals['retried']} retried, {totals['lost']} lost")
    print(f"summary: {out / 'summary.json'}\npicture: {out / 'distil.png'}")
    return 1 if totals["lost"] or totals["unscored"] or not killed or last >= first else 0


if __name__ == "__main__":
    sys.exit(main())
