"""The part of a verl config under `reward` about the pool, checked before the first sample. Pure.

reward.pool=rl/skywork                                            one pool
reward.rewardpool={on_failure: ..., rewards: [...]}               any of `RewardConfig`, of a part, or a mixture

Both may be there, unless the mapping says itself what scores. With neither, $REWARDPOOL_POOL or $REWARDPOOL_URL count.

actor_rollout_ref.rollout.agent.default_agent_loop=rewardpool     agent loops score, in their own process
reward.rewardpool.agent_loop=tool_agent                           what they run for it; single_turn_agent without it

reward.rewardpool.info=[acc,pred]                                 what functions return beside their score, as names
                                                                  of their own in reward_extra_info
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rewardpool._config import RewardConfig, action_for, check_pool
from rewardpool._mistakes import Mistakes
from rewardpool._rewards.config import RewardSpec, as_mapping, parse_reward, refuse_running
from rewardpool.errors import ConfigError
from rewardpool_api.contract import FAULTS

POOL_PATH = "reward.pool"
MAPPING_PATH = "reward.rewardpool"
# The name by which verl knows the agent loop that scores.
AGENT_LOOP = "rewardpool"
_AGENT_PATH = "actor_rollout_ref.rollout.agent"
# Advantage estimators that make one number of all rewards of a response, or subtract one from it.
_OUTCOME_ESTIMATORS = frozenset(
    {"grpo", "grpo_vectorized", "grpo_passk", "gdpo", "rloo", "rloo_vectorized", "opo", "gpg", "remax"}
    | {"reinforce_plus_plus_baseline"}
)
# Names of `reward_extra_info` that a function's result may not have.
OWN_NAMES = frozenset({"score", "unscored", "fault", "failure", "said"})
_SCORERS = frozenset({"pool", "url", "function", "length_penalty", "rewards"})


@dataclass(frozen=True)
class VerlSettings:
    """A checked config."""

    spec: Mapping[str, Any]
    samples: int | None = None
    """Of one rollout over all reward workers; None where the config does not say."""
    # Responses to one prompt.
    group: int | None = None
    # The config names a reward function of the user's own, which needs the pool's address.
    calls_function: bool = False
    # Agent loops score their responses themselves, rather than reward workers.
    inline: bool = False
    # verl's or the user's agent loop that writes, where `inline`.
    agent_loop: str = "single_turn_agent"
    # verl divides the samples among them: agent loop workers or reward workers.
    workers: int = 1
    # Any of them gets a trajectory that no agent loop has scored.
    reward_workers: int = 1
    # Each step of a response has its own reward.
    rewards_steps: bool = False
    # From this length on a response was cut off, if it does not end by itself.
    max_response_tokens: int | None = None
    # Keys of functions' results that verl gets under names of their own.
    info: tuple[str, ...] = ()

    @property
    def announced(self) -> dict[str, Any]:
        """Arguments of `shared_reward` for the demand."""
        return {"samples": self.samples, "group": self.group, "workers": self.workers}


def read_settings(config: Mapping[str, Any]) -> VerlSettings:
    """Check a verl trainer's whole config, as plain mappings. Raises ConfigError, which names every wrong field."""
    mistakes = Mistakes()
    reward = config.get("reward") or {}
    if (reward.get("reward_model") or {}).get("enable"):
        mistakes.add(
            "reward.reward_model.enable", "must be False: with it verl serves a reward model itself and asks no pool"
        )
    spec: dict[str, Any] = {}
    writer = by_steps = parsed = None
    info: tuple[str, ...] = ()
    with mistakes.gather():
        unchecked = pool_spec(reward.get("pool"), reward.get("rewardpool"))
        writer = unchecked.pop("agent_loop", None)
        with mistakes.gather():
            info = pop_info(unchecked, path=MAPPING_PATH)
        parsed = parse_parts(unchecked, path=MAPPING_PATH)
        by_steps = parsed.process_field
        spec = unchecked
    calls_function = bool((reward.get("custom_reward_function") or {}).get("path"))
    if calls_function:
        with mistakes.gather():
            _check_for_function(spec)
    data = config.get("data") or {}
    rollout = (config.get("actor_rollout_ref") or {}).get("rollout") or {}
    agent = rollout.get("agent") or {}
    inline = agent.get("default_agent_loop") == AGENT_LOOP
    if inline:
        with mistakes.gather():
            _check_inline(reward, writer, calls_function=calls_function)
    elif writer is not None:
        mistakes.add(
            f"{MAPPING_PATH}.agent_loop", f"is for {_AGENT_PATH}.default_agent_loop={AGENT_LOOP}, which is not set"
        )
    if by_steps is not None:
        with mistakes.gather():
            _check_steps(by_steps, config, inline=inline)
    if parsed is not None and (field := _skip_field(parsed, spec, path=MAPPING_PATH)) is not None:
        with mistakes.gather():
            _check_skip(field, config, inline=inline)
    mistakes.check()
    prompts = data.get("train_batch_size") or 0  # 0 in fully async trainers, which have no batches
    return VerlSettings(
        spec=spec,
        calls_function=calls_function,
        samples=prompts * (rollout.get("n") or 1) or None,
        group=rollout.get("n") or 1,
        inline=inline,
        agent_loop=writer or VerlSettings.agent_loop,
        rewards_steps=by_steps is not None,
        workers=(agent if inline else reward).get("num_workers") or 1,
        reward_workers=reward.get("num_workers") or 1,
        max_response_tokens=data.get("max_response_length"),
        info=info,
    )


