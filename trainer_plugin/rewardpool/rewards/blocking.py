"""The same reward for code that is not async: an event loop on a thread of its own."""

import concurrent.futures
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from rewardpool.client.loop_thread import LoopThread, result_of
from rewardpool.client.pool import Pool
from rewardpool.rewards.announced import Announcement, open_announced
from rewardpool.rewards.episode import Episode
from rewardpool.rewards.open import open_reward
from rewardpool.rewards.rating import Rating


class BlockingReward:
    """A `Reward` behind plain function calls; any thread may call it. Usable as a context manager.

    Made after a fork, not before: threads do not survive one. With an `announcement`, the pools are told of the job, as
    by `open_announced`.

    Raises:
        RewardPoolError: On construction, what `open_reward` raises.
    """

    def __init__(
        self,
        spec: str | Mapping[str, Any],
        *,
        tokenizer: Any = None,
        announcement: Announcement | None = None,
        **overrides: Any,
    ) -> None:
        opening = (
            open_reward(spec, tokenizer=tokenizer, **overrides)
            if announcement is None
            else open_announced(spec, announcement, tokenizer=tokenizer, **overrides)
        )
        self._thread = LoopThread(opening, what="the reward")
        self._reward = self._thread.opened

    @property
    def names(self) -> tuple[str, ...]:
        """As `Reward.names`."""
        return self._reward.names

    @property
    def needs_group(self) -> bool:
        """As `Reward.needs_group`."""
        return self._reward.needs_group

    @property
    def pools(self) -> Mapping[str, Pool]:
        """As `Reward.pools`; of these, `demand`, `report` and `endpoint` may be used from any thread."""
        return self._reward.pools

    def submit(self, episode: Episode) -> concurrent.futures.Future[Rating]:
        """Start rating an episode; the future has what `Reward.rate` returns or raises."""
        return self._thread.start(self._reward.rate(episode))

    def submit_group(self, episodes: Sequence[Episode]) -> concurrent.futures.Future[list[Rating]]:
        """Start rating a group; the future has what `Reward.rate_group` returns or raises."""
        return self._thread.start(self._reward.rate_group(episodes))

    def rate(self, episode: Episode) -> Rating:
        """Rate one episode, as `Reward.rate` does."""
        return result_of(self.submit(episode))

    def rate_group(self, episodes: Sequence[Episode]) -> list[Rating]:
        """Rate a group, as `Reward.rate_group` does."""
        return result_of(self.submit_group(episodes))

    def close(self) -> None:
        """Give up what is in flight and close the pools; may be called again.

        Raises:
            TimeoutError: The thread did not end within 10 s.
        """
        self._thread.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
