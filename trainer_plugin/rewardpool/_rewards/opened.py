"""Interface of every adapter of a training framework."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from rewardpool._client.pool import Pool
from rewardpool._rewards.episode import Episode
from rewardpool._rewards.ledger.writer import LedgerReport
from rewardpool._rewards.rating import Rating
from rewardpool._rewards.running import RunningMoments


class OpenReward(Protocol):
    """Rates episodes; made by `open_reward`, and used by any number of tasks of one event loop."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the parts: the keys of every rating's `components`, in this order."""
        ...

    @property
    def needs_group(self) -> bool:
        """True if only `rate_group` will do, because a part compares the episodes of a group with each other."""
        ...

    @property
    def moments(self) -> RunningMoments | None:
        """Moments of earlier steps' scores, where a part has `normalize: running`; else None.

        Whoever has them rated then gives each episode the `version` that its group was begun under, counts the
        components of what was trained on, and advances the moments when the policy has a new version.
        """
        ...

    @property
    def pools(self) -> Mapping[str, Pool]:
        """The open pools by their name, `namespace/name` or a URL, for `Pool.demand` and `Pool.report`.

        Parts that name the same pool share it.
        """
        ...

    @property
    def ledger(self) -> LedgerReport | None:
        """State of the ledger; None where the config has none."""
        ...

    def flush_ledger(self) -> None:
        """Wait until the scores so far are in the ledger's files, 30 s at most; holds up the calling thread."""
        ...

    def requests(self, *, members: int) -> Mapping[str, int]:
        """Return how many requests each pool gets for so many responses to one prompt: what `Pool.demand` announces.

        A judge of pairs asks twice for each pair and vote. Gates are taken to open, and answers to be readable.
        """
        ...

    async def rate(self, episode: Episode) -> Rating:
        """Rate one episode.

        Raises:
            SampleError: A part has no score and its policy is `raise`.
            PoolError: A pool cannot be used, whatever the policy.
            ConfigError: The reward needs whole groups, or goes by versions and the episode has none.
        """
        ...

    async def rate_next(self, episode: Episode) -> Rating:
        """Rate an episode whose siblings' ratings are handed on one by one, so that none of them can be asked again.

        The first one of the group that is scored decides which revision of a pool scores the later ones. Where that
        one serves no more, they have no score, by a fault of `infra`. The group is `Episode.group`, another one each
        time that a prompt is rolled out; without it this is `rate`.

        Raises:
            SampleError: A part has no score and its policy is `raise`.
            PoolError: A pool cannot be used, whatever the policy.
            ConfigError: As `rate`.
        """
        ...

    async def rate_group(self, episodes: Sequence[Episode]) -> list[Rating]:
        """Rate the rollouts of one prompt; the ratings come in the order of the episodes.

        Raises:
            SampleError: A part has no score and its policy is `raise`; what is in flight is cancelled.
            PoolError: A pool cannot be used, whatever the policy.
        """
        ...

    async def rate_batch(self, episodes: Sequence[Episode]) -> list[Rating]:
        """Rate episodes of any number of prompts; the ratings come in the order of the episodes.

        No two revisions of a pool score a group: its episodes have the same `Episode.group`, or where they name none,
        are equal in everything but the response.

        Raises:
            SampleError: A part has no score and its policy is `raise`; what is in flight is cancelled.
            PoolError: A pool cannot be used, whatever the policy.
            ConfigError: A part compares the episodes of a group, and one names no group.
        """
        ...

    async def settled(self, episodes: Sequence[Episode], ratings: Sequence[Rating]) -> list[Rating]:
        """Return the ratings of a group whose episodes were rated one by one, so that one revision of each pool did it.

        Those that another revision scored are rated again; where that cannot be, they are unscored. The others are the
        same objects.

        Raises:
            SampleError: One has no score now, and the policy of a part is `raise`; what is in flight is cancelled.
            PoolError: A pool cannot be used, whatever the policy.
        """
        ...
