"""The responses to one prompt, judged against each other: a response's score is the share of comparisons it wins.

Comparing all with all grows with the square of the group, so each response meets a bounded number of others: its
neighbours on a ring, the same number for all.
"""

import statistics
from collections.abc import Sequence

from rewardpool._client.pool import Pool
from rewardpool._rewards.episode import Episode
from rewardpool._rewards.judges.judge import PairJudge, merged_info
from rewardpool._rewards.judges.judge_prompt import response_of
from rewardpool._rewards.part_config import JudgeConfig
from rewardpool._rewards.reward_function import PartScore, RewardFunction, gathered
from rewardpool.errors import InvalidSampleError, SampleError


def pairs_of(members: int, opponents: int) -> list[tuple[int, int]]:
    """Return the pairs that are compared: of different members, no pair twice.

    All pairs, where that is at most `opponents` each; else every member meets exactly `opponents` others (one fewer
    where that is odd), its nearest on a ring.
    """
    if members - 1 <= opponents:
        return [(first, second) for second in range(members) for first in range(second)]
    return [(one, (one + distance) % members) for distance in range(1, opponents // 2 + 1) for one in range(members)]


class GroupComparer:
    def __init__(self, pool: Pool, config: JudgeConfig, *, meta: RewardFunction | None = None) -> None:
        self._judge = PairJudge(pool, config, meta=meta)
        self._opponents = config.opponents

    async def compare(self, episodes: Sequence[Episode]) -> list[PartScore | SampleError]:
        """Return a score from 0 to 1 for each; an unanswered comparison leaves both of its members without a score."""
        if len(episodes) == 1:
            return [
                InvalidSampleError(episodes[0].label, "is alone in its group, so there is nothing to compare it with")
            ]
        pairs = pairs_of(len(episodes), self._opponents)
        results = await gathered([self._meet(episodes[first], episodes[second]) for first, second in pairs])
        met: list[list[PartScore | SampleError]] = [[] for _ in episodes]
        for (first, second), result in zip(pairs, results, strict=True):
            met[first].append(result)
            met[second].append(
                result if isinstance(result, SampleError) else PartScore(1.0 - result.value, result.info)
            )
        return [_share(results) for results in met]

    async def _meet(self, first: Episode, second: Episode) -> PartScore | SampleError:
        try:
            return await self._judge.wins(first, response_of(first), response_of(second))
        except SampleError as error:
            return error


def _share(results: Sequence[PartScore | SampleError]) -> PartScore | SampleError:
    won = []
    for result in results:
        if isinstance(result, SampleError):
            return result
        won.append(result)
    return PartScore(
        statistics.fmean(result.value for result in won),
        {**merged_info([result.info for result in won]), "comparisons": len(won)},
    )
