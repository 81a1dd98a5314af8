"""Reward for code that is not async: an event loop on a thread of its own."""

import asyncio
import concurrent.futures
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from rewardpool._client.pool import Pool
from rewardpool._client.threads.loop_thread import LoopThread, result_of
from rewardpool._client.wake_lock import WITHIN_SECONDS
from rewardpool._rewards.announced import JobFacts, open_announced
from rewardpool._rewards.config import RewardLike
from rewardpool._rewards.cross_loop import awake_elsewhere
from rewardpool._rewards.episode import Episode
from rewardpool._rewards.ledger.writer import LedgerReport
from rewardpool._rewards.open import open_reward
from rewardpool._rewards.opened import OpenReward
from rewardpool._rewards.rating import Rating
from rewardpool._rewards.running import RunningMoments
from rewardpool._score_waits import ScoreWaits


class BlockingReward(LoopThread[OpenReward]):
    """An `OpenReward` behind plain function calls; any thread may call it, as any `LoopThread`.

    With an `announcement`, the job is announced to the pools, as by `open_announced`. A future of `submit` has what
    `OpenReward.rate` returns or raises, and one of `submit_next` and so on what the method of that name does.

    Raises:
        RewardPoolError: On construction, what `open_reward` raises.
    """

    def __init__(
        self,
        spec: RewardLike,
        *,
        tokenizer: Any = None,
        announcement: JobFacts | None = None,
        **overrides: Any,
    ) -> None:
        opening = (
            open_reward(spec, tokenizer=tokenizer, **overrides)
            if announcement is None
            else open_announced(spec, announcement, tokenizer=tokenizer, **overrides)
        )
        super().__init__(opening, what="the reward")

    @property
    def names(self) -> tuple[str, ...]:
        return self.opened.names

    @property
    def needs_group(self) -> bool:
        return self.opened.needs_group

    @property
    def moments(self) -> RunningMoments | None:
        return self.opened.moments

    @property
    def pools(self) -> Mapping[str, Pool]:
        """As `OpenReward.pools`; of these, `demand`, `report` and `endpoint` may be used from any thread."""
        return self.opened.pools

    @property
    def ledger(self) -> LedgerReport | None:
        return self.opened.ledger

    def flush_ledger(self) -> None:
        self.opened.flush_ledger()

    def requests(self, *, members: int) -> Mapping[str, int]:
        return self.opened.requests(members=members)

    def record_waits(self, waits: ScoreWaits) -> None:
        """Record where the samples of its pools are, for a trainer that reports its steps."""
        for pool in self.pools.values():
            pool.record_waits(waits)

    def submit(self, episode: Episode) -> concurrent.futures.Future[Rating]:
        return self.start(self.opened.rate(episode))

    def submit_next(self, episode: Episode) -> concurrent.futures.Future[Rating]:
        return self.start(self.opened.rate_next(episode))

    def submit_group(self, episodes: Sequence[Episode]) -> concurrent.futures.Future[list[Rating]]:
        return self.start(self.opened.rate_group(episodes))

    def submit_batch(self, episodes: Sequence[Episode]) -> concurrent.futures.Future[list[Rating]]:
        return self.start(self.opened.rate_batch(episodes))

    def submit_settled(
        self, episodes: Sequence[Episode], ratings: Sequence[Rating]
    ) -> concurrent.futures.Future[list[Rating]]:
        return self.start(self.opened.settled(episodes, ratings))

    def rate(self, episode: Episode) -> Rating:
        return result_of(self.submit(episode))

    def rate_group(self, episodes: Sequence[Episode]) -> list[Rating]:
        return result_of(self.submit_group(episodes))

    def sleeping(self) -> dict[str, Path]:
        """Return the folders on this machine of those of its pools that sleep unless they are kept awake, by name.

        Raises:
            PoolError: A pool cannot be read.
        """
        return self.run(_sleeping(self.pools))

    @asynccontextmanager
    async def awake(self, *, within_seconds: float = WITHIN_SECONDS) -> AsyncGenerator[None, None]:
        """Within this block, on any event loop, all pools of `sleeping` are awake; as `Pool.awake` for each of them.

        A block that is cancelled or fails lets go of the pools and does not wait until they sleep.
        """
        sleeping = await asyncio.wrap_future(self.start(_sleeping(self.pools)))
        contexts = [self.pools[name].awake(within_seconds=within_seconds) for name in sleeping]
        async with awake_elsewhere(self.start, contexts):
            yield


async def _sleeping(pools: Mapping[str, Pool]) -> dict[str, Path]:
    folders = {name: await pool.sleeping_folder() for name, pool in pools.items()}
    return {name: folder for name, folder in folders.items() if folder is not None}
