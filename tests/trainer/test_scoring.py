from concurrent.futures import Future

import pytest

from rewardpool import Outcome, Sample, Scored, Unscored
from rewardpool.actor.data import Rollout
from rewardpool.actor.scoring import GroupScoring, Tally
from rewardpool.errors import ScoreError


class FakePool:
    """Stands in for a BlockingPool: the test answers each sample itself, by name."""

    def __init__(self) -> None:
        self.asked: dict[str, Future[Outcome]] = {}

    def submit(self, sample: Sample) -> Future[Outcome]:
        self.asked[str(sample.id)] = Future()
        return self.asked[str(sample.id)]

    def answer(self, name: str, value: float) -> None:
        self.asked[name].set_result(Scored(value=value, attempts=1, seconds=0.1))


def rollout(group: int, member: int) -> Rollout:
    return Rollout(group=group, member=member, prompt_ids=[1], response_ids=[2], ended=True)


def scoring_of(pool: FakePool, tally: Tally, *, groups: int) -> GroupScoring:
    """Two responses per group, all submitted."""
    scoring = GroupScoring(
        pool,
        groups=groups,
        size=2,
        to_sample=lambda rollout: Sample(text="t", id=f"{rollout.group}.{rollout.member}"),
        tally=tally,
    )
    for group in range(groups):
        for member in range(2):
            scoring.submit(rollout(group, member))
    return scoring


def test_a_group_is_taken_when_its_own_scores_are_there() -> None:
    pool = FakePool()
    scoring = scoring_of(pool, Tally(), groups=2)
    pool.answer("1.1", 0.2)
    pool.answer("0.0", 0.9)
    pool.answer("1.0", 0.1)
    assert [(group.index, group.scores) for group in scoring.take(1, deadline_seconds=1)] == [(1, [0.1, 0.2])]


def test_an_unscored_sample_is_counted_and_completes_its_group_without_a_number() -> None:
    pool, tally = FakePool(), Tally()
    scoring = scoring_of(pool, tally, groups=1)
    pool.answer("0.0", 0.5)
    pool.asked["0.1"].set_result(Unscored(error=ScoreError("0.1", "nonsense"), attempts=6, seconds=1.0))
    [group] = scoring.take(1, deadline_seconds=1)
    assert group.scores == [0.5, None]
    assert (tally.submitted, tally.scored, tally.unscored, tally.lost) == (2, 1, 1, 0)


def test_a_constant_is_not_counted_as_a_score_from_a_worker() -> None:
    tally = Tally(submitted=1)
    assert tally.enter(Scored(value=-1.0, attempts=6, seconds=1.0, constant=True)) == -1.0
    assert (tally.scored, tally.constants, tally.lost) == (0, 1, 0)


def test_a_failed_sample_under_the_policy_raise_ends_the_step() -> None:
    pool = FakePool()
    scoring = scoring_of(pool, Tally(), groups=1)
    pool.asked["0.1"].set_exception(ScoreError("0.1", "nonsense"))
    with pytest.raises(ScoreError, match=r"sample 0\.1: nonsense"):
        scoring.take(1, deadline_seconds=1)


def test_scores_that_do_not_come_are_waited_for_until_the_deadline() -> None:
    tally = Tally()
    scoring = scoring_of(FakePool(), tally, groups=1)
    with pytest.raises(TimeoutError, match="2 samples have no outcome after 30 s; raise step_deadline_seconds"):
        scoring.take(1, deadline_seconds=30, clock=iter([0.0, 31.0]).__next__)
    assert tally.lost == 2
