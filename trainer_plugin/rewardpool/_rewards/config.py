"""Parsing of a config's `reward` into the parts of a reward; all wrong fields are named, by their whole path.

"rl/skywork", "https://router:30000"           one pool
{"pool": "rl/skywork", ...}                    the same, with fields of RewardConfig and of PoolPart
"python://pkg.mod:fn", fn                      one function
{"function": "pkg.mod:fn", ...}                the same, with fields of FunctionPart
{"rewards": [..., ...], "combine": ...}        several of these; fields of RewardConfig beside them hold for every pool
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from rewardpool._config import FailurePolicy, RewardConfig, action_for, pool_fields
from rewardpool._mistakes import Mistakes, unknown_key, validated
from rewardpool._rewards.ledger.config import LedgerField
from rewardpool._rewards.part_config import FunctionPart, LengthPenaltyPart, Part, PoolPart, UserFunction
from rewardpool.errors import ConfigError
from rewardpool_api.contract import FAULTS
from rewardpool_api.source import FUNCTION_SCHEME
from rewardpool_runtime.json_values import described

MAX_PARTS = 64
# Characters of a part's name.
MAX_NAME = 100
# Fields of RewardConfig that may stand beside `rewards`: not those that choose the pool.
_SHARED_FIELDS = frozenset(RewardConfig.model_fields) - {
    "pool",
    "url",
    "key_file",
    "ca_file",
    "served_name",
    "adapter",
}
# Fields of `Mixing` that mean something for a reward of one part.
_BESIDE_ONE_PART = frozenset({"post_process", "ledger"})
_POOL_PART_KEYS = frozenset(PoolPart.model_fields) - {"client"}
_KEYS = (
    _POOL_PART_KEYS
    | frozenset(RewardConfig.model_fields)
    | frozenset(FunctionPart.model_fields)
    | {"length_penalty"}
    | _BESIDE_ONE_PART
)


class Mixing(BaseModel):
    """Combination of parts to one total."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    combine: Literal["sum", "product", "gate"] = "sum"
    """`sum` of the weighted scores, their `product`, or `gate`: if all gates open, the sum of those that are none."""
    post_process: UserFunction | None = None
    """`module:function` from the ratings of a group to their totals, a list of float or None."""
    ledger: LedgerField | None = None
    """Keeps a record of each score: a folder, or a mapping with the fields of a ledger. Default: nothing is kept."""


class RewardSpec(Mixing):
    """A checked reward."""

    parts: Annotated[tuple[Part, ...], Field(min_length=1, max_length=MAX_PARTS)]
    paths: tuple[str, ...]

    @property
    def process_field(self) -> str | None:
        """Path of the field by which each step of a response has a reward; None where the whole response has one."""
        for part, path in zip(self.parts, self.paths, strict=True):
            if isinstance(part, PoolPart) and part.supervision == "process":
                return f"{path}.supervision"
        return None

    @property
    def may_leave_unscored(self) -> bool:
        """True if the failure policy of a part leaves responses without a total."""
        return any(action_for(part.on_failure, fault) == "skip" for part in self.parts for fault in FAULTS)

    @model_validator(mode="after")
    def _gates_and_combine_agree(self) -> Self:
        gates = [part.gate is not None for part in self.parts]
        if self.combine == "gate" and (not any(gates) or all(gates)):
            raise ValueError("combine gate takes at least one part with gate, and at least one without")
        if self.combine != "gate" and any(gates):
            raise ValueError("a part has gate, so set combine to gate")
        return self


# Forms in which a reward may be written; see this module's text.
RewardLike = str | Callable[..., Any] | Mapping[str, Any]


def as_mapping(reward: RewardLike, *, path: str = "reward") -> Mapping[str, Any]:
    """Return a reward as its fields. Raises ConfigError where it is of no kind that can be one."""
    if isinstance(reward, Mapping):
        return reward
    if isinstance(reward, str):
        function = reward.removeprefix(FUNCTION_SCHEME)
        return pool_fields(reward) if function == reward else {"function": function}
    if callable(reward):
        return {"function": reward}
    raise ConfigError(
        path,
        f"must be namespace/name of a RewardPool, a URL, {FUNCTION_SCHEME}module:function, a function, or a mapping,"
        f" not {described(reward)}",
    )


def parse_reward(spec: RewardLike, *, path: str = "reward") -> RewardSpec:
    """Check a config's reward, whose place there is `path`. Raises ConfigError, which names every wrong field."""
    spec = as_mapping(spec, path=path)
    if "rewards" not in spec:
        mixing = {key: value for key, value in spec.items() if key in _BESIDE_ONE_PART}
        own = {key: value for key, value in spec.items() if key not in mixing}
        return _checked_spec([_part(own, path=path, is_whole=True)], [path], mixing, path=path)
    return _parse_mixture(spec, path=path)


def refuse_running(spec: RewardSpec) -> None:
    """Raise ConfigError for a part that depends on the steps of a job, where the reward does not know them."""
    for part, path in zip(spec.parts, spec.paths, strict=True):
        if part.normalize == "running":
            raise without_steps(f"{path}.normalize")


