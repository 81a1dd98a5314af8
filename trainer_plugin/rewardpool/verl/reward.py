"""Pool as a custom reward function, for a trainer that keeps another reward manager of verl's.

reward.custom_reward_function.path=pkg://rewardpool.verl.reward
+reward.custom_reward_function.reward_kwargs.pool=rl/skywork

verl gives a function no prompt: a reward model or a judge sees the question that the data set has in `extra_info`.
"""

import time
from collections.abc import Mapping
from typing import Any

from rewardpool._deadline import waited
from rewardpool._gateway.wire import reads_prompts
from rewardpool._rewards import Episode
from rewardpool._rewards.config import refuse_process
from rewardpool._rewards.episode import read_extra_info
from rewardpool.errors import ConfigError
from rewardpool.verl.announced import shared_reward
from rewardpool.verl.result import score_and_extra_info
from rewardpool.verl.rollout import SINGLE_TURN, plain
from rewardpool.verl.settings import parse_parts, pool_spec, pop_info, refuse_skip

PATH = "reward.custom_reward_function.reward_kwargs"


async def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: Mapping[str, Any] | None = None,
    *,
    pool: str | None = None,
    rewardpool: Mapping[str, Any] | None = None,
    prompt_key: str = "question",
    **_of_verl: Any,
) -> dict[str, Any]:
    """Rate one response; verl calls it.

    Args:
        solution_str: The response.
        pool: `namespace/name` of a pool.
        rewardpool: Further settings, or a mixture, as under `reward.rewardpool`.
        prompt_key: Name in `extra_info` of the question, a text or chat messages.
        _of_verl: What verl gives to functions that use a model it serves itself; not used.

    Returns:
        `score`, a finite float, and beside it the same names for every sample.

    Raises:
        SampleError: It has no score, and the failure policy is `raise`.
        PoolError: A pool cannot be used.
        ConfigError: The settings are wrong, the question is not where `prompt_key` says, or a model would read a
            response that has several turns.
    """
    spec = pool_spec(pool, _mapping(rewardpool), pool_path=f"{PATH}.pool", mapping_path=f"{PATH}.rewardpool")
    info = pop_info(spec, path=f"{PATH}.rewardpool")
    parsed = parse_parts(spec, path=f"{PATH}.rewardpool")
    refuse_process(parsed, who="verl's reward function")
    refuse_skip(parsed, spec, path=f"{PATH}.rewardpool")
    began = time.monotonic()
    reward = await shared_reward(spec, path=f"{PATH}.rewardpool")
    opening_seconds = time.monotonic() - began
    extra = {str(name): plain(value) for name, value in read_extra_info(extra_info, label="(of verl)").items()}
    if reads_prompts(reward.pools.values()):
        check_readable(extra, prompt_key)
    episode = Episode(
        prompt=extra.get(prompt_key, ""),
        response=solution_str,
        ground_truth=plain(ground_truth),
        data_source=data_source,
        extra_info=extra,
    )
    with waited(opening_seconds):
        rating = await reward.rate(episode)
    _, result = score_and_extra_info(rating, label=episode.label, info=info)
    return result


def check_readable(extra: Mapping[str, Any], prompt_key: str) -> None:
    """Check that a model can be shown the turns of a conversation. Raises ConfigError."""
    if prompt_key not in extra:
        raise ConfigError(
            f"{PATH}.prompt_key", f"names {prompt_key!r}, which extra_info lacks: it has {', '.join(sorted(extra))}"
        )
    if int(extra.get("num_turns") or 0) > SINGLE_TURN:
        raise ConfigError(
            "reward.reward_manager.name",
            "must be rewardpool where responses have several turns: verl gives a function all of them as one text, and"
            " a model would read what tools say as the policy's own words",
        )


def _mapping(value: Any) -> Any:
    """Hydra's mappings as plain ones."""
    from omegaconf import OmegaConf  # verl has it; this module can be imported without verl

    return OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value
