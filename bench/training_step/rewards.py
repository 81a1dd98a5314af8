"""How the pipeline has rollouts judged: by calls of a pool that take as long as the protocol says.

The pool has a thread of its own, as in a training job: thousands of requests at once make an event loop slow, and the
devices are not to wait for that.
"""

import asyncio
from collections.abc import Sequence

from rewardpool import BlockingPool, FunctionSample, Sample, Scored
from rewardpool_train.pipeline.parts import GroupScore, GroupTask, RolledGroup, Score
from training_step.pairs import Comparison, PairProtocol
from training_step.protocol import Protocol

Answer = int
"""A rollout is nothing but its member's number here."""


def scoring(pool: BlockingPool, protocol: Protocol) -> Score[int, Answer] | GroupScore[int, Answer]:
    """Return what the protocol asks of the pool: a call for each rollout, or the comparisons of a group."""
    return by_pairs(pool, protocol) if isinstance(protocol, PairProtocol) else by_samples(pool, protocol)


def at_once(protocol: Protocol) -> Score[int, Answer] | GroupScore[int, Answer]:
    """Return what knows every score by itself, and asks nobody."""

    async def score(task: GroupTask[int], member: int, _: Answer) -> float | None:
        return protocol.score(group=task.index, member=member)

    async def judge(group: RolledGroup[int, Answer]) -> Sequence[float | None]:
        return [protocol.score(group=group.task.index, member=member) for member in range(group.task.size)]

    return GroupScore(judge) if isinstance(protocol, PairProtocol) else score


def by_samples(pool: BlockingPool, protocol: Protocol) -> Score[int, Answer]:
    """Return what judges each rollout by itself."""

    async def score(task: GroupTask[int], member: int, _: Answer) -> float | None:
        value = protocol.score(group=task.index, member=member)
        seconds = protocol.reward_seconds(group=task.index, member=member)
        return await _called(pool, value, seconds=seconds, name=f"{task.index}/{member}")

    return score


def by_pairs(pool: BlockingPool, protocol: PairProtocol) -> GroupScore[int, Answer]:
    """Return what has a group's rollouts compared."""

    async def judge(group: RolledGroup[int, Answer]) -> Sequence[float | None]:
        index = group.task.index
        asked = list(protocol.comparisons(group=index))
        calls = [
            _called(pool, one.wins, seconds=one.seconds, name=f"{index}/{one.first}-{one.second}") for one in asked
        ]
        wins = await asyncio.gather(*calls)
        return [_share(member, asked, wins) for member in range(group.task.size)]

    return GroupScore(judge)


def _share(member: int, asked: Sequence[Comparison], wins: Sequence[float | None]) -> float | None:
    """Of the comparisons that a member won; None where one of them has no answer."""
    won = [
        win if win is None or one.first == member else 1.0 - win
        for one, win in zip(asked, wins, strict=True)
        if member in (one.first, one.second)
    ]
    known = [win for win in won if win is not None]
    return sum(known) / len(won) if len(known) == len(won) else None


async def _called(pool: BlockingPool, value: float, *, seconds: float, name: str) -> float | None:
    """Return what the pool says, which is `value` after so many seconds."""
    function = FunctionSample(
        data_source="training-step", solution_str="", ground_truth=value, extra_info={"seconds": seconds}
    )
    outcome = await asyncio.wrap_future(pool.submit(Sample(function=function, id=name)))
    return outcome.value if isinstance(outcome, Scored) else None
