"""The config of a small training job on prompts of one digit, read from a file as a user's is."""

import json
from pathlib import Path
from typing import Any

import yaml

from rewardpool_train.config import TrainConfig, load_train_config


def tiny_job(folder: Path, policy_folder: Path, **sections: Any) -> TrainConfig:
    """Return the config with these sections of the file in place of its own; its files and output are in `folder`."""
    (folder / "prompts.jsonl").write_text("\n".join(json.dumps({"prompt": digit}) for digit in "123456"))
    file = folder / "train.yaml"
    own = {
        "policy": {"path": str(policy_folder)},
        "data": {"prompts": "prompts.jsonl"},
        "rollout": {"prompts_per_step": 4, "group_size": 8, "max_new_tokens": 12},
        "update": {"groups_per_minibatch": 2, "learning_rate": 1e-2, "order": "prompt"},
        "steps": 2,
        "output": "out",
    }
    file.write_text(yaml.safe_dump(own | sections))
    return load_train_config(file)
