"""`batch: auto`: which size is found, and what looking for it costs."""

import random
from collections.abc import Callable, Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewardpool._client.rules.batch_size import BatchSize

SIZES = (1, 2, 4, 8, 16)
SLOTS = 8
MOST = 16


def play(
    cost: Mapping[int, float],
    *,
    samples: int,
    timeout: float = 1e9,
    size: BatchSize | None = None,
    noise: Callable[[], float] = lambda: 1.0,
) -> tuple[BatchSize, float]:
    """Score that many while enough wait, where one takes `cost[size]` seconds; returns also the mean of them."""
    size = size or BatchSize(slots=SLOTS, timeout=timeout, most=MOST)
    now, done = 0.0, 0
    while done < samples:
        taken = size.limit
        now += taken * cost[taken] * noise()
        done += taken
        size.answered(taken, seconds=SLOTS * taken * cost[taken], now=now, waiting=True)
    return size, now / done


@pytest.mark.parametrize(
    ("cost", "found"),
    [
        pytest.param(dict.fromkeys(SIZES, 1.0), {1}, id="all the same"),
        pytest.param({size: 1.0 / size for size in SIZES}, {16}, id="requests are all that costs"),
        pytest.param({1: 1.0, 2: 0.7, 4: 0.5, 8: 0.9, 16: 2.0}, {4}, id="a best one between"),
        pytest.param({1: 1.0, 2: 1.2, 4: 0.1, 8: 0.1, 16: 0.1}, {1}, id="the first step is worse"),
    ],
)
def test_the_size_with_the_most_samples_a_second_is_found(cost: dict[int, float], found: set[int]) -> None:
    size, _ = play(cost, samples=20_000)
    assert size._size in found


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(0.3, 2.0), min_size=len(SIZES) - 1, max_size=len(SIZES) - 1))
def test_in_the_long_run_nothing_is_lost_against_single_samples(others: list[float]) -> None:
    _, seconds_each = play(dict(zip(SIZES, [1.0, *others], strict=True)), samples=50_000)
    assert seconds_each <= 1.03


def test_a_smaller_size_that_is_as_good_is_chosen_again() -> None:
    size, _ = play({each: 1.0 / each for each in SIZES}, samples=20_000)
    assert size.limit > 1
    play(dict.fromkeys(SIZES, 1.0), samples=100_000, size=size)
    assert size._size == 1


def test_chance_alone_makes_no_large_requests() -> None:
    chance = random.Random(7)
    size, found = BatchSize(slots=SLOTS, timeout=1e9, most=MOST), []
    for _ in range(400):
        play(dict.fromkeys(SIZES, 1.0), samples=640, size=size, noise=lambda: chance.uniform(0.2, 1.8))
        found.append(size._size)
    assert sum(found) / len(found) < 2.5


def test_answers_that_come_late_make_it_smaller_again() -> None:
    size, _ = play({each: 1.0 / each for each in SIZES}, samples=20_000, timeout=16 * SLOTS * 1.0)
    assert size.limit <= MOST
    for _ in range(10):
        size.answered(size.limit, seconds=1000.0, now=1e9, waiting=True)
    assert size.limit == 1


def test_nothing_is_learned_where_nothing_waits() -> None:
    size = BatchSize(slots=SLOTS, timeout=1e9, most=MOST)
    for number in range(10_000):
        size.answered(1, seconds=0.01, now=number * 0.01, waiting=False)
    assert size.limit == 1
