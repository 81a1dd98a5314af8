"""Address and model of a pool: the result of discovery, used by the client."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rewardpool._discovery.pool_sources import PoolSource
from rewardpool_api.contract import ADAPTER_USER
from rewardpool_api.names import FUNCTION_LIMIT, ROUTER_LIMIT

if TYPE_CHECKING:
    from rewardpool_api.model import ModelType


@dataclass(frozen=True, kw_only=True)
class ServedModel:
    """The model that one revision of the pool's workers serves, as the pool's status has it.

    Attributes:
        revision: Name of the revision, as its answers have it.
        source: Where the model comes from, as in `spec.model.source`.
        commit: What it is pinned to, or the hub's branch or tag where that is not known; None for files.
        served_name: The `model` of requests.
        tokenizer: Digest of its tokenizer and chat template; None while no worker answered, and without a tokenizer.
        max_model_len: Longest sample in tokens; None when unknown or unlimited.
        head: Type of `spec.model.head`; None for one label.
        step_token: Stands at the ends of steps; None where the model does not score steps.
        dtype: What the engine computes in.
    """

    revision: str
    source: str
    commit: str | None = None
    served_name: str
    tokenizer: str | None = None
    max_model_len: int | None = None
    head: str | None = None
    step_token: str | None = None
    dtype: str | None = None


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """A router's address, its key, and the model behind it.

    Attributes:
        url: Base URL of the router, without a trailing slash.
        key: The router's key; None when the pool needs none. Never shown.
        other_keys: Keys that some routers may take instead, while the key is rotated. Never shown.
        ca: Certificates (PEM) that verify the router; None for http, or for those that this machine trusts.
        pool: `namespace/name`, or the URL itself when nothing else is known.
        served_name: The `model` of requests.
        adapter: The LoRA adapter that is to score; None for the model itself.
        model_type: What kinds of samples the model takes; None when only a URL was given.
        max_model_len: Longest sample in tokens; None when unknown or unlimited.
        step_token: Stands at the ends of steps, where the model scores steps; None where it does not, or when only a
            URL was given.
        revisions: What each revision of its workers serves; the one that gets the replicas first. Empty when only a URL
            was given.
        dtype: What the engine computes in, such as `bfloat16`; `auto` where it chooses, None when unknown.
        is_fixed_size: Whether the number of its workers does not follow its load; False when that is unknown.
        limits: Seconds for one request at router or worker, by the setting in the pool's object.
        origin: The source this was found, for messages.
        pool_object_version: resourceVersion of the object it was read from; None without one.
        pool_uid: uid of that object; None without one, and on one machine.
        source: Where that object is; None when only a URL was given.
        is_own: Whether it is this user's, on this machine: nothing is sent to another user who listens at its address.
        not_ready: Why the pool could not score when it was looked up, for a cause that passes; empty when it could.
    """

    url: str
    key: str | None = field(default=None, repr=False)
    other_keys: tuple[str, ...] = field(default=(), repr=False)
    ca: str | None = field(default=None, repr=False)
    pool: str
    served_name: str
    adapter: str | None = None
    model_type: "ModelType | None" = None
    max_model_len: int | None = None
    step_token: str | None = field(default=None, compare=False)
    revisions: tuple[ServedModel, ...] = field(default=(), compare=False)
    dtype: str | None = None
    is_fixed_size: bool = field(default=False, compare=False)
    limits: Mapping[str, float] = field(default_factory=dict, compare=False, repr=False)
    origin: str
    pool_object_version: str | None = None
    pool_uid: str | None = None
    source: PoolSource | None = field(default=None, repr=False, compare=False)
    is_own: bool = False
    not_ready: str = field(default="", compare=False)

    @property
    def model_fields(self) -> dict[str, str]:
        """The fields of a request that choose the model, and the adapter."""
        # `user` is the one field besides `model` that both routers forward: smg refuses a `model` other than the
        # pool's, and an alias of it arrives as the pool's own, so that the base would score.
        return {"model": self.served_name} | ({"user": f"{ADAPTER_USER}{self.adapter}"} if self.adapter else {})

    def disagreements(self, timeout: float) -> list[str]:
        """Return what is wrong with the pool's limits for samples of `timeout` seconds, a sentence each."""
        found = []
        function, router = self.limits.get(FUNCTION_LIMIT), self.limits.get(ROUTER_LIMIT)
        if function is not None and function > timeout:
            found.append(
                f"a function's call may take {function:g} s ({FUNCTION_LIMIT}) and a sample {timeout:g} s (timeout):"
                f" a call that takes longer than {timeout:g} s runs on for nothing. Make timeout at least {function:g}"
            )
        longest = timeout if function is None else min(timeout, function)
        if router is not None and router < longest:
            found.append(
                f"the router gives up a request after {router:g} s ({ROUTER_LIMIT}) and asks another worker, and an"
                f" answer may take {longest:g} s. Make {ROUTER_LIMIT} more than that"
            )
        return found

    @property
    def serves(self) -> tuple[object, ...]:
        """All that is known of what it serves."""
        return self.model_type, self.model_fields, self.max_model_len, self.step_token, self.dtype, self.revisions

    @property
    def keys(self) -> tuple[str | None, ...]:
        """Keys to present, likeliest first; None for none."""
        return (self.key, *self.other_keys)
