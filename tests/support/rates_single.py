"""RatesSingle: what a stand-in for a BlockingReward has beside `submit`, where it rates single rollouts."""

from collections.abc import Sequence
from concurrent.futures import Future

from rewardpool._rewards import Episode, Rating
from rewardpool._score_waits import ScoreWaits


class RatesSingle:
    """Has no part that needs groups, and none that is scaled by the scores of earlier steps."""

    needs_group = False
    moments = None

    def record_waits(self, waits: ScoreWaits) -> None:
        """It has no pools."""

    def submit_group(self, episodes: Sequence[Episode]) -> Future[list[Rating]]:
        raise AssertionError("nobody rates groups here")

    def submit_settled(self, episodes: Sequence[Episode], ratings: Sequence[Rating]) -> Future[list[Rating]]:
        raise AssertionError("one revision rates all of a group here")
