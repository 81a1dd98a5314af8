"""Load the policy's weights from its folder.

A sharded policy only exists as a whole on rank 0, in main memory. The other ranks know its shapes, and get their share
of each weight from there (`fsdp.shard`), so neither a GPU nor the machine holds it once per rank.
"""

from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig

from rewardpool.errors import ConfigError
from rewardpool_train.actor.ranks import Ranks

FIELD = "policy.path"


def load_policy(path: Path, *, dtype: torch.dtype) -> Any:
    """Load a causal language model into main memory.

    Raises:
        ConfigError: transformers cannot load it.
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
    with ranks.synchronized():
        model = load_policy(path, dtype=torch.float32) if ranks.first else _without_weights(path)
    shapes = {name: tuple(weight.shape) for name, weight in model.named_parameters()}
    of_first = ranks.broadcast(shapes)
    with ranks.synchronized():
        if of_first != shapes:
            raise ConfigError(FIELD, "its weights are not those that its config.json says; save it with transformers")
    return model


def end_token_ids(path: Path, tokenizer: Any) -> list[int]:
    """Return the ids of all tokens that end a response, in ascending order.

    They are those of the generation config (or of the model's config, if there is none) and of the tokenizer. Some
    models end a turn with another token than a text: Gemma with `<end_of_turn>`, which its tokenizer does not name.

    Raises:
        ConfigError: The files cannot be read, or name no such token.
    """
    try:
        if (path / "generation_config.json").exists():
            generation = GenerationConfig.from_pretrained(path)
        else:
            generation = GenerationConfig.from_model_config(AutoConfig.from_pretrained(path))
    except (OSError, ValueError) as error:
        raise ConfigError(FIELD, f"transformers cannot read its generation config: {error}") from error
    named = generation.eos_token_id
    ids = {*(named if isinstance(named, list) else [named]), tokenizer.eos_token_id} - {None}
    if not ids:
        raise ConfigError(FIELD, "no token ends a response; set eos_token_id in its generation_config.json")
    return sorted(int(one) for one in ids)


def _without_weights(path: Path) -> Any:
    try:
        config = AutoConfig.from_pretrained(path)
        with torch.device("meta"):
            return AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    except (OSError, ValueError) as error:
        raise ConfigError(FIELD, f"transformers cannot load it: {error}") from error
