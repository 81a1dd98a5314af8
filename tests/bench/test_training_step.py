"""The published run's figures, and what is made of the measured ones."""

import pytest
from training_step.aims import aims, vs
from training_step.pools import ELASTIC, FIXED, callers, manifest
from training_step.protocol import ANSWERS, Protocol

from rewardpool_api import RewardPool


def test_the_step_divides_as_the_published_figures_say() -> None:
    whole = Protocol(factor=1.0)
    assert whole.floor_seconds == pytest.approx(203.2, abs=0.1)
    assert whole.update_seconds == pytest.approx(100.6, abs=0.1)
    assert whole.rollout_seconds + whole.update_seconds == pytest.approx(whole.floor_seconds)


def test_all_times_are_divided_by_the_same_factor() -> None:
    whole, tenth = Protocol(factor=1.0), Protocol(factor=10.0)
    for name in ("floor_seconds", "rollout_seconds", "update_seconds"):
        assert getattr(tenth, name) == pytest.approx(getattr(whole, name) / 10)
    assert tenth.reward_seconds(group=3, member=1) == pytest.approx(whole.reward_seconds(group=3, member=1) / 10)


def test_rewards_take_what_the_published_ones_do() -> None:
    protocol = Protocol(factor=1.0)
    seconds = [protocol.reward_seconds(group=group, member=member) for group in range(1_000) for member in range(5)]
    assert 1.0 <= min(seconds) <= 1.1
    assert 39.9 <= max(seconds) <= 40.0
    assert sum(seconds) / len(seconds) == pytest.approx(20.5, rel=0.03)


def test_every_answer_has_a_score_of_its_own() -> None:
    protocol = Protocol(factor=1.0)
    scores = {protocol.score(group=group, member=member) for group in range(10_000) for member in range(ANSWERS)}
    assert len(scores) == 50_000


def test_a_trial_run_has_fewer_callers_in_proportion() -> None:
    trial = Protocol(factor=1.0, prompts=256)
    assert (trial.callers, trial.samples, trial.minibatch_prompts) == (64, 1_280, 64)


@pytest.mark.parametrize("name", [FIXED, ELASTIC])
def test_the_pools_are_valid_and_take_all_callers(name: str) -> None:
    protocol = Protocol(factor=20.0)
    pool = RewardPool.model_validate(manifest(name, protocol))
    most = pool.spec.autoscaling.max_replicas if pool.spec.autoscaling else pool.spec.replicas
    assert most is not None
    assert most * int(pool.spec.engine.args[1]) >= callers(name, protocol)


def test_a_share_less_is_negative() -> None:
    assert vs(68.0, 100.0) == -0.32


def test_aims_are_met_or_not_by_their_figures() -> None:
    def figures(fixed: float, elastic: float) -> dict[str, dict[str, float]]:
        return {
            FIXED: {"step_seconds": fixed, "vs_sync": vs(fixed, 30.0)},
            ELASTIC: {"step_seconds": elastic, "vs_sync": vs(elastic, 30.0)},
        }

    result = {"floor_seconds": 10.0, "sync": figures(30.0, 13.0), "one_step_off_minibatch": figures(20.0, 10.5)}
    assert [aim.met for aim in aims(result)] == [True, True, False]
