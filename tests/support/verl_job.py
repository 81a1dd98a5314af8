"""What a verl trainer hands to its reward workers: its own config, from the command line's overrides, and batches."""

from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import torch
from hydra import compose, initialize_config_dir
from support.tiny_policy import END, PAD
from tensordict import TensorDict
from verl import DataProto
from verl.experimental.reward_loop import migrate_legacy_reward_impl

PROMPT_TOKENS = 4
RESPONSE_TOKENS = 8


def verl_config(tokenizer: Path, *overrides: str) -> Any:
    """verl's whole config, as `python -m verl.trainer.main_ppo` makes it of these overrides."""
    own = [
        f"actor_rollout_ref.model.path={tokenizer}",
        "reward.num_workers=2",
        f"data.max_response_length={RESPONSE_TOKENS}",
    ]
    with initialize_config_dir(str(resources.files("verl") / "trainer" / "config"), version_base=None):
        return migrate_legacy_reward_impl(compose("ppo_trainer", overrides=[*own, *overrides]))


def batch_of(responses: Sequence[str], *, seconds: float = 0.0, uid: str = "group-1") -> DataProto:
    """Finished rollouts of one prompt, digits all of them: prompts padded on the left, responses on the right."""
    rows = [_row(response) for response in responses]
    tensors = {name: torch.tensor([row[name] for row in rows]) for name in rows[0]}
    others: dict[str, Sequence[Any]] = {
        "raw_prompt": [[{"role": "user", "content": "12"}] for _ in rows],
        "data_source": ["digits"] * len(rows),
        "reward_model": [{"ground_truth": "7", "style": "rule"} for _ in rows],
        "extra_info": [{"index": np.int64(number), "seconds": seconds} for number in range(len(rows))],
        "uid": [uid] * len(rows),
        "__num_turns__": [2] * len(rows),
    }
    return DataProto(
        batch=TensorDict(tensors, batch_size=len(rows)),
        non_tensor_batch={name: _objects(values) for name, values in others.items()},
    )


def _row(response: str) -> dict[str, list[int]]:
    written = [*map(int, response), END]
    padding = RESPONSE_TOKENS - len(written)
    prompt = [PAD] * (PROMPT_TOKENS - 2) + [1, 2]
    responses = written + [PAD] * padding
    return {
        "prompts": prompt,
        "responses": responses,
        "input_ids": prompt + responses,
        "attention_mask": [0] * (PROMPT_TOKENS - 2) + [1, 1] + [1] * len(written) + [0] * padding,
    }


def _objects(values: Sequence[Any]) -> Any:
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array
