"""Holds the trajectories of a group until all of them are scored, so that one revision of each pool scores it.

verl's agent loop worker begins all trajectories of a prompt at one moment, and its trainers train on none of them
before the last one has ended. So one that is scored waits here for those that have begun beside it, which costs nobody
time. One that fails, or that no pool scores, is not waited for.
"""

import asyncio
import time
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from rewardpool._rewards import Episode, OpenReward, Rating


@dataclass(eq=False)
class _Waiting:
    episode: Episode
    rating: Rating
    settled: "asyncio.Future[Rating]"


@dataclass(eq=False)
class _Group:
    """Trajectories of one prompt, on one event loop."""

    # Begun, and neither ended nor waiting.
    under_way: int = 0
    waiting: list[_Waiting] = field(default_factory=list)
    reward: OpenReward | None = None


class Member:
    """One trajectory of a group."""

    def __init__(self, groups: "WholeGroups", key: Hashable, group: _Group) -> None:
        self._groups = groups
        self._key = key
        self._group = group
        self.is_under_way = True
        # Time spent waiting for the others of its group.
        self.waited_seconds = 0.0

    async def settled(self, reward: OpenReward, episode: Episode, rating: Rating) -> Rating:
        """Return the rating that the trajectory has when all of its group are scored, by `OpenReward.settled`.

        Raises:
            SampleError: One of its group has no score now, and the policy of a part is `raise`.
            PoolError: A pool cannot be used.
        """
        pools = (reward.pools.get(name) for name in rating.revisions)
        if not any(pool is not None and pool.one_revision for pool in pools):
            return rating
        began = time.monotonic()
        settled: asyncio.Future[Rating] = asyncio.get_running_loop().create_future()
        self._group.reward = reward
        self._group.waiting.append(_Waiting(episode, rating, settled))
        self.ends()
        try:
            return await settled
        finally:
            self.waited_seconds += time.monotonic() - began

    def ends(self) -> None:
        if self.is_under_way:
            self.is_under_way = False
            self._groups.left(self._key)


class WholeGroups:
    """The groups of one process."""

    def __init__(self) -> None:
        self._groups: dict[Hashable, _Group] = {}
        self._settling: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._groups)

    @contextmanager
    def member(self, key: Hashable) -> Iterator[Member]:
        """Within this block a trajectory of a group is under way; entered before anything is waited for.

        The key is of the group on the event loop of the block.
        """
        group = self._groups.setdefault(key, _Group())
        group.under_way += 1
        member = Member(self, key, group)
        try:
            yield member
        finally:
            member.ends()

    def left(self, key: Hashable) -> None:
        """Count a member that has ended, and settle the group after the last one."""
        group = self._groups[key]
        group.under_way -= 1
        if group.under_way:
            return
        del self._groups[key]
        if group.waiting and group.reward is not None:
            settling = asyncio.get_running_loop().create_task(_settle(group.waiting, group.reward))
            # The event loop keeps no task that nobody else keeps.
            self._settling.add(settling)
            settling.add_done_callback(self._settling.discard)


async def _settle(waiting: Sequence[_Waiting], reward: OpenReward) -> None:
    """Give each that waits its rating, or the error that keeps the group from being settled."""
    try:
        ratings = await reward.settled([one.episode for one in waiting], [one.rating for one in waiting])
    except BaseException as error:
        for one in waiting:
            if not one.settled.done():
                one.settled.set_exception(error) if isinstance(error, Exception) else one.settled.cancel()
        if not isinstance(error, Exception):
            raise
        return
    for one, rating in zip(waiting, ratings, strict=True):
        if not one.settled.done():
            one.settled.set_result(rating)
