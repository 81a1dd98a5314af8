"""The pool's keys as its Secrets have them: found where they are, and made only where they are nowhere.

    Secret POOL-key             key, next-key, previous-key     what trainers, workers and routers read
    Secret POOL-router-admin    key, previous-key               the routers' worker lists
                                data-plane-key                  the pool's key that is in force
                                annotations                     the last rotation that was handled, since when
    Secret POOL-gateway         key                             what the gateway's callers present; no rotation changes
                                                                it, and whoever writes another there has it

A key that changes locks running workers and routers out until they are replaced. So a Secret that was deleted is
made again with what it had: the operator remembers it, and the copy `data-plane-key` is for an operator that was away
meanwhile. How keys change on purpose is in `rotation.py`.
"""

import base64
import binascii
import re
import secrets
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from rewardpool_api import names
from rewardpool_api.times import from_rfc3339
from rewardpool_kube.resources import Object
from rewardpool_operator.kubernetes.manifests.diff import short_hash

KEY_BYTES: Final = 32
USABLE: Final = re.compile(r"[\x21-\x7e]{16,512}")  # as a header takes it
KEY_COPY: Final = "data-plane-key"
ANNOTATION_STEP_SINCE: Final = f"{names.GROUP}/rotation-step-since"
"""Annotation of the admin Secret: RFC 3339 time at which the present step of a rotation began."""


@dataclass(frozen=True, kw_only=True)
class Keys:
    """The entries of a pool's Secrets, as they are or should be."""

    pool: str = ""
    """The key that trainers present; empty for a pool that takes no key."""
    next: str | None = None
    """The key that they will present; valid at workers already."""
    previous: str | None = None
    """The key that they presented before; valid at workers, and at routers that were not replaced yet."""
    in_force: str = ""
    """The copy of the pool's key. Another one than `pool` means that somebody edited the key by hand."""
    admin: str
    previous_admin: str | None = None
    gateway: str = ""
    """The key that the gateway's callers present; empty for a pool without one."""
    handled: str | None = None
    step_since: datetime | None = None
    """Start of the present step of a rotation; None outside of one."""

    def __repr__(self) -> str:
        """Keep keys out of logs and tracebacks."""
        return "Keys(...)"

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the keys, which distinguishes routers that started with others."""
        return short_hash([self.pool, self.admin])

    @property
    def all(self) -> tuple[str | None, ...]:
        return (self.pool, self.next, self.previous, self.in_force, self.admin, self.previous_admin, self.gateway)

    @property
    def admins(self) -> tuple[str, ...]:
        """Keys that may open a router's worker list, likeliest first."""
        return (self.admin, self.previous_admin) if self.previous_admin else (self.admin,)


def new_key() -> str:
    """Return a new random key."""
    return secrets.token_urlsafe(KEY_BYTES)


def found_keys(
    key_secret: Object | None,
    admin_secret: Object | None,
    remembered: Keys | None,
    *,
    asked: str | None,
    handled: str | None = None,
    uses_key: bool,
) -> Keys:
    """The keys as they are: what the Secrets say, else what is remembered, else the copy, else new ones.

    A pool that has no keys yet has handled what is `asked`; what the status says was `handled` counts where the Secret
    that knows is gone.
    """
    is_new = admin_secret is None and key_secret is None and remembered is None
    annotations = (admin_secret or {}).get("metadata", {}).get("annotations") or {}
    known = annotations.get(names.ANNOTATION_ROTATE_KEY) or (remembered.handled if remembered else None) or handled
    admin = entry(admin_secret, names.SECRET_KEY)
    previous_admin = entry(admin_secret, names.PREVIOUS_KEY) if admin or not remembered else remembered.previous_admin
    keys = Keys(
        admin=admin or (remembered.admin if remembered else None) or new_key(),
        previous_admin=previous_admin,
        handled=asked if is_new else known,
        step_since=_time(annotations.get(ANNOTATION_STEP_SINCE)) or (remembered.step_since if remembered else None),
    )
    if not uses_key:
        return keys
    copy = entry(admin_secret, KEY_COPY) or (remembered.in_force if remembered else None)
    live = entry(key_secret, names.SECRET_KEY)
    if live is None and remembered is not None and remembered.pool:
        live, following, previous = remembered.pool, remembered.next, remembered.previous
    else:
        live = live or copy or new_key()
        following, previous = (entry(key_secret, name) for name in (names.NEXT_KEY, names.PREVIOUS_KEY))
    return replace(keys, pool=live, next=following, previous=previous, in_force=copy or live)


def gateway_key(secret: Object | None, remembered: Keys | None) -> str:
    """The gateway's key: what its Secret says where that is usable, else what is remembered, else a new one."""
    live = entry(secret, names.SECRET_KEY)
    usable = live if live is not None and USABLE.fullmatch(live) else None
    return usable or (remembered.gateway if remembered else None) or new_key()


def entry(secret: Object | None, name: str) -> str | None:
    """Return one entry of a Secret as text; None when it is missing, empty or not text."""
    encoded = ((secret or {}).get("data") or {}).get(name, "")
    try:
        return base64.b64decode(encoded, validate=True).decode().strip() or None
    except (binascii.Error, UnicodeDecodeError):
        return None


def _time(text: str | None) -> datetime | None:
    try:
        return from_rfc3339(text) if text else None
    except ValueError:
        # Edited by hand. A step that has no beginning begins now.
        return None
