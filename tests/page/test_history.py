"""What the page remembers of pools."""

from itertools import pairwise

import pytest
from support.scripted_pools import a_pool

from rewardpool_page.history import MAX_SAMPLES, SAMPLE_SECONDS, History, quantile, traffic_between
from rewardpool_page.source import Counts, Seen


def counts(answered: int, seconds: float = 0.0) -> Counts:
    return Counts(answered=answered, seconds=seconds, within={0.5: answered, float("inf"): answered})


def seen(key: str = "rl/rm", *, answered: int | None = None) -> Seen:
    pool = a_pool(key, source="hf://org/model")
    return Seen(pool=pool, workers=[], counts=None if answered is None else counts(answered, 2.0 * answered))


def test_a_rate_is_what_was_answered_between_two_looks() -> None:
    history = History()
    for at, answered in ((0.0, 100), (1.0, 110), (5.0, 150)):
        history.take([seen(answered=answered)], now=at)
    traffic = history.of("rl/rm").traffic
    assert traffic is not None
    assert (traffic.per_second, traffic.mean_seconds) == (10.0, 2.0)


def test_a_router_that_counts_anew_begins_another_rate() -> None:
    history = History()
    for at, answered in ((0.0, 100), (5.0, 3), (10.0, 53)):
        history.take([seen(answered=answered)], now=at)
    traffic = history.of("rl/rm").traffic
    assert traffic is not None
    assert traffic.per_second == 10.0


def test_there_is_no_rate_where_the_routers_do_not_say() -> None:
    history = History()
    for at, answered in ((0.0, 100), (5.0, 200), (6.0, None)):
        history.take([seen(answered=answered)], now=at)
    assert history.of("rl/rm").traffic is None


def test_a_latency_is_none_where_nothing_was_answered() -> None:
    traffic = traffic_between(counts(7), counts(7), 5.0)
    assert traffic is not None
    assert (traffic.per_second, traffic.mean_seconds, traffic.p95_seconds) == (0.0, None, None)


@pytest.mark.parametrize(
    ("within", "expected"),
    [
        ({1.0: 90, 2.0: 100, float("inf"): 100}, 1.5),
        ({1.0: 100, float("inf"): 100}, 0.95),
        ({1.0: 50, float("inf"): 100}, None),
        ({}, None),
    ],
)
def test_a_quantile_is_taken_between_two_bounds(within: dict[float, int], expected: float | None) -> None:
    assert quantile(0.95, within) == (None if expected is None else pytest.approx(expected))


def test_samples_are_some_seconds_apart_and_an_hour_at_most() -> None:
    history = History()
    for second in range(0, int((MAX_SAMPLES + 5) * SAMPLE_SECONDS), 2):
        history.take([seen()], now=float(second))
    samples = history.of("rl/rm").samples
    assert len(samples) == MAX_SAMPLES
    assert {after.at - before.at for before, after in pairwise(samples)} == {SAMPLE_SECONDS}


def test_a_pool_that_is_gone_is_forgotten() -> None:
    history = History()
    history.take([seen()], now=0.0)
    history.take([], now=10.0)
    history.take([seen()], now=20.0)
    assert [sample.at for sample in history.of("rl/rm").samples] == [20.0]
