"""Scores scaled by those of earlier steps: what a group's members get depends on nothing but their own raw scores."""

import asyncio
import json
import statistics
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewardpool._rewards import Episode, LazyReward, RunningMoments
from rewardpool._rewards.composite import CompositeReward, OpenPart
from rewardpool._rewards.mixture import normalized
from rewardpool._rewards.part_config import LengthPenaltyPart
from rewardpool._rewards.reward_function import PartScore
from rewardpool._rewards.score_noise import epsilon
from rewardpool.errors import ConfigError
from rewardpool_train.advantages import group_advantages, is_informative

SCORES = st.floats(allow_nan=False, allow_infinity=False)
STEPS = st.lists(st.lists(SCORES, min_size=1, max_size=8), min_size=1, max_size=4)


class Written:
    """Scores a response by the number that it is."""

    async def score(self, episode: Episode) -> PartScore:
        return PartScore(float(episode.response))


def reward_of(**fields: Any) -> CompositeReward:
    length_penalty = {"max_tokens": 1, "buffer_tokens": 1}
    part = LengthPenaltyPart.model_validate(
        {"name": "a", "length_penalty": length_penalty, "normalize": "running", **fields}
    )
    return CompositeReward([OpenPart(part, "reward", Written())])


def moments_of(reward: CompositeReward) -> RunningMoments:
    assert reward.moments is not None
    return reward.moments


async def totals(reward: CompositeReward, scores: Sequence[float], *, version: int = 0) -> list[float | None]:
    """Rate the responses one by one, as a trainer does whose rollouts end at different times."""
    episodes = [Episode(prompt="?", response=repr(score), group=0, version=version) for score in scores]
    return [(await reward.rate(episode)).total for episode in episodes]


def after(steps: Sequence[Sequence[float]], *, workers: int = 1) -> list[RunningMoments]:
    """The moments of each rank after these steps, whose scores the ranks share; version N is that after N steps."""
    ranks = [RunningMoments({"a": None}) for _ in range(workers)]
    for version, scores in enumerate(steps, start=1):
        for at, score in enumerate(scores):
            ranks[at % workers].count({"a": score})
        told = [rank.to_json(versions=[])["counted"] for rank in ranks]
        for rank in ranks:
            rank.advance(version, together=lambda own, told=told: told)
    return ranks


@pytest.mark.parametrize("scored_before", [0, 512, 20_000])
def test_equal_scores_of_a_group_stay_equal_and_give_no_advantage(scored_before: int) -> None:
    reward = reward_of()
    for at in range(scored_before):
        moments_of(reward).count({"a": float(at % 7)})
    moments_of(reward).advance(1)
    found = asyncio.run(totals(reward, [2.5] * 8, version=1))
    assert len(set(found)) == 1
    assert group_advantages(found) == [0.0] * 8
    assert not is_informative(found)


def test_before_any_step_scores_are_as_they_are() -> None:
    assert asyncio.run(totals(reward_of(), [3.0, -1.0])) == [3.0, -1.0]


def test_scores_of_a_step_are_scaled_by_the_steps_before_and_not_by_each_other() -> None:
    reward = reward_of()
    assert asyncio.run(totals(reward, [1.0, 5.0])) == [1.0, 5.0]
    for score in (1.0, 5.0):
        moments_of(reward).count({"a": score})
    moments_of(reward).advance(2)
    assert asyncio.run(totals(reward, [3.0, 7.0, 900.0], version=2)) == [0.0, 2.0, 448.5]


def test_a_group_that_was_begun_before_a_step_ended_keeps_its_scale_after_it() -> None:
    reward = reward_of()
    [early] = asyncio.run(totals(reward, [4.0]))
    moments_of(reward).count({"a": 100.0})
    moments_of(reward).advance(1)
    [late] = asyncio.run(totals(reward, [4.0]))
    assert early == late == 4.0


def test_what_is_counted_is_clipped_and_never_a_response_without_a_score() -> None:
    moments = RunningMoments({"a": (-1.0, 1.0)})
    for score in (-50.0, None, 50.0):
        moments.count({"a": score, "b": 7.0})
    moments.advance(1)
    assert (moments.scale_of("a", 1).mean, moments.scale_of("a", 1).std) == (0.0, 1.0)


def test_equal_scores_of_all_steps_are_shifted_and_divided_by_nothing() -> None:
    [moments] = after([[3.0, 3.0], [3.0]])
    assert moments.scale_of("a", 2).apply(5.0) == 2.0


def test_scores_that_differ_by_rounding_alone_are_divided_by_nothing() -> None:
    [moments] = after([[3.0, 3.0 + 1e-15]])
    assert moments.scale_of("a", 1).apply(5.0) == pytest.approx(2.0)


@given(STEPS, st.randoms(use_true_random=False), st.integers(1, 4), SCORES)
def test_neither_the_order_of_arrival_nor_the_number_of_workers_changes_a_bit(
    steps: list[list[float]], random: Any, workers: int, score: float
) -> None:
    [alone] = after(steps)
    shared = after([random.sample(scores, k=len(scores)) for scores in steps], workers=workers)
    for version in range(len(steps) + 1):
        expected = alone.scale_of("a", version).apply(score)
        assert all(rank.scale_of("a", version).apply(score) == expected for rank in shared)


@given(st.lists(st.floats(-1e3, 1e3).map(lambda value: round(value, 3)), min_size=1, max_size=30))
def test_the_moments_are_those_of_all_scores_so_far(values: list[float]) -> None:
    [moments] = after([values])
    if len(set(values)) > 1:
        found = [moments.scale_of("a", 1).apply(value) for value in values]
        spread = statistics.pstdev(values)
        assert found == pytest.approx(
            [one * (spread + epsilon(values, "float32")) / spread for one in normalized(values)], abs=1e-9
        )
        assert moments.scale_of("a", 1).std == pytest.approx(spread)


@given(STEPS, st.lists(SCORES, max_size=3), SCORES)
def test_a_job_goes_on_from_its_checkpoint_with_the_same_moments(
    steps: list[list[float]], counted: list[float], score: float
) -> None:
    [straight] = after(steps)
    for value in counted:
        straight.count({"a": value})
    published = len(steps)
    resumed = RunningMoments({"a": None})
    saved = json.loads(json.dumps(straight.to_json(versions=range(published + 1))))
    resumed.restore(saved, version=published + 1)  # an update after the last publication
    resumed.advance(published + 1)  # the resumed job publishes the weights that it has
    assert resumed.scale_of("a", published + 1) == straight.scale_of("a", published)
    for moments in (straight, resumed):
        moments.advance(published + 2)
    for version in (*range(published + 1), published + 2):
        assert resumed.scale_of("a", version) == straight.scale_of("a", version)


def test_frameworks_that_tell_of_no_steps_are_refused_with_the_fields_path_when_the_reward_is_made() -> None:
    spec = {"rewards": [{"pool": "rl/a"}, {"pool": "rl/b", "normalize": "running"}]}
    with pytest.raises(ConfigError, match=r"^reward\.rewards\[1\]\.normalize: .*set \{mean: x, std: y\}"):
        LazyReward(spec)


def test_a_version_that_nobody_told_of_is_refused() -> None:
    reward = reward_of()
    episode = Episode(prompt="?", response="1", version=3)
    with pytest.raises(ValueError, match="no moments of version 3"):
        asyncio.run(reward.rate(episode))
    asyncio.run(reward.rate(replace(episode, version=0)))
