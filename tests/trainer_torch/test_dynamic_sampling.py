"""`python -m rewardpool_train` by torchrun, rated by a function that few groups differ in."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.rare_reward import ENV_NOTES, asked
from support.torchrun import run_job

PROMPTS, GROUPS, SIZE, ROUNDS = 400, 4, 6, 12


def train(folder: Path, policy_folder: Path, *, ranks: int, **changes: Any) -> list[dict[str, Any]]:
    """Train, or go on training; returns the figures of all steps."""
    notes = folder / "notes"
    notes.mkdir(exist_ok=True)
    prompts = [{"prompt": f"{number:03}", "extra_info": {"number": number}} for number in range(PROMPTS)]
    (folder / "prompts.jsonl").write_text("\n".join(json.dumps(prompt) for prompt in prompts))
    config = {
        "policy": {"path": str(policy_folder)},
        "data": {"prompts": "prompts.jsonl"},
        "reward": {"function": "support.rare_reward:has_a_pair_of_sevens", "env": [ENV_NOTES]},
        "rollout": {"prompts_per_step": GROUPS, "group_size": SIZE, "max_new_tokens": 12},
        "update": {"groups_per_minibatch": 2, "algorithm": "dapo", "dynamic_sampling_rounds": ROUNDS},
        "checkpoint": {"every_steps": 1},
        "steps": 2,
        "output": "out",
    }
    (folder / "train.yaml").write_text(yaml.safe_dump(config | changes))
    env = {ENV_NOTES: str(notes), "OMP_NUM_THREADS": "1"}
    job = run_job("rewardpool_train", folder / "train.yaml", ranks=ranks, seconds=300, native_crashes=0, **env)
    assert job.returncode == 0, job.stderr
    return [json.loads(line) for line in (folder / "out" / "metrics.jsonl").read_text().splitlines()]


def check(steps: list[dict[str, Any]], folder: Path) -> None:
    """Every step had as many groups as it asked for, all of them of use, and no prompt was asked twice."""
    assert [(step["scored"], step["zero_variance_groups"]) for step in steps] == [(GROUPS * SIZE, 0)] * len(steps)
    assert all(0 < step["sampling_rounds"] < ROUNDS for step in steps)
    assert all(step["dropped_samples"] == step["dropped_groups"] * SIZE > 0 for step in steps)
    assert all(step["dropped_tokens"] >= step["dropped_samples"] and step["loss"] is not None for step in steps)
    rated = asked(folder / "notes")
    assert set(rated.values()) == {SIZE}
    assert len(rated) == len(steps) * GROUPS + sum(step["dropped_groups"] for step in steps)


@pytest.mark.parametrize(
    ("ranks", "schedule"),
    [(1, "minibatch"), pytest.param(2, "one_step_off_minibatch", marks=pytest.mark.long)],
)
def test_every_mini_batch_is_full_of_groups_that_teach(
    tmp_path: Path, policy_folder: Path, ranks: int, schedule: str
) -> None:
    steps = train(tmp_path, policy_folder, ranks=ranks, schedule=schedule)
    check(steps, tmp_path)
    totals = json.loads((tmp_path / "out" / "metrics.json").read_text())
    dropped = sum(step["dropped_samples"] for step in steps)
    assert (totals["dropped"], totals["samples"], totals["lost"]) == (dropped, 2 * GROUPS * SIZE + dropped, 0)


@pytest.mark.long  # test_trainer.py resumes such a pipeline in one process
@pytest.mark.parametrize("after", [2, 1])
def test_a_resumed_job_goes_on_behind_the_prompts_that_were_dropped(
    tmp_path: Path, policy_folder: Path, after: int
) -> None:
    train(tmp_path, policy_folder, ranks=2)
    steps = train(tmp_path, policy_folder, ranks=after, steps=3)
    assert [step["step"] for step in steps] == [1, 2, 3]
    check(steps, tmp_path)
