import asyncio
from concurrent.futures import Future

import pytest

from rewardpool import Outcome, Sample, Scored, Unscored
from rewardpool.actor.data import Prompt, Rollout
from rewardpool.actor.scoring import PoolScore, Tally
from rewardpool.errors import ScoreError
from rewardpool.pipeline.parts import GroupTask

TASK = GroupTask(index=3, prompt=Prompt(prompt="?"), size=2, version=0)
ROLLOUT = Rollout(group=3, member=1, prompt_ids=[1], response_ids=[2], ended=True)


class FakePool:
    """Stands in for a BlockingPool: the test answers the sample itself."""

    def __init__(self) -> None:
        self.answer: Future[Outcome] = Future()
        self.asked = asyncio.Event()

    def submit(self, sample: Sample) -> Future[Outcome]:
        assert sample.id == "3.1"
        self.asked.set()
        return self.answer


async def score(pool: FakePool, tally: Tally) -> float | None:
    scoring = PoolScore(
        pool, to_sample=lambda task, member, _: Sample(text="t", id=f"{task.index}.{member}"), tally=tally
    )
    return await scoring(TASK, 1, ROLLOUT)


async def test_a_score_is_the_pools_and_is_counted() -> None:
    pool, tally = FakePool(), Tally()
    pool.answer.set_result(Scored(value=0.5, attempts=1, seconds=0.1))
    assert await score(pool, tally) == 0.5
    assert (tally.submitted, tally.scored, tally.lost) == (1, 1, 0)


async def test_an_unscored_sample_is_counted_and_has_no_number() -> None:
    pool, tally = FakePool(), Tally()
    pool.answer.set_result(Unscored(error=ScoreError("3.1", "nonsense"), attempts=6, seconds=1.0))
    assert await score(pool, tally) is None
    assert (tally.submitted, tally.unscored, tally.lost) == (1, 1, 0)


def test_a_constant_is_not_counted_as_a_score_from_a_worker() -> None:
    tally = Tally(submitted=1)
    assert tally.enter(Scored(value=-1.0, attempts=6, seconds=1.0, constant=True)) == -1.0
    assert (tally.scored, tally.constants, tally.lost) == (0, 1, 0)


async def test_a_failed_sample_under_the_policy_raise_is_its_error_and_a_sample_that_was_lost() -> None:
    pool, tally = FakePool(), Tally()
    pool.answer.set_exception(ScoreError("3.1", "nonsense"))
    with pytest.raises(ScoreError, match=r"sample 3\.1: nonsense"):
        await score(pool, tally)
    assert tally.lost == 1


async def test_what_the_job_gives_up_is_not_lost_and_the_pool_is_told() -> None:
    pool, tally = FakePool(), Tally()
    scoring = asyncio.create_task(score(pool, tally))
    await pool.asked.wait()
    scoring.cancel()
    with pytest.raises(asyncio.CancelledError):
        await scoring
    assert (tally.given_up, tally.lost) == (1, 0)
    assert pool.answer.cancelled()
