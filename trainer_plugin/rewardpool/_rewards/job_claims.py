"""Revisions of groups whose ratings are handed on one by one, and whose members several processes may rate.

The group's first answer decides, whichever process it came to. What decides is a store that all of them ask: it enters
a revision where the group has none, and says which one the group has, in one step. A process that comes second is told
so before its rating is handed on, and asks its pool again, of the revision that came first.

Nothing waits for the store but a group's first members: what the group has is read while the pool scores, and what is
known once is known for good.
"""

import asyncio
from collections.abc import Awaitable, Hashable, Mapping
from typing import Final, Protocol

from rewardpool._rewards.one_revision import Answered, Claims

# Limit of one answer of a store.
WAIT_SECONDS: Final = 30.0


class ClaimStore(Protocol):
    """The claims of a job, asked by all processes that score for it."""

    async def for_group(self, group: Hashable) -> Mapping[str, str]:
        """Do as `Claims.for_group`. Raises ClaimsUnavailableError, and PoolError where no later call can succeed."""
        ...

    async def enter(self, group: Hashable, answered: Answered) -> Mapping[str, str]:
        """Do as `Claims.enter`, in one step for all who ask. Raises what `for_group` does."""
        ...


class ClaimsUnavailableError(Exception):
    """The store did not say which revision a group has; the message says why, and what can be done."""


class JobClaims:
    """Revisions of groups that one process knows, and requests from the others by the store that they share, if any."""

    def __init__(self, store: ClaimStore | None = None, *, wait_seconds: float = WAIT_SECONDS) -> None:
        self._known = Claims()
        self._store = store
        self._wait_seconds = wait_seconds
        self._reading: dict[Hashable, asyncio.Task[None]] = {}

    def for_group(self, group: Hashable) -> Mapping[str, str]:
        """Return what is known of the group's revisions, and have the rest read in the meantime."""
        known = self._known.for_group(group)
        if self._store is not None and not known and group not in self._reading:
            reading = asyncio.create_task(self._read(group, self._store))
            self._reading[group] = reading
            reading.add_done_callback(lambda _: self._reading.pop(group, None))
        return known

    async def enter(self, group: Hashable, answered: Answered) -> Mapping[str, str]:
        """Enter what answered for a member of the group, and return its revisions, of each pool that has answered.

        Raises:
            ClaimsUnavailableError: They are not known, so that the rating must not be handed on.
            PoolError: They are not known, and never will be.
        """
        known = self._known.for_group(group)
        if self._store is not None and any(seen and pool not in known for pool, seen in answered.seen.items()):
            self._note(group, await self._in_time(self._store.enter(group, answered)))
            return self._known.for_group(group)
        return self._known.enter(group, answered)

    async def _read(self, group: Hashable, store: ClaimStore) -> None:
        try:
            self._note(group, await self._in_time(store.for_group(group)))
        except Exception:  # nobody waits for this; `enter` meets the same trouble, and says so
            return

    def _note(self, group: Hashable, wanted: Mapping[str, str]) -> None:
        if wanted:
            self._known.enter(group, Answered({pool: frozenset({revision}) for pool, revision in wanted.items()}))

    async def _in_time(self, asking: Awaitable[Mapping[str, str]]) -> Mapping[str, str]:
        try:
            async with asyncio.timeout(self._wait_seconds):
                return await asking
        except TimeoutError:
            raise ClaimsUnavailableError(
                "it is not known which revision its group has: the actor that keeps that did not answer within"
                f" {self._wait_seconds:g} s, and another worker may have handed on a score; one_revision: false scores"
                " without asking"
            ) from None
