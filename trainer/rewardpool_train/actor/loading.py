"""The policy's weights, from its folder to where they are trained and sampled.

A policy that is sharded exists whole on rank 0 alone, in main memory. The other ranks know its shape, and get their
share of each weight from there (`fsdp.shard`), so that neither a GPU nor the machine holds it once per rank.
"""

from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from rewardpool.errors import ConfigError
from rewardpool_train.actor.ranks import Ranks

FIELD = "policy.path"


def load_policy(path: Path, *, dtype: torch.dtype) -> Any:
    """Load a causal language model into main memory.

    Raises:
        ConfigError: transformers cannot.
    """
    try:
        return AutoModelForCausalLM.from_pretrained(path, dtype=dtype)
    except (OSError, ValueError) as error:
        raise ConfigError(FIELD, f"transformers cannot load it: {error}") from error


def load_to_shard(path: Path, *, ranks: Ranks) -> Any:
    """Load a causal language model for `fsdp.shard`: in float32 on rank 0, without weights on the others.

    All ranks call this together.

    Raises:
        ConfigError: transformers cannot load it.
        OtherRankError: Another rank cannot.
    """
    model: Any = None
    with ranks.together():
        model = load_policy(path, dtype=torch.float32) if ranks.first else _without_weights(path)
    shapes = {name: tuple(weight.shape) for name, weight in model.named_parameters()}
    of_first = ranks.from_first(shapes)
    with ranks.together():
        if of_first != shapes:
            raise ConfigError(FIELD, "its weights are not those that its config.json says; save it with transformers")
    return model


def _without_weights(path: Path) -> Any:
    try:
        config = AutoConfig.from_pretrained(path)
        with torch.device("meta"):
            return AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    except (OSError, ValueError) as error:
        raise ConfigError(FIELD, f"transformers cannot load it: {error}") from error
