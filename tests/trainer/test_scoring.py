import asyncio
from collections.abc import Sequence
from concurrent.futures import Future

import pytest
from support.rates_single import RatesSingle

from rewardpool._rewards import Episode, Rating
from rewardpool.errors import ScoreError
from rewardpool_train.actor.data import Prompt, Trajectory
from rewardpool_train.actor.scoring import OutcomeTally, RewardScore
from rewardpool_train.pipeline.parts import GroupScore, GroupTask, RolledGroup

TASK = GroupTask(index=3, prompt=Prompt(prompt="?"), size=2, version=0)
ROLLOUT = Trajectory(group=3, member=1, prompt_ids=[1], response_ids=[2], ended=True)


class FakeReward(RatesSingle):
    """Stands in for a BlockingReward: the test rates the episode itself."""

    names = ("right",)

    def __init__(self) -> None:
        self.answer: Future[Rating] = Future()
        self.asked = asyncio.Event()

    def submit(self, episode: Episode) -> Future[Rating]:
        assert episode.id == "3.1"
        self.asked.set()
        return self.answer


class FakeGroupReward(RatesSingle):
    """The same for a reward that needs groups."""

    names = ("right",)
    needs_group = True

    def __init__(self) -> None:
        self.answer: Future[list[Rating]] = Future()
        self.asked = asyncio.Event()

    def submit(self, episode: Episode) -> Future[Rating]:
        raise AssertionError("this reward needs groups")

    def submit_group(self, episodes: Sequence[Episode]) -> Future[list[Rating]]:
        assert [episode.id for episode in episodes] == ["3.0", "3.1"]
        self.asked.set()
        return self.answer


def scoring_by(reward: FakeReward | FakeGroupReward, tally: OutcomeTally) -> RewardScore:
    def to_episode(task: GroupTask[Prompt], member: int, _: Trajectory) -> Episode:
        return Episode(prompt="?", response="!", id=f"{task.index}.{member}")

    return RewardScore(reward, to_episode=to_episode, tally=tally)


async def score(reward: FakeReward, tally: OutcomeTally) -> float | None:
    return await scoring_by(reward, tally).score(TASK, 1, ROLLOUT)


async def test_a_score_is_the_rewards_total_and_is_counted() -> None:
    reward, tally = FakeReward(), OutcomeTally()
    reward.answer.set_result(Rating(total=0.5, components={"right": 1.0}))
    assert await score(reward, tally) == 0.5
    assert (tally.submitted, tally.scored, tally.lost) == (1, 1, 0)


async def test_an_unscored_sample_is_counted_and_has_no_number() -> None:
    reward, tally = FakeReward(), OutcomeTally()
    failed = ScoreError("3.1", "not a number")
    reward.answer.set_result(Rating(total=None, components={"right": None}, error=failed))
    assert await score(reward, tally) is None
    assert (tally.submitted, tally.unscored, tally.lost) == (1, 1, 0)


def test_a_penalty_is_not_counted_as_a_score_from_a_worker() -> None:
    tally = OutcomeTally(submitted=1)
    assert tally.record(Rating(total=-1.0, components={"right": None}, error=ScoreError("3.1", "not a number"))) == -1.0
    assert (tally.scored, tally.penalties, tally.lost) == (0, 1, 0)


async def test_a_failed_sample_under_the_policy_raise_is_its_error_and_a_sample_that_was_lost() -> None:
    reward, tally = FakeReward(), OutcomeTally()
    reward.answer.set_exception(ScoreError("3.1", "not a number"))
    with pytest.raises(ScoreError, match=r"sample 3\.1: not a number"):
        await score(reward, tally)
    assert tally.lost == 1


async def test_what_the_job_gives_up_is_not_lost_and_the_reward_is_told() -> None:
    reward, tally = FakeReward(), OutcomeTally()
    scoring = asyncio.create_task(score(reward, tally))
    await reward.asked.wait()
    scoring.cancel()
    with pytest.raises(asyncio.CancelledError):
        await scoring
    assert tally.lost == 0
    assert reward.answer.cancelled()


async def test_what_the_parts_said_is_kept_until_the_group_is_trained_on_and_no_longer() -> None:
    reward = FakeReward()
    reward.answer.set_result(Rating(total=0.5, components={"right": 1.0}))
    scoring = scoring_by(reward, OutcomeTally())
    await scoring.score(TASK, 1, ROLLOUT)
    assert scoring.pop_components(TASK) == [{"right": 1.0}]
    assert scoring.pop_components(TASK) == []


async def judge(reward: FakeGroupReward, tally: OutcomeTally) -> list[float | None]:
    return await scoring_by(reward, tally).judge(RolledGroup(task=TASK, rollouts=[ROLLOUT, ROLLOUT]))


def test_a_reward_that_needs_groups_is_asked_of_groups_and_another_of_single_rollouts() -> None:
    assert isinstance(scoring_by(FakeGroupReward(), OutcomeTally()).as_scoring(), GroupScore)
    assert not isinstance(scoring_by(FakeReward(), OutcomeTally()).as_scoring(), GroupScore)


async def test_each_member_of_a_group_has_its_own_rating_and_is_counted_by_it() -> None:
    reward, tally = FakeGroupReward(), OutcomeTally()
    failed = Rating(total=None, components={"right": None}, error=ScoreError("3.1", "no comparison"))
    reward.answer.set_result([Rating(total=0.5, components={"right": 1.0}), failed])
    scoring = scoring_by(reward, tally)
    assert await scoring.judge(RolledGroup(task=TASK, rollouts=[ROLLOUT, ROLLOUT])) == [0.5, None]
    assert (tally.submitted, tally.scored, tally.unscored, tally.lost) == (2, 1, 1, 0)
    assert scoring.pop_components(TASK) == [{"right": 1.0}, {"right": None}]


async def test_a_group_that_fails_under_the_policy_raise_is_its_error_and_all_of_it_is_lost() -> None:
    reward, tally = FakeGroupReward(), OutcomeTally()
    reward.answer.set_exception(ScoreError("3.1", "not a number"))
    with pytest.raises(ScoreError, match=r"sample 3\.1: not a number"):
        await judge(reward, tally)
    assert tally.lost == 2


async def test_a_group_that_the_job_gives_up_is_not_lost_and_the_reward_is_told() -> None:
    reward, tally = FakeGroupReward(), OutcomeTally()
    judging = asyncio.create_task(judge(reward, tally))
    await reward.asked.wait()
    judging.cancel()
    with pytest.raises(asyncio.CancelledError):
        await judging
    assert (tally.given_up, tally.lost) == (2, 0)
    assert reward.answer.cancelled()