def refuse_process(spec: RewardSpec, *, who: str) -> None:
    """Raise ConfigError for a part that rewards steps, where `who`, the trainer, takes one number for a response."""
    if spec.process_field is not None:
        raise ConfigError(
            spec.process_field,
            f"must be outcome: {who} takes one number for a response, and the rewards of its steps would be lost; leave"
            " it out, or train with rewardpool_train or verl",
        )


def without_steps(field: str) -> ConfigError:
    return ConfigError(
        field,
        "must not be running here: it goes by the scores of earlier steps, the same in all processes and kept in the "
        "job's checkpoint, and samples come here without a step; set {mean: x, std: y} to what the part's scores had "
        "in a run before, or train with rewardpool_train",
    )


def _parse_mixture(spec: Mapping[str, Any], *, path: str) -> RewardSpec:
    mixing = {key: spec[key] for key in Mixing.model_fields if key in spec}
    shared = {key: value for key, value in spec.items() if key not in mixing and key != "rewards"}
    mistakes = Mistakes()
    for key in [key for key in shared if key not in _SHARED_FIELDS]:
        del shared[key]
        mistakes.add(f"{path}.{key}", _misplaced(key))
    # Checked for their own sake, so that a mistake in them is named where it is, and once.
    with mistakes.gather():
        RewardConfig.parse(shared, path=path)
    if mistakes:
        shared = {}
    rewards = spec["rewards"]
    if not isinstance(rewards, Sequence) or isinstance(rewards, str) or not rewards:
        rewards = []
        mistakes.add(f"{path}.rewards", "must be a list with at least one part")
    paths = [f"{path}.rewards[{index}]" for index in range(len(rewards))]
    parts = []
    for raw, place in zip(rewards, paths, strict=True):
        with mistakes.gather():
            parts.append(_part(as_mapping(raw, path=place), path=place, shared=shared))
    if len(parts) < len(paths) or not parts:
        with mistakes.gather():
            validated(Mixing, mixing, path=path)
    else:
        with mistakes.gather():
            checked = _checked_spec(parts, paths, mixing, path=path)
    mistakes.check()
    return checked


def _misplaced(key: str) -> str:
    if key in _KEYS:
        return "does not go with rewards; it belongs into one of them, or nowhere"
    return unknown_key(key, {"rewards", *Mixing.model_fields, *_SHARED_FIELDS})


def _checked_spec(parts: list[Part], paths: list[str], mixing: Mapping[str, Any], *, path: str) -> RewardSpec:
    taken: dict[str, str] = {}
    for part, place in zip(parts, paths, strict=True):
        if part.name in taken:
            raise ConfigError(f"{place}.name", f"{part.name} is the name of {taken[part.name]} already; set another")
        taken[part.name] = place
    spec = validated(RewardSpec, {**mixing, "parts": tuple(parts), "paths": tuple(paths)}, path=path)
    if spec.process_field is not None and (len(parts) > 1 or spec.post_process is not None):
        raise ConfigError(
            spec.process_field,
            "must be outcome beside other parts and with post_process, which make one number of a response; leave it"
            " out, or make this part the whole reward",
        )
    return spec


def _part(
    raw: Mapping[str, Any], *, path: str, shared: Mapping[str, Any] | None = None, is_whole: bool = False
) -> Part:
    """Check one part; the whole reward may leave it to the environment which pool it is."""
    kinds = [kind for kind in ("function", "length_penalty") if kind in raw]
    if len(kinds) > 1 or (kinds and ("pool" in raw or "url" in raw)):
        raise ConfigError(path, "is several things at once; give it one of pool, function and length_penalty")
    shared = shared or {}
    policy: FailurePolicy = shared.get("on_failure", "raise")
    match kinds:
        case ["function"]:
            return validated(
                FunctionPart, {"name": _function_name(raw["function"]), "on_failure": policy, **raw}, path=path
            )
        case ["length_penalty"]:
            return validated(LengthPenaltyPart, {"name": "length_penalty", "on_failure": policy, **raw}, path=path)
        case _:
            if not is_whole and "pool" not in raw and "url" not in raw:
                raise ConfigError(path, "needs one of pool, function and length_penalty")
            return _pool_part({**shared, **raw}, path=path)


def _function_name(function: Any) -> str:
    """Return the part's name for a function: its own, without what no part's name has, as in `<lambda>`."""
    own = function.rpartition(":")[2] if isinstance(function, str) else getattr(function, "__name__", "")
    return re.sub(r"[^A-Za-z0-9._-]", "", str(own)).lstrip("._-")[:MAX_NAME] or "function"


def _pool_part(raw: Mapping[str, Any], *, path: str) -> PoolPart:
    own = {key: value for key, value in raw.items() if key in _POOL_PART_KEYS}
    found_by = {key: value for key, value in raw.items() if key not in own}
    mistakes = Mistakes()
    client = RewardConfig()
    with mistakes.gather():
        client = validated(RewardConfig, found_by, path=path, also=_KEYS)
    name = client.pool.partition("/")[2] if client.pool else "pool"
    with mistakes.gather():
        # on_failure is the part's, so that every kind of part has the same policies; the client only raises.
        part = validated(PoolPart, {"name": name, "client": client, **own}, path=path)
    mistakes.check()
    return part
