"""Rotation of a pool's keys while it serves: a machine of three steps whose state lies in the Secrets alone.

A router takes one key, which it reads when it starts; a worker takes every key in its folder, which the kubelet renews
within a minute or two. So the new key has to reach every worker before the first router asks for it:

    Settled    key
       |  requested, or the Secret was edited
    Preparing  key, next-key       workers learn the next one; trainers and routers go on with the key
       |  every worker takes the next key
    Changing   key, previous-key   routers are replaced, one by one; trainers try both keys until one fits
       |  every router is a new one, and a while has passed
    Settled    key

The key of the routers' worker lists changes with it: the operator tries both.

A key edited by hand becomes the next one, and the key that is in force goes back to its place until workers know the
new one. Each pass reads what is there and takes one step at most; an operator that dies between two writes goes on
from what it finds. Pure.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, Literal

from rewardpool_api.status import MAX_REQUEST, KeyRotation
from rewardpool_operator.kubernetes.credentials.keys import USABLE, Keys

GRACE: Final = timedelta(seconds=30)
# A step that takes longer is reported, not given up: going on would lose requests, going back would not help.
OVERDUE: Final = timedelta(seconds=600)


Phase = Literal["Preparing", "Changing", "Done"]


@dataclass(frozen=True, kw_only=True)
class RotationProgress:
    """State of the pods that a rotation waits for."""

    refusing: tuple[str, ...] = ()
    """Workers, by name, that do not take the next key yet, or did not say."""
    outdated: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class RotationStep:
    """The wanted entries of the Secrets."""

    keys: Keys
    refused: str | None = None
    """Reason for which an edit of the Secret was undone; None where none was."""


def next_step(
    keys: Keys, progress: RotationProgress, *, asked: str | None, now: datetime, new_key: Callable[[], str]
) -> RotationStep:
    """Return one step of a rotation, or the keys as they are; `asked` is the annotation that requests a rotation."""
    if keys.pool != keys.in_force:
        if keys.previous == keys.in_force:
            # Our own change, of which the second Secret was not written.
            return RotationStep(keys=_admin_changed(replace(keys, in_force=keys.pool, step_since=now), new_key))
        return _edited(keys, now)
    if is_changing(keys):
        return RotationStep(keys=_changing(keys, progress, now))
    if keys.next is not None:
        return _preparing(keys, keys.next, progress, asked, now, new_key)
    if asked and asked != keys.handled:
        return RotationStep(keys=_begun(keys, asked, now, new_key))
    # Removing the next key ends the rotation.
    return RotationStep(keys=replace(keys, step_since=None))


def is_changing(keys: Keys) -> bool:
    """Return whether routers are changing to the present keys."""
    return keys.previous is not None or keys.previous_admin is not None


def _begun(keys: Keys, asked: str, now: datetime, new_key: Callable[[], str]) -> Keys:
    begun = replace(keys, handled=asked, step_since=now)
    # Without a key of its own the pool has only that of the worker lists, which no worker needs to know.
    return replace(begun, next=new_key()) if keys.pool else _admin_changed(begun, new_key)


def _preparing(
    keys: Keys, following: str, progress: RotationProgress, asked: str | None, now: datetime, new_key: Callable[[], str]
) -> RotationStep:
    if following == keys.pool:
        return RotationStep(keys=replace(keys, next=None, step_since=None))
    if USABLE.fullmatch(following) is None:
        refused = "next-key must be 16 to 512 printable ASCII characters without spaces; it was removed"
        return RotationStep(keys=replace(keys, next=None, step_since=None), refused=refused)
    if keys.step_since is None:
        return RotationStep(keys=replace(keys, step_since=now, handled=asked or keys.handled))
    if progress.refusing:
        return RotationStep(keys=keys)
    changed = replace(keys, pool=following, in_force=following, next=None, previous=keys.pool, step_since=now)
    return RotationStep(keys=_admin_changed(changed, new_key))


def _admin_changed(keys: Keys, new_key: Callable[[], str]) -> Keys:
    return replace(keys, admin=new_key(), previous_admin=keys.admin)


def _changing(keys: Keys, progress: RotationProgress, now: datetime) -> Keys:
    if keys.step_since is None:
        return replace(keys, step_since=now)
    if progress.outdated or now - keys.step_since < GRACE:
        return keys
    return replace(keys, previous=None, previous_admin=None, step_since=None)


def _edited(keys: Keys, now: datetime) -> RotationStep:
    back = replace(keys, pool=keys.in_force)
    if USABLE.fullmatch(keys.pool) is None:
        refused = "key must be 16 to 512 printable ASCII characters without spaces; the valid one was put back"
        return RotationStep(keys=back, refused=refused)
    return RotationStep(keys=replace(back, next=keys.pool, step_since=keys.step_since if is_changing(keys) else now))


def progress_of(
    keys: Keys, progress: RotationProgress, before: KeyRotation | None, *, now: datetime
) -> KeyRotation | None:
    """Return the progress of the rotation; None for a pool whose keys never changed."""
    changing = is_changing(keys)
    if not changing and keys.next is None:
        if before is None or before.phase == "Done":
            return before
        said = "next-key was taken away; the key is the one it was" if before.phase == "Preparing" else ""
        return KeyRotation(phase="Done", since=now, request=_request(keys), message=said)
    since = keys.step_since or now
    waiting = (progress.outdated if changing else progress.refusing) if now - since >= OVERDUE else ()
    said = before.message if before and before.message and waiting else _waits(changing, waiting)
    phase: Phase = "Changing" if changing else "Preparing"
    return KeyRotation(phase=phase, since=since, request=_request(keys), message=said)


def _request(keys: Keys) -> str | None:
    return keys.handled[:MAX_REQUEST] if keys.handled else None


def _waits(changing: bool, waiting: tuple[str, ...]) -> str:
    if not waiting:
        return ""
    minutes = int(OVERDUE.total_seconds() // 60)
    what = "routers are not ready with the new keys" if changing else "workers do not take the next key"
    return f"for {minutes} minutes {what}: {', '.join(waiting[:5])}"
