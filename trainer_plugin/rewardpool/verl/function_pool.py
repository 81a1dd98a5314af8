"""A pool as verl's reward functions know a reward model: by an address and a tokenizer.

reward.custom_reward_function.path=judge.py reward.reward_manager.name=rewardpool +reward.pool=rl/judge

Then `compute_score` in judge.py has `reward_router_address` and `reward_model_tokenizer` among its arguments, as if
verl served the model itself.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from rewardpool._client.pool import Pool
from rewardpool._client.threads.shared import shared
from rewardpool._config import RewardConfig
from rewardpool._demand.bursts import Bursts
from rewardpool._discovery.endpoint import Endpoint
from rewardpool._rewards.chat.chat_template import load_tokenizer
from rewardpool._rewards.discriminative import model_source
from rewardpool.errors import ConfigError, FunctionFailedError
from rewardpool.verl.announced import announced_bursts
from rewardpool.verl.local_proxy import open_door
from rewardpool_runtime.json_values import finite, shown


@dataclass(frozen=True)
class FunctionPool:
    """A pool as a reward function receives it."""

    address: str
    tokenizer: Any
    """The model's; None where it is not known which model is served, or that is a function."""
    # Called for every sample, which may cost any number of requests.
    bursts: Bursts


async def shared_function_pool(spec: Mapping[str, Any], *, path: str, workers: int) -> FunctionPool:
    """The pool of a spec, open on this event loop.

    Raises:
        ConfigError: The tokenizer cannot be loaded.
        PoolError: The pool cannot be used.
    """

    @asynccontextmanager
    async def opening() -> AsyncIterator[FunctionPool]:
        client = {name: value for name, value in spec.items() if name != "tokenizer"}
        async with Pool(RewardConfig.parse(client, path=path)) as pool, open_door(pool) as address:
            tokenizer = await _tokenizer(spec.get("tokenizer"), pool.endpoint, field=f"{path}.tokenizer")
            yield FunctionPool(address, tokenizer, announced_bursts([(pool, None)], workers=workers))

    return await shared().get(f"function {json.dumps(spec, sort_keys=True, default=repr)}", opening)


def checked_result(result: dict[str, Any]) -> dict[str, Any]:
    """Return a function's result. Raises FunctionFailedError unless the reward is finite: verl would train on it."""
    score = result["reward_score"]
    if finite(score) is None:  # numpy's and torch's numbers, as verl takes them
        raise FunctionFailedError("(of verl)", f"the reward function gave {shown(score)}, which is not a finite number")
    return result


async def _tokenizer(source: str | None, endpoint: Endpoint, *, field: str) -> Any:
    revision = None
    if source is None:
        if endpoint.model_type == "Function":
            return None
        try:
            source, revision = model_source(endpoint, next(iter(endpoint.revisions), None), field=field)
        except ConfigError:  # it is not known, and many functions do without
            return None
    return await asyncio.to_thread(load_tokenizer, source, revision=revision, field=field)
