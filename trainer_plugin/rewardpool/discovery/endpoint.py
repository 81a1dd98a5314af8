"""Where a pool is and what it serves: what discovery finds and the client uses."""

from dataclasses import dataclass, field

from rewardpool.discovery.places import Place
from rewardpool_api.pool import ModelType


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """A router's address, its key, and the model behind it.

    Attributes:
        url: Base URL of the router, without a trailing slash.
        key: The router's key; None when the pool asks for none. Never shown.
        other_keys: Keys that some routers may take instead, while the key is rotated. Never shown.
        ca: Certificates (PEM) that verify the router; None for http, or for those that this machine trusts.
        pool: `namespace/name`, or the URL itself when nothing else is known.
        served_name: The `model` of requests.
        model_type: What kinds of samples the model takes; None when only a URL was given.
        max_model_len: Longest sample in tokens; None when unknown or unlimited.
        dtype: What the engine computes in, such as `bfloat16`; `auto` where it chooses, None when unknown.
        origin: The place this was found, for messages.
        pool_object_version: resourceVersion of the object it was read from; None without one.
        pool_uid: uid of that object; None without one, and on one machine.
        place: Where that object is; None when only a URL was given.
        not_ready: Why the pool could not score when it was looked up, for a cause that passes; empty when it could.
    """

    url: str
    key: str | None = field(default=None, repr=False)
    other_keys: tuple[str, ...] = field(default=(), repr=False)
    ca: str | None = field(default=None, repr=False)
    pool: str
    served_name: str
    model_type: ModelType | None = None
    max_model_len: int | None = None
    dtype: str | None = None
    origin: str
    pool_object_version: str | None = None
    pool_uid: str | None = None
    place: Place | None = field(default=None, repr=False, compare=False)
    not_ready: str = field(default="", compare=False)

    @property
    def keys(self) -> tuple[str | None, ...]:
        """Everything worth presenting, likeliest first; None is no key."""
        return (self.key, *self.other_keys)
