"""How soon a pool is looked at again."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.decide_builders import a_pool

from rewardpool_api import RewardPoolStatus
from rewardpool_api.first_score import FirstScoreStatus
from rewardpool_api.status import ScalingStatus
from rewardpool_control.plan import Plan
from rewardpool_operator.kubernetes.queue.requeue import (
    AT_ZERO,
    BUSY_SECONDS,
    FIGURES,
    FIRST_SCORE_SECONDS,
    FIXED,
    GATHER,
    ON_THE_WAY,
    PARKED,
    SCALING,
    SECRETS,
    STEP,
    Pace,
    PassOutcome,
    rest_of,
    seconds_until_next,
)


@pytest.mark.parametrize(
    ("quiet_for", "rest", "pools", "seconds"),
    [
        (0.0, FIXED, 1, 1.5),
        (4.0, FIXED, 1, 2.0),
        (3600.0, FIXED, 1, 3.0),
        (0.0, FIXED, 640, 38.5),
        (3600.0, FIXED, 640, 40.0),
        (3600.0, FIXED, 9000, 60.0),
        (3600.0, SCALING, 1, 1.0),
        (3600.0, SCALING, 100, 1.0),
        (3600.0, SCALING, 300, 3.0),
        (0.0, SCALING, 300, 1.5),
        (3600.0, SCALING, 1000, 5.0),
        (3600.0, AT_ZERO, 1, 0.25),
        (3600.0, AT_ZERO, 25, 0.25),
        (3600.0, AT_ZERO, 100, 1.0),
        (3600.0, AT_ZERO, 1000, 5.0),
    ],
)
def test_a_pool_is_looked_at_less_often_the_longer_it_is_quiet(
    quiet_for: float, rest: Pace, pools: int, seconds: float
) -> None:
    assert seconds_until_next(PassOutcome.QUIET, quiet_for=quiet_for, rest=rest, pools=pools) == seconds


@given(st.floats(0, 1e6), st.sampled_from([FIXED, SCALING, AT_ZERO]), st.integers(1, 10_000))
def test_no_pool_with_replicas_is_looked_at_more_often_than_a_busy_one_nor_any_forgotten(
    quiet_for: float, rest: Pace, pools: int
) -> None:
    shortest = min(BUSY_SECONDS, rest.shortest)
    assert (
        shortest <= seconds_until_next(PassOutcome.QUIET, quiet_for=quiet_for, rest=rest, pools=pools) <= rest.longest
    )


@pytest.mark.parametrize(
    ("rest", "pools"), [(SCALING, 100), (SCALING, 500), (FIXED, 180), (FIXED, 900), (AT_ZERO, 25), (AT_ZERO, 500)]
)
def test_the_looks_at_all_quiet_pools_together_are_bounded(rest: Pace, pools: int) -> None:
    assert pools / seconds_until_next(PassOutcome.QUIET, quiet_for=3600.0, rest=rest, pools=pools) <= rest.per_second


SCALES = {"minReplicas": 0, "maxReplicas": 2, "policy": {"queueDepth": {"targetPerReplica": 8}}}


@pytest.mark.parametrize(
    ("spec", "desired", "rest"),
    [
        ({}, 0, FIXED),
        ({"autoscaling": SCALES}, None, SCALING),
        ({"autoscaling": SCALES}, 1, SCALING),
        ({"autoscaling": SCALES}, 0, AT_ZERO),
        ({"autoscaling": SCALES | {"parked": 1}, "worker": {"gpus": 0}}, 0, PARKED),
        ({"autoscaling": SCALES | {"parked": 1}, "worker": {"gpus": 0}}, 1, SCALING),
        ({"autoscaling": SCALES, "suspend": True}, 0, SCALING),
    ],
)
def test_a_pool_at_zero_that_a_request_may_wake_is_looked_at_most_often(
    spec: dict[str, Any], desired: int | None, rest: Pace
) -> None:
    scaling = None if desired is None else ScalingStatus(desired=desired, reason="")
    assert rest_of(a_pool(RewardPoolStatus(scaling=scaling), **spec)) == rest


def test_a_first_score_is_waited_for_in_short_steps() -> None:
    first = FirstScoreStatus(since="2026-01-01T00:00:00Z", seconds=1.0, waits_for="Answer")
    plan = Plan(status=RewardPoolStatus(first_score=first))
    assert PassOutcome.from_plan(plan, changed=True) is PassOutcome.ANSWER
    assert seconds_until_next(PassOutcome.ANSWER, quiet_for=0.0, rest=AT_ZERO, pools=1) == FIRST_SCORE_SECONDS


@pytest.mark.parametrize(("pools", "seconds"), [(1, 0.5), (500, 0.5), (1000, 1.0)])
def test_after_a_change_a_pool_is_looked_at_soon_but_not_before_its_events(pools: int, seconds: float) -> None:
    assert seconds_until_next(PassOutcome.CHANGED, quiet_for=0.0, rest=FIXED, pools=pools) == seconds


@pytest.mark.parametrize(("pools", "seconds"), [(1, 5.0), (200, 5.0), (1000, 25.0)])
def test_the_figures_of_many_pools_are_written_less_often(pools: int, seconds: float) -> None:
    assert FIGURES.seconds(pools) == seconds


@pytest.mark.parametrize(("pools", "seconds"), [(0, 0.05), (50, 0.05), (500, 0.5), (5000, 1.0)])
def test_the_events_of_many_pools_are_gathered_for_longer(pools: int, seconds: float) -> None:
    assert GATHER.seconds(pools) == seconds


@pytest.mark.parametrize(("pools", "seconds"), [(0, 1.0), (100, 1.0), (500, 2.5), (5000, 5.0)])
def test_what_is_on_its_way_is_looked_at_with_what_follows(pools: int, seconds: float) -> None:
    assert ON_THE_WAY.seconds(pools) == seconds


@pytest.mark.parametrize(("pools", "seconds"), [(1, 1.0), (100, 1.0), (500, 5.0), (5000, 10.0)])
def test_the_steps_of_many_pools_wait_longer_for_the_next_state(pools: int, seconds: float) -> None:
    assert STEP.seconds(pools) == seconds


@pytest.mark.parametrize(("pools", "seconds"), [(1, 4.0), (32, 4.0), (320, 40.0), (5000, 120.0)])
def test_secrets_of_many_pools_are_read_less_often(pools: int, seconds: float) -> None:
    assert SECRETS.seconds(pools) == pytest.approx(seconds)
