"""One training job: its config, its run as a process of its own, and the rewards it wrote down."""

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from rewardpool_train.pipeline.schedule import ScheduleName

JOB_SECONDS: Final = 600.0
"""After which a job is given up."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """What is run.

    Attributes:
        schedule: How rollout, reward and training overlap.
        seed: Decides prompts and sampled tokens.
        steps: Rounds.
        pool: `namespace/name`.
        policy: Folder of the model that is trained.
        prompts: File of the prompts.
    """

    schedule: ScheduleName
    seed: int
    steps: int
    pool: str
    policy: Path
    prompts: Path

    def config(self, output: Path) -> dict[str, Any]:
        """The quick start's settings, under this schedule and seed."""
        return {
            "policy": {"path": str(self.policy)},
            "data": {"prompts": str(self.prompts)},
            "reward": {"pool": self.pool},
            "rollout": {"prompts_per_step": 8, "group_size": 8, "max_new_tokens": 48},
            "update": {"groups_per_minibatch": 2, "learning_rate": 2e-4},
            "schedule": self.schedule,
            "steps": self.steps,
            "seed": self.seed,
            "output": str(output),
        }


def run(job: Job, *, python: Path, folder: Path) -> list[float]:
    """Train; returns the mean reward of each step.

    Raises:
        subprocess.CalledProcessError: The job failed; its output is in the folder's job.log.
        subprocess.TimeoutExpired: It took too long.
    """
    config = folder / "train.yaml"
    config.write_text(yaml.safe_dump(job.config(folder / "out")))
    with (folder / "job.log").open("wb") as log:
        subprocess.run(
            [python, "-m", "rewardpool_train", config],
            check=True,
            timeout=JOB_SECONDS,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    lines = (folder / "out" / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line)["reward_mean"] for line in lines]
