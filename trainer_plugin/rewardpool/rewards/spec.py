"""From what a config says under `reward` to the parts of a reward; wrong fields are named by their whole path.

"rl/skywork"                                   one pool
{"reward_pool": "rl/skywork", ...}             one pool, with fields of RewardConfig and of PoolPart
{"function": "pkg.mod:fn", ...}                one function
{"rewards": [{...}, {...}], "combine": ...}    several; fields of RewardConfig beside them hold for every pool
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from rewardpool.config import FailurePolicy, RewardConfig, config_error
from rewardpool.errors import ConfigError
from rewardpool.rewards.parts import FunctionPart, LengthPenaltyPart, Part, PoolPart, UserFunction

MAX_PARTS = 64
_SHARED_FIELDS = frozenset(RewardConfig.model_fields) - {
    "reward_pool",
    "url",
    "key_file",
    "ca_file",
    "served_name",
    "adapter",
}
"""Fields of RewardConfig that may stand beside `rewards`: not those that say which pool."""

M = TypeVar("M", bound=BaseModel)


class Mixing(BaseModel):
    """How parts become one total."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    combine: Literal["sum", "product", "gate"] = "sum"
    """`sum` of the weighted scores, their `product`, or `gate`: if all gates open, the sum of those that are none."""
    post_process: UserFunction | None = None
    """`module:function` from the ratings of a group to their totals, a list of float or None."""


class RewardSpec(Mixing):
    """A checked reward."""

    parts: Annotated[tuple[Part, ...], Field(min_length=1, max_length=MAX_PARTS)]
    """In the order of the config."""
    paths: tuple[str, ...]
    """Where each stands in the config."""

    @property
    def process_field(self) -> str | None:
        """Path of the field by which each step of a response has a reward; None where the whole response has one."""
        for part, path in zip(self.parts, self.paths, strict=True):
            if isinstance(part, PoolPart) and part.supervision == "process":
                return f"{path}.supervision"
        return None

    @model_validator(mode="after")
    def _gates_and_combine_agree(self) -> Self:
        gates = [part.gate is not None for part in self.parts]
        if self.combine == "gate" and (not any(gates) or all(gates)):
            raise ValueError("combine gate takes at least one part with gate, and at least one without")
        if self.combine != "gate" and any(gates):
            raise ValueError("a part has gate, so set combine to gate")
        return self


def parse_reward(spec: str | Mapping[str, Any], *, path: str = "reward") -> RewardSpec:
    """Check a config's reward, of which `path` is the place in the config.

    Raises:
        ConfigError: Names the first wrong field by its whole path.
    """
    if isinstance(spec, str):
        return _checked_spec([_pool_part({"reward_pool": spec}, path=path)], [path], {}, path=path)
    if not isinstance(spec, Mapping):
        raise ConfigError(path, "must be namespace/name of a RewardPool, or a mapping")
    if "rewards" not in spec:
        mixing = {key: value for key, value in spec.items() if key == "post_process"}
        own = {key: value for key, value in spec.items() if key not in mixing}
        return _checked_spec([_part(own, path=path, pool_field="reward_pool")], [path], mixing, path=path)
    return _parse_mixture(spec, path=path)


def refuse_running(spec: RewardSpec) -> None:
    """See to it that no part goes by the steps of a job, where nobody tells the reward of them.

    Raises:
        ConfigError: One does.
    """
    for part, path in zip(spec.parts, spec.paths, strict=True):
        if part.normalize == "running":
            raise without_steps(f"{path}.normalize")


def refuse_process(spec: RewardSpec, *, who: str) -> None:
    """See to it that no part rewards steps, where the trainer takes one number for a response.

    Args:
        spec: A checked reward.
        who: Takes one number, for the message.

    Raises:
        ConfigError: One does.
    """
    if spec.process_field is not None:
        raise ConfigError(
            spec.process_field,
            f"must be outcome: {who} takes one number for a response, and the rewards of its steps would be lost; leave"
            " it out, or train with rewardpool_train or verl",
        )


def without_steps(field: str) -> ConfigError:
    """What is wrong with `normalize: running` in that field, where nobody tells the reward of a job's steps."""
    return ConfigError(
        field,
        "must not be running here: it goes by the scores of earlier steps, the same in all processes and kept in the "
        "job's checkpoint, and samples come here without a step; set {mean: x, std: y} to what the part's scores had "
        "in a run before, or train with rewardpool_train",
    )


