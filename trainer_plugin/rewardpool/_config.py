"""The reward part of a training config. One key is enough: `pool: namespace/name`."""

import os
import re
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from rewardpool._mistakes import validated
from rewardpool_api.contract import Fault
from rewardpool_api.demand import JOB_PATTERN, MAX_JOB_NAME
from rewardpool_runtime.state_files import pools_here

POOL_PATTERN = r"[a-z0-9]([a-z0-9-]*[a-z0-9])?/[a-z0-9]([a-z0-9.-]*[a-z0-9])?"
ADAPTER_PATTERN = r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$"
PositiveSeconds = Annotated[float, Field(gt=0, le=86_400)]


def check_pool(pool: str) -> str:
    """Return `namespace/name` as it is. Raises ValueError where it is not of that form."""
    if re.fullmatch(POOL_PATTERN, pool) is None:
        raise ValueError(f"must be namespace/name of a RewardPool, such as rl/skywork{_pools_like(pool)}")
    return pool


def _pools_like(pool: str) -> str:
    here = pools_here(os.environ)
    near = {pool.lower(), *get_close_matches(pool.lower(), [name.partition("/")[2] for name in here])}
    found = [name for name in here if name.partition("/")[2] in near]
    return f"; this machine has {', '.join(found)}" if found else ""


def check_url(url: str) -> str:
    """Return a router's base URL without a slash at its end. Raises ValueError for another URL, or credentials."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("must be http://HOST[:PORT] or https://HOST[:PORT]")
    if parts.username or parts.password:
        raise ValueError("must not contain credentials, which would end up in logs; use key_file")
    if parts.query or parts.fragment:
        raise ValueError("must be the router's base URL, without query or fragment")
    return url.rstrip("/")


def check_job(job: str) -> str:
    """Return the name of a training job as it is. Raises ValueError where a Lease's name cannot have that form."""
    if len(job) > MAX_JOB_NAME or re.fullmatch(JOB_PATTERN, job) is None:
        raise ValueError(f"must be lower-case letters, digits and hyphens, at most {MAX_JOB_NAME} of them")
    return job


class Penalty(BaseModel):
    """The score of a sample that failed by what the policy itself wrote."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    penalty: Annotated[float, Field(allow_inf_nan=False)]
    """The number; there is no default."""


def _without_penalty(action: object) -> object:
    if action not in ("raise", "skip"):
        raise ValueError("must be raise or skip: the policy did not cause it, so no number can stand for the score")
    return action


def _named_penalty(action: object) -> object:
    if isinstance(action, int | float):
        raise ValueError(  # noqa: TRY004 - pydantic reports no TypeError
            f"must be raise, skip, or a penalty by its name, such as {{penalty: {action}}}"
        )
    return action


Action = Literal["raise", "skip"]
PlainAction = Annotated[Action, BeforeValidator(_without_penalty)]


class FaultPolicies(BaseModel):
    """Policy for a sample without a score, by the fault."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    policy: Annotated[Action | Penalty, BeforeValidator(_named_penalty)] = "raise"
    """For faults of the policy's text: code that loops, an answer that is too long. `{penalty: x}`: it gets the score
    x."""
    verifier: PlainAction = "raise"
    """The function or judge failed, or the row given to it is malformed."""
    infra: PlainAction = "raise"
    """A worker, a router or the network failed, after all attempts."""
    capacity: PlainAction = "raise"
    """No worker had a free place in time."""


FailurePolicy = Action | FaultPolicies


def action_for(policy: FailurePolicy, fault: Fault) -> Action | Penalty:
    """Return what becomes of a sample that failed by that fault."""
    if not isinstance(policy, FaultPolicies):
        return policy
    action: Action | Penalty = getattr(policy, fault)
    return action


# The largest of `batch: auto`: beyond that there is little to win, and much waits for one slow sample.
AUTO_BATCH = 16