def pop_info(spec: dict[str, Any], *, path: str) -> tuple[str, ...]:
    """Remove `info` from a spec and return its names. Raises ConfigError for no list of names, or the adapter's own."""
    info = spec.pop("info", None)
    if info is None:
        return ()
    if not isinstance(info, list | tuple) or not all(isinstance(name, str) and name for name in info):
        raise ConfigError(f"{path}.info", "must be a list of names, such as [acc, pred]")
    if taken := sorted(name for name in info if name in OWN_NAMES or name.startswith("component/")):
        raise ConfigError(f"{path}.info", f"must not have {taken[0]}, which the reward manager itself writes")
    return tuple(info)


def plain_config(config: Any) -> dict[str, Any]:
    """The parts of a trainer's OmegaConf that count here; others may refer to what only the trainer can resolve."""
    from omegaconf import OmegaConf  # verl has it; this module can be imported without verl

    rollout = {
        "n": OmegaConf.select(config, "actor_rollout_ref.rollout.n"),
        "agent": {
            name: OmegaConf.select(config, f"{_AGENT_PATH}.{name}") for name in ("default_agent_loop", "num_workers")
        },
    }
    return {
        "reward": OmegaConf.to_container(config.reward, resolve=True),
        "data": {
            name: OmegaConf.select(config, f"data.{name}") for name in ("train_batch_size", "max_response_length")
        },
        "actor_rollout_ref": {"rollout": rollout},
        "algorithm": {
            name: OmegaConf.select(config, f"algorithm.{name}") for name in ("adv_estimator", "use_kl_in_reward")
        },
        "trainer": {"use_v1": OmegaConf.select(config, "trainer.use_v1", default=True)},
        **{name: OmegaConf.select(config, name) is not None for name in ("async_training", "rollout")},
    }


def pool_spec(
    pool: Any,
    mapping: Any,
    *,
    pool_path: str = POOL_PATH,
    mapping_path: str = MAPPING_PATH,
) -> dict[str, Any]:
    """The two keys as one spec, which `parse_parts` checks.

    Args:
        pool: `namespace/name`, a URL or `python://module:function`; or None.
        mapping: The other key's value, or None.

    Raises:
        ConfigError: One of them is nothing that can be a spec, or they contradict each other.
    """
    spec = {} if mapping is None else mapping
    if not isinstance(spec, Mapping):
        raise ConfigError(mapping_path, "must be a mapping, such as {timeout: 60}")
    if pool is not None:
        if said := sorted(_SCORERS & set(spec)):
            raise ConfigError(
                f"{mapping_path}.{said[0]}", f"says what scores, and so does {pool_path}; leave one of them out"
            )
        fields = as_mapping(str(pool), path=pool_path)
        try:
            if "pool" in fields:
                check_pool(fields["pool"])
            spec = {**fields, **spec}
        except ValueError as error:
            raise ConfigError(pool_path, str(error)) from error
    return dict(spec)


def parse_parts(spec: Mapping[str, Any], *, path: str) -> RewardSpec:
    """Return a checked spec for `open_reward`. Raises ConfigError, which names every wrong field."""
    parsed = parse_reward(spec, path=path)
    refuse_running(parsed)
    return parsed


