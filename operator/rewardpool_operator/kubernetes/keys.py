"""The pool's two keys: found where they are, and made only where they are nowhere.

A key that changes locks running workers and routers out until they are replaced. So a Secret that somebody deleted is
made again with the key it had: the operator remembers it, and a copy of the pool's key lies in the admin Secret for an
operator that was away meanwhile.
"""

import base64
import binascii
import secrets

from rewardpool_api import names
from rewardpool_operator.kubernetes.client import Object
from rewardpool_operator.kubernetes.render import KEY_COPY, Keys

KEY_BYTES = 32


def settled_keys(key_secret: Object | None, admin_secret: Object | None, remembered: Keys | None) -> Keys:
    """The keys to use: what the Secrets say, else what is remembered, else the copy, else new ones."""
    pool = entry(key_secret, names.SECRET_KEY) or (remembered.pool if remembered else None)
    admin = entry(admin_secret, names.SECRET_KEY) or (remembered.admin if remembered else None)
    return Keys(
        pool=pool or entry(admin_secret, KEY_COPY) or secrets.token_urlsafe(KEY_BYTES),
        admin=admin or secrets.token_urlsafe(KEY_BYTES),
    )


def entry(secret: Object | None, name: str) -> str | None:
    """One entry of a Secret as text; None when it is missing, empty or no text."""
    encoded = ((secret or {}).get("data") or {}).get(name, "")
    try:
        return base64.b64decode(encoded, validate=True).decode().strip() or None
    except (binascii.Error, UnicodeDecodeError):
        return None