def _parse_mixture(spec: Mapping[str, Any], *, path: str) -> RewardSpec:
    mixing = {key: spec[key] for key in Mixing.model_fields if key in spec}
    shared = {key: value for key, value in spec.items() if key not in mixing and key != "rewards"}
    if misplaced := sorted(set(shared) - _SHARED_FIELDS):
        raise ConfigError(f"{path}.{misplaced[0]}", "does not go with rewards; it belongs into one of them, or nowhere")
    rewards = spec["rewards"]
    if not isinstance(rewards, Sequence) or isinstance(rewards, str) or not rewards:
        raise ConfigError(f"{path}.rewards", "must be a list with at least one part")
    # Checked for their own sake, so that a mistake in them is named where it is.
    RewardConfig.parse(shared, path=path)
    paths = [f"{path}.rewards[{index}]" for index in range(len(rewards))]
    parts = [_part(raw, path=place, shared=shared) for raw, place in zip(rewards, paths, strict=True)]
    return _checked_spec(parts, paths, mixing, path=path)


def _checked_spec(parts: list[Part], paths: list[str], mixing: Mapping[str, Any], *, path: str) -> RewardSpec:
    taken: dict[str, str] = {}
    for part, place in zip(parts, paths, strict=True):
        if part.name in taken:
            raise ConfigError(f"{place}.name", f"{part.name} is the name of {taken[part.name]} already; set another")
        taken[part.name] = place
    spec = _checked(RewardSpec, {**mixing, "parts": tuple(parts), "paths": tuple(paths)}, path=path)
    if spec.process_field is not None and (len(parts) > 1 or spec.post_process is not None):
        raise ConfigError(
            spec.process_field,
            "must be outcome beside other parts and with post_process, which make one number of a response; leave it"
            " out, or make this part the whole reward",
        )
    return spec


def _part(raw: Any, *, path: str, shared: Mapping[str, Any] | None = None, pool_field: str = "pool") -> Part:
    if not isinstance(raw, Mapping):
        raise ConfigError(path, "must be a mapping with pool, function or length_penalty")
    kinds = [kind for kind in ("function", "length_penalty") if kind in raw]
    if len(kinds) > 1 or (kinds and (pool_field in raw or "url" in raw)):
        raise ConfigError(path, f"is several things at once; give it one of {pool_field}, function and length_penalty")
    shared = shared or {}
    policy: FailurePolicy = shared.get("on_failure", "raise")
    match kinds:
        case ["function"]:
            function = raw["function"]
            name = (
                function.rpartition(":")[2] if isinstance(function, str) else getattr(function, "__name__", "function")
            )
            return _checked(FunctionPart, {"name": name, "on_failure": policy, **raw}, path=path)
        case ["length_penalty"]:
            return _checked(LengthPenaltyPart, {"name": "length_penalty", "on_failure": policy, **raw}, path=path)
        case _:
            if pool_field == "pool" and "pool" not in raw and "url" not in raw:
                raise ConfigError(path, "needs one of pool, function and length_penalty")
            return _pool_part({**shared, **raw}, path=path, pool_field=pool_field)


def _pool_part(raw: Mapping[str, Any], *, path: str, pool_field: str = "reward_pool") -> PoolPart:
    own = {key: value for key, value in raw.items() if key in PoolPart.model_fields and key != "client"}
    found_by = {"reward_pool" if key == pool_field else key: value for key, value in raw.items() if key not in own}
    if pool_field != "reward_pool" and "reward_pool" in raw:
        raise ConfigError(f"{path}.reward_pool", f"is called {pool_field} here")
    try:
        client = RewardConfig.parse(found_by, path=path)
    except ConfigError as error:
        raise ConfigError(error.field.replace(f"{path}.reward_pool", f"{path}.{pool_field}"), error.problem) from error
    pool = client.reward_pool
    name = pool.partition("/")[2] if pool else "pool"
    # on_failure is the part's, so that every kind of part has the same policies; the client only raises.
    return _checked(PoolPart, {"name": name, "client": client, **own}, path=path)


def _checked(model: type[M], raw: Mapping[str, Any], *, path: str) -> M:
    try:
        return model.model_validate(dict(raw))
    except ValidationError as error:
        raise config_error(error, path=path) from error
