"""The whole example in one run, as `make smollm2`: a model, two pools, a training job, and what it has learned.

What it starts it also ends. It takes a quarter of an hour on two CPU cores.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path

import model
from answers import Answer, answers
from picture import draw
from rich.console import Console
from rich.table import Table

from rewardpool_api import names

HERE = Path(__file__).resolve().parent
POOLS = ("arithmetic", "judge")
START_SECONDS, TRAINING_SECONDS, DRAIN_SECONDS = 600, 3_600, 120
SHOWN = 6
"""Answers in the table."""


@contextmanager
def pool(name: str, program: Path) -> Iterator[None]:
    """Start the pool of that name, and end it."""
    up = [program, "up", "-f", f"{name}.yaml", "--detach", "--wait-seconds", str(START_SECONDS)]
    subprocess.run(up, cwd=HERE, check=True, timeout=2 * START_SECONDS, stdin=subprocess.DEVNULL)
    try:
        yield
    finally:
        subprocess.run([program, "down", name], check=True, timeout=DRAIN_SECONDS, stdin=subprocess.DEVNULL)


def train(out: Path) -> None:
    """Run the training job. Raises CalledProcessError."""
    command = [sys.executable, "-m", "rewardpool_train", HERE / "train.yaml", "--output", out]
    subprocess.run(command, check=True, timeout=TRAINING_SECONDS, stdin=subprocess.DEVNULL)


def table(before: list[Answer], after: list[Answer]) -> Table:
    """Some answers beside each other, and how many of all are right."""
    made = Table("prompt", "before", "after", title="The likeliest answers", title_justify="left")
    for old, new in list(zip(before, after, strict=True))[:SHOWN]:
        made.add_row(old.prompt, old.response, new.response)
    right = [sum(answer.right for answer in given) for given in (before, after)]
    made.add_section()
    made.add_row(f"right, of {len(before)}", str(right[0]), str(right[1]))
    return made


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description="Train SmolLM2-135M-Instruct by two reward pools.")
    parser.add_argument("--out", type=Path, required=True, help="folder for the results")
    parser.add_argument("--rewardpool", type=Path, required=True, help="the command `rewardpool`")
    given = parser.parse_args()
    out = given.out.resolve()
    # A folder of its own for the pools' state, and no cluster that may have pools of these names.
    os.environ |= {names.ENV_STATE_DIR: str(out / "state"), "KUBECONFIG": str(out / "none"), "HF_HUB_OFFLINE": "1"}
    if not (model.OUT / "tokenizer.json").is_file():
        model.make(model.OUT)
    before = answers(model.OUT)
    with ExitStack() as pools:
        for name in POOLS:
            pools.enter_context(pool(name, given.rewardpool.resolve()))
        train(out)
    after = answers(out / "policy")
    draw(out / "metrics.jsonl", out / "smollm2.png")
    said = {"before": [asdict(answer) for answer in before], "after": [asdict(answer) for answer in after]}
    (out / "answers.json").write_text(json.dumps(said, indent=2) + "\n")
    Console().print(table(before, after), f"curves: {out / 'smollm2.png'}; all answers: {out / 'answers.json'}")


if __name__ == "__main__":
    main()
