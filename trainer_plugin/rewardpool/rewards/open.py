"""The one way in for every adapter: from a few lines of a config to a reward that is ready to rate."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from rewardpool.rewards.reward import Reward


@asynccontextmanager
async def open_reward(
    spec: str | Mapping[str, Any], *, tokenizer: Any = None, path: str = "reward", **overrides: Any
) -> AsyncIterator[Reward]:
    """Find the pools, load tokenizers and functions, and yield the reward; closed with the `async with` block.

    Args:
        spec: `namespace/name` of a pool; a mapping with the fields of `RewardConfig`; or one with `rewards`, the parts
            of a mixture.
        tokenizer: A loaded tokenizer of the reward model, instead of the one that the config or the pool names.
        path: Where `spec` stands in the trainer's config, for messages.
        overrides: Fields of `RewardConfig` that win over those of `spec`.

    Raises:
        ConfigError: A field is wrong; the message has its path.
        PoolError: A pool cannot be used.
    """
    raise NotImplementedError
    yield
