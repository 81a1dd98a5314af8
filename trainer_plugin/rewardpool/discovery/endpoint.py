"""Where a pool is and what it serves: what discovery finds and the client uses."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rewardpool.discovery.pool_sources import PoolSource
from rewardpool_api.contract import ADAPTER_USER

if TYPE_CHECKING:
    from rewardpool_api.model import ModelType


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
        dtype: What the engine computes in, such as `bfloat16`; `auto` where it chooses, None when unknown.
        origin: The source this was found, for messages.
        pool_object_version: resourceVersion of the object it was read from; None without one.
        pool_uid: uid of that object; None without one, and on one machine.
        source: Where that object is; None when only a URL was given.
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
    dtype: str | None = None
    origin: str
    pool_object_version: str | None = None
    pool_uid: str | None = None
    source: PoolSource | None = field(default=None, repr=False, compare=False)
    not_ready: str = field(default="", compare=False)

    @property
    def model_fields(self) -> dict[str, str]:
        """The fields of a request that say what is to score.

        An adapter is chosen by `user`, the one field besides `model` that both routers forward: smg refuses a `model`
        other than the pool's, and an alias of it arrives as the pool's own, so that the base would score.
        """
        return {"model": self.served_name} | ({"user": f"{ADAPTER_USER}{self.adapter}"} if self.adapter else {})

    @property
    def keys(self) -> tuple[str | None, ...]:
        """Everything worth presenting, likeliest first; None is no key."""
        return (self.key, *self.other_keys)
