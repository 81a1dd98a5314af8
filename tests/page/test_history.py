"""What the page remembers of pools."""

from itertools import pairwise

import pytest
from support.scripted_pools import a_pool

from rewardpool_page.history import (
    MAX_MEANS,
    MAX_SAMPLES,
    MEAN_SECONDS,
    SAMPLE_SECONDS,
    History,
    HistoryPoint,
    Means,
    mean_of,
    quantile,
    traffic_between,
)
from rewardpool_page.source import Counts, Seen


def counts(answered: int, seconds: float = 0.0) -> Counts:
    return Counts(answered=answered, seconds=seconds, within={0.5: answered, float("inf"): answered})


def seen(key: str = "rl/rm", *, answered: int | None = None) -> Seen:
    pool = a_pool(key, source="hf://org/model")
    return Seen(pool=pool, workers=[], counts=None if answered is None else counts(answered, 2.0 * answered))


def test_a_rate_is_what_was_answered_between_two_looks() -> None:
    history = History()
    for at, answered in ((0.0, 100), (1.0, 110), (5.0, 150)):
        history.record([seen(answered=answered)], now=at)
    traffic = history.get("rl/rm").traffic
    assert traffic is not None
    assert (traffic.per_second, traffic.mean_seconds) == (10.0, 2.0)


def test_a_router_that_counts_anew_begins_another_rate() -> None:
    history = History()
    for at, answered in ((0.0, 100), (5.0, 3), (10.0, 53)):
        history.record([seen(answered=answered)], now=at)
    traffic = history.get("rl/rm").traffic
    assert traffic is not None
    assert traffic.per_second == 10.0


def test_there_is_no_rate_where_the_routers_do_not_say() -> None:
    history = History()
    for at, answered in ((0.0, 100), (5.0, 200), (6.0, None)):
        history.record([seen(answered=answered)], now=at)
    assert history.get("rl/rm").traffic is None


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
        history.record([seen()], now=float(second))
    samples = history.get("rl/rm").samples
    assert len(samples) == MAX_SAMPLES
    assert {after.at - before.at for before, after in pairwise(samples)} == {SAMPLE_SECONDS}


def test_a_pool_that_is_gone_is_forgotten() -> None:
    history = History()
    history.record([seen()], now=0.0)
    history.record([], now=10.0)
    history.record([seen()], now=20.0)
    assert [sample.at for sample in history.get("rl/rm").samples] == [20.0]


def sample(at: float, **others: float | None) -> HistoryPoint:
    known: dict[str, float | None] = dict.fromkeys(
        ("in_flight", "waiting", "per_second", "mean_seconds", "p95_seconds")
    )
    return HistoryPoint(at=at, **{"desired": 3, "ready": 2} | known | others)  # type: ignore[arg-type]


def test_a_mean_has_the_latest_sizes_the_mean_load_and_the_latency_of_all_requests() -> None:
    busy = sample(0.0, in_flight=10, per_second=30.0, mean_seconds=1.0, p95_seconds=4.0, desired=1)
    calm = sample(10.0, in_flight=0, per_second=10.0, mean_seconds=3.0, p95_seconds=3.0, waiting=2)
    assert mean_of([busy, calm, sample(20.0)]) == sample(
        20.0, in_flight=5, waiting=2, per_second=20.0, mean_seconds=1.5, p95_seconds=4.0
    )


def test_means_are_kept_as_they_were_and_a_week_of_them_at_most() -> None:
    means = Means()
    for number in range(MAX_MEANS + 2):
        means.add(sample(number * MEAN_SECONDS, in_flight=number, per_second=0.5))
    kept = means.since(0.0)
    assert (len(kept), kept[0].at) == (MAX_MEANS, 2 * MEAN_SECONDS)
    assert means.since(kept[-1].at) == (
        sample((MAX_MEANS + 1) * MEAN_SECONDS, in_flight=MAX_MEANS + 1, per_second=0.5),
    )


def test_a_mean_is_of_the_samples_since_the_one_before_and_the_first_comes_at_once() -> None:
    history = History()
    for second in range(0, int(2 * MEAN_SECONDS) + 1, int(SAMPLE_SECONDS)):
        history.record([seen()], now=float(second))
    assert [one.at for one in history.get("rl/rm").means.since(0.0)] == [0.0, MEAN_SECONDS, 2 * MEAN_SECONDS]


def test_a_look_without_counts_leaves_the_rate_to_the_next_one_that_has_them() -> None:
    history = History()
    for at, answered in ((0.0, 100), (30.0, None), (60.0, 700)):
        history.record([seen(answered=answered)], now=at, counted=answered is not None)
    assert [one.per_second for one in history.get("rl/rm").samples] == [None, None, 10.0]
