"""Several responses to one prompt rated in one question, as judges do that were trained for it.

A judge that sees a response's rivals has a measure for it. It also likes some places, so each vote shows the responses
in another order: with as many votes as responses each has been in every place once.
"""

import itertools
from collections.abc import Sequence
from dataclasses import replace

from rewardpool._client.pool import Pool
from rewardpool._rewards.episode import Episode
from rewardpool._rewards.judges.judge import Judge, JudgeVerdict, decide, info_of
from rewardpool._rewards.judges.judge_prompt import JudgePrompt, response_of
from rewardpool._rewards.part_config import JudgeConfig
from rewardpool._rewards.reward_function import PartScore, RewardFunction, gathered
from rewardpool.errors import SampleError


def tables_of(members: int, together: int) -> list[range]:
    """Return the members of each question: all of them, in tables of at most `together`, as even as can be."""
    tables = -(-members // together)
    bounds = [members * table // tables for table in range(tables + 1)]
    return [range(start, end) for start, end in itertools.pairwise(bounds)]


class ListComparer:
    def __init__(self, pool: Pool, config: JudgeConfig, *, meta: RewardFunction | None = None) -> None:
        self._judge = Judge(pool, config, meta=meta)
        self._prompt = JudgePrompt(config)
        self._config = config

    async def compare(self, episodes: Sequence[Episode]) -> list[PartScore | SampleError]:
        """Return each member's score by the votes; a question without a readable answer leaves its members unscored."""
        tables = [[episodes[index] for index in table] for table in tables_of(len(episodes), self._config.together)]
        return list(itertools.chain.from_iterable(await gathered([self._rated(table) for table in tables])))

    async def _rated(self, table: Sequence[Episode]) -> list[PartScore | SampleError]:
        try:
            verdicts = await gathered([self._vote(table, vote) for vote in range(self._config.votes)])
            voters = self._judge.voters(verdicts, label=table[0].label)
        except SampleError as error:
            return [error] * len(table)
        info = {key: value for key, value in info_of(verdicts).items() if key != "votes"}
        scores = []
        for place in range(len(table)):
            votes = [verdict.value[place] for verdict in verdicts]
            value = decide([verdict.value[place] for verdict in voters], self._config.vote)
            scores.append(PartScore(value, {"votes": votes, **info}))
        return list(scores)

    async def _vote(self, table: Sequence[Episode], vote: int) -> JudgeVerdict[tuple[float, ...]]:
        """Read one answer: its scores in the order of the table."""
        count = len(table)
        shown = [(place + vote) % count for place in range(count)]
        responses = {f"response {number}": response_of(table[place]) for number, place in enumerate(shown, start=1)}
        question = await self._prompt.question(table[0], responses, self._config.list_format(count))
        verdict = await self._judge.vote(question, vote)
        by_place = dict(zip(shown, verdict.value, strict=True))
        return replace(verdict, value=tuple(by_place[place] for place in range(count)))
