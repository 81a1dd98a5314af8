"""How soon a pool is looked at again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewardpool_operator.kubernetes.credentials.secret_reader import seconds_between_reads
from rewardpool_operator.kubernetes.requeue import (
    BUSY_SECONDS,
    FIXED,
    SCALING,
    Outcome,
    seconds_between_volatile_writes,
    seconds_until_next,
)


@pytest.mark.parametrize(
    ("quiet_for", "scales", "pools", "seconds"),
    [
        (0.0, False, 1, 1.5),
        (4.0, False, 1, 2.0),
        (3600.0, False, 1, 3.0),
        (0.0, False, 600, 5.0),
        (3600.0, False, 600, 10.0),
        (3600.0, False, 9000, 15.0),
        (3600.0, True, 1, 1.0),
        (3600.0, True, 100, 1.0),
        (3600.0, True, 300, 3.0),
        (0.0, True, 300, 1.5),
        (3600.0, True, 1000, 5.0),
    ],
)
def test_a_pool_is_looked_at_less_often_the_longer_it_is_quiet(
    quiet_for: float, scales: bool, pools: int, seconds: float
) -> None:
    assert seconds_until_next(Outcome.QUIET, quiet_for=quiet_for, scales=scales, pools=pools) == seconds


@given(st.floats(0, 1e6), st.booleans(), st.integers(1, 10_000))
def test_no_pool_is_looked_at_more_often_than_a_busy_one_nor_forgotten(
    quiet_for: float, scales: bool, pools: int
) -> None:
    longest = SCALING.longest if scales else FIXED.longest
    assert BUSY_SECONDS <= seconds_until_next(Outcome.QUIET, quiet_for=quiet_for, scales=scales, pools=pools) <= longest


@pytest.mark.parametrize(("scales", "pools"), [(True, 100), (True, 500), (False, 180), (False, 900)])
def test_the_looks_at_all_quiet_pools_together_are_bounded(scales: bool, pools: int) -> None:
    bound = SCALING.per_second if scales else FIXED.per_second
    assert pools / seconds_until_next(Outcome.QUIET, quiet_for=3600.0, scales=scales, pools=pools) <= bound


@pytest.mark.parametrize(("pools", "seconds"), [(1, 5.0), (200, 5.0), (1000, 25.0)])
def test_the_figures_of_many_pools_are_written_less_often(pools: int, seconds: float) -> None:
    assert seconds_between_volatile_writes(pools) == seconds


@pytest.mark.parametrize(("pools", "seconds"), [(1, 4.0), (66, 4.0), (660, 40.0), (5000, 60.0)])
def test_secrets_of_many_pools_are_read_less_often(pools: int, seconds: float) -> None:
    assert seconds_between_reads(pools) == pytest.approx(seconds)
