"""The whole example in one run, as `make expressions`: a policy, a pool, a training job, and what it has learned.

What it starts it also ends. It takes minutes on two CPU cores.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import model
import torch
from answers import HOSTILE, is_right
from rich.console import Console
from rich.table import Table
from transformers import AutoModelForCausalLM, AutoTokenizer

from rewardpool_api import names

HERE = Path(__file__).resolve().parent
START_SECONDS, TRAINING_SECONDS, DRAIN_SECONDS = 120, 1_800, 120
SAMPLES = 64
"""Answers to each prompt, before and after."""
MAX_NEW_TOKENS = 44
"""As in train.yaml."""


def sampled(folder: Path) -> dict[str, float]:
    """Return what share of a policy's answers, as it samples them, is right, and what share is hostile."""
    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
    policy: Any = AutoModelForCausalLM.from_pretrained(folder).eval()
    prompts = [json.loads(line) for line in model.PROMPTS.read_text().splitlines()] * SAMPLES
    turns = [[{"role": "user", "content": prompt["prompt"]}] for prompt in prompts]
    encoded = tokenizer.apply_chat_template(
        turns, add_generation_prompt=True, padding=True, return_dict=True, return_tensors="pt"
    )
    with torch.no_grad():
        written = policy.generate(**encoded, max_new_tokens=MAX_NEW_TOKENS, do_sample=True, top_k=0)
    answers = tokenizer.batch_decode(written[:, encoded["input_ids"].shape[1] :], skip_special_tokens=True)
    right = [is_right(answer, prompt["ground_truth"]) for answer, prompt in zip(answers, prompts, strict=True)]
    hostile = [answer in HOSTILE for answer in answers]
    return {"right": sum(right) / len(answers), "hostile": sum(hostile) / len(answers)}


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description="Train a tiny policy by a checker that runs what it writes.")
    parser.add_argument("--out", type=Path, required=True, help="folder for the results")
    parser.add_argument("--rewardpool", type=Path, required=True, help="the command `rewardpool`")
    given = parser.parse_args()
    out, program = given.out.resolve(), given.rewardpool.resolve()
    # A folder of its own for the pool's state, and no cluster that may have a pool of this name.
    os.environ |= {names.ENV_STATE_DIR: str(out / "state"), "KUBECONFIG": str(out / "none"), "HF_HUB_OFFLINE": "1"}
    os.environ["OMP_NUM_THREADS"] = "1"  # so small a policy gains nothing by more
    torch.set_num_threads(1)
    model.make(model.OUT)
    before = sampled(model.OUT)
    up = [program, "up", "-f", "pool.yaml", "--detach", "--wait-seconds", str(START_SECONDS)]
    subprocess.run(up, cwd=HERE, check=True, timeout=2 * START_SECONDS, stdin=subprocess.DEVNULL)
    try:
        train = [sys.executable, "-m", "rewardpool_train", HERE / "train.yaml", "--output", out]
        subprocess.run(train, check=True, timeout=TRAINING_SECONDS, stdin=subprocess.DEVNULL)
    finally:
        down = [program, "down", "expressions"]
        subprocess.run(down, check=True, timeout=DRAIN_SECONDS, stdin=subprocess.DEVNULL)
    after = sampled(out / "policy")
    (out / "answers.json").write_text(json.dumps({"before": before, "after": after}, indent=2) + "\n")
    table = Table("of the answers", "before", "after", title="A policy and a checker that runs what it writes")
    for name in before:
        table.add_row(name, f"{before[name]:.0%}", f"{after[name]:.0%}")
    Console().print(table)


if __name__ == "__main__":
    main()