class RewardConfig(BaseModel):
    """Config of how a trainer finds its pool, and of samples that cannot be scored.

    Building it directly raises pydantic's `ValidationError`; `parse` raises this package's `ConfigError`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    pool: Annotated[str, AfterValidator(check_pool)] | None = None
    """`namespace/name` of the RewardPool object, in a cluster or on this machine. Default: $REWARDPOOL_POOL."""
    url: Annotated[str, AfterValidator(check_url)] | None = None
    """Base URL of a router, instead of discovery. Default: $REWARDPOOL_URL."""
    key_file: Path | None = None
    """File with the router's key, for use with `url`. Default: $REWARDPOOL_KEY_FILE."""
    ca_file: Path | None = None
    """File with the certificates (PEM) that verify an https `url`; discovery knows them. Default: $REWARDPOOL_CA_FILE,
    else those that this machine trusts."""
    served_name: str | None = None
    """The `model` of requests, for use with `url`; discovery knows it. Default: the name of the pool."""
    one_revision: bool = True
    """One revision of the pool scores each group, as far as the trainer lets it (see docs/rewards.md): members that
    another one scored, as during a rollout, are sent again. The report counts them as `asked_again`."""
    adapter: Annotated[str, Field(pattern=ADAPTER_PATTERN)] | None = None
    """Name of one of the pool's LoRA adapters, by which it is to score. Default: none, the model itself."""
    timeout: PositiveSeconds = 120.0
    """Seconds for one sample, over all its attempts, the opening of its pool, and the time in which it waits for a slot
    while the pool answers nobody. Waiting behind samples that are answered does not count, and neither does waiting for
    a place at a worker that says so. It should be at least a function's own limit (`cpuSeconds` plus
    `idleSeconds` of `spec.sandbox`, 60)."""
    max_attempts: Annotated[int, Field(ge=1, le=100)] = 6
    """Attempts that may fail at a worker (HTTP 500, silence, a broken connection) before the sample fails; twice as
    many where a worker sends invalid responses, since the router takes that worker for a healthy one.
    Attempts that reach no worker at all are repeated, ever slower, until the deadline, and do not count."""
    breaker_threshold: Annotated[int, Field(ge=1, le=10_000)] = 16
    """Samples that fail by the same kind with no score in between, after which that is an error of the pool whatever
    `on_failure` says. Before the first score, the first 404, 405 or the like is one; after it, four times as many
    samples may fail by themselves (the function raises, the sample is malformed)."""
    concurrency: Annotated[int, Field(ge=1, le=65_536)] = 64
    """Most requests in flight from this process; fewer while the pool says that it is too busy. A teacher's sequence
    counts once for each 2,048 tokens of it that are begun."""
    batch: Annotated[int, Field(ge=1, le=64)] | Literal["auto"] = "auto"
    """Most samples (text or function) in one request; only those that wait because all slots are full are put together.
    `auto`: up to 16, as many as are answered fastest. With 1, `concurrency` bounds samples too."""
    hedge: bool = True
    """A request that takes far longer than usual gets a second one beside it, at most 5 % of them; the first answer
    counts. One that a function's worker has in work gets none."""
    on_failure: FailurePolicy = "raise"
    """`raise`: the first failed sample ends the stream. `skip`: it comes back Unscored. Or a mapping with one of these
    for each fault, such as `{policy: {penalty: -1}, verifier: skip, infra: skip}`; a fault that is not in it raises."""
    wait_seconds: Annotated[float, Field(ge=0, le=86_400)] = 0.0
    """Seconds to wait at the start until the pool is ready, whatever is in the way, before it raises. With 0, samples
    wait for what passes by itself, within their deadlines, and anything else raises at once."""
    announce: bool = True
    """Announce the loop's demand, so that the pool is warm in time; $REWARDPOOL_ANNOUNCE=false wins."""
    job: Annotated[str, AfterValidator(check_job)] | None = None
    """The name to announce it by. Default: $REWARDPOOL_JOB, else the pod's or machine's name with the process id."""

    @property
    def ahead(self) -> int:
        """Most samples of a stream that are started and not yet taken: as many wait as may be in flight."""
        return 2 * self.concurrency * (AUTO_BATCH if self.batch == "auto" else self.batch)

    @classmethod
    def parse(cls, raw: Mapping[str, Any], *, path: str = "reward") -> Self:
        """Build from the reward part of a config file, of which `path` is the place in that file.

        Raises:
            ConfigError: Names every wrong field by its whole path.
        """
        return validated(cls, raw, path=path)

    @classmethod
    def of(cls, pool: "str | Mapping[str, Any] | RewardConfig") -> "RewardConfig":
        """Return the config of a pool given as `namespace/name`, a URL, or the fields of one.

        Raises:
            ConfigError: It is none.
        """
        if isinstance(pool, RewardConfig):
            return pool
        if isinstance(pool, str):
            return cls.parse(pool_fields(pool), path="")
        return cls.parse(pool, path="")


def pool_fields(pool: str) -> dict[str, str]:
    """A pool's name or URL as the field of `RewardConfig` that it stands for."""
    return {"url" if "://" in pool else "pool": pool}