def refuse_skip(parsed: RewardSpec, spec: Mapping[str, Any], *, path: str) -> None:
    """Raise ConfigError where a failure leaves a response without a number, which verl takes from reward workers."""
    if (field := _skip_field(parsed, spec, path=path)) is not None:
        raise _takes_numbers(field)


def _skip_field(parsed: RewardSpec, spec: Mapping[str, Any], *, path: str) -> str | None:
    """Return the path of the first failure policy `skip`."""
    for part, place in zip(parsed.parts, parsed.paths, strict=True):
        if any(action_for(part.on_failure, fault) == "skip" for fault in FAULTS):
            return f"{path if 'on_failure' in spec else place}.on_failure"
    return None


def _takes_numbers(field: str) -> ConfigError:
    return ConfigError(
        field,
        "must not be skip here: verl takes a number for every sample from reward workers, and NaN would spoil the"
        " advantages of the sample's whole group; leave it out (raise), or score in the agent loop with"
        f" {_AGENT_PATH}.default_agent_loop={AGENT_LOOP} and trainer.use_v1=True, where verl goes on without it",
    )


def _check_skip(field: str, config: Mapping[str, Any], *, inline: bool) -> None:
    """Check that the trainer goes on without a trajectory for which the agent loop returns nothing."""
    v1 = (config.get("trainer") or {}).get("use_v1", True)
    if not inline or not v1 or any(config.get(section) for section in ("async_training", "rollout")):
        raise _takes_numbers(field)


def _check_for_function(spec: Mapping[str, Any]) -> None:
    """A function is given the pool's address and its model's tokenizer; what becomes of a sample is its own affair."""
    if "on_failure" in spec:
        raise ConfigError(
            f"{MAPPING_PATH}.on_failure", "does not go with custom_reward_function, which decides that itself"
        )
    RewardConfig.parse({name: value for name, value in spec.items() if name != "tokenizer"}, path=MAPPING_PATH)


def _check_inline(reward: Mapping[str, Any], writer: Any, *, calls_function: bool) -> None:
    if calls_function:
        raise ConfigError(
            f"{_AGENT_PATH}.default_agent_loop",
            f"must not be {AGENT_LOOP} with a custom_reward_function, which verl calls in its reward workers",
        )
    name = (reward.get("reward_manager") or {}).get("name")
    if name != AGENT_LOOP:
        raise ConfigError(
            "reward.reward_manager.name",
            f"must be {AGENT_LOOP}, not {name}: rows of the data set that name another agent_name are scored by it",
        )
    if writer is not None and (not isinstance(writer, str) or writer in ("", AGENT_LOOP)):
        raise ConfigError(f"{MAPPING_PATH}.agent_loop", "must be the name of another agent loop, such as tool_agent")


def _check_steps(field: str, config: Mapping[str, Any], *, inline: bool) -> None:
    """Check that verl takes a reward for each step of a response, and does not make one number of them."""
    algorithm, trainer = config.get("algorithm") or {}, config.get("trainer") or {}
    if not inline:
        raise ConfigError(
            field,
            f"process needs {_AGENT_PATH}.default_agent_loop={AGENT_LOOP}: verl takes one number from reward workers",
        )
    if not trainer.get("use_v1", True):
        raise ConfigError("trainer.use_v1", f"must be True with {field}=process: older trainers take one number")
    for section in ("async_training", "rollout"):  # of mains that have trainers of their own
        if config.get(section):
            raise ConfigError(
                field,
                f"process is for verl.trainer.main_ppo: the trainer that reads {section} takes one number for a"
                " response; trainer.v1.trainer_mode=separate_async is the asynchronous one that does not",
            )
    if algorithm.get("adv_estimator") in _OUTCOME_ESTIMATORS:
        raise ConfigError(
            "algorithm.adv_estimator",
            f"{algorithm['adv_estimator']} adds up the rewards of a response; with {field}=process set it to"
            " rewardpool_process_grpo, or to one that goes by tokens, such as gae",
        )
    if algorithm.get("adv_estimator") == "rewardpool_process_grpo" and algorithm.get("use_kl_in_reward"):
        raise ConfigError(
            "algorithm.use_kl_in_reward",
            "must be False with rewardpool_process_grpo, to which each token with a penalty would be a step; set"
            " actor_rollout_ref.actor.use_kl_loss instead",
        )
