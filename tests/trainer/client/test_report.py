from functools import reduce
from statistics import fmean, pstdev

import pytest

from rewardpool._client.report import RECENT, Counters, Latency, RunningMean, summarise


def test_quantiles_are_by_nearest_rank() -> None:
    latency = summarise([float(second) for second in range(1, 101)], slowest=100.0)
    assert latency == Latency(p50=50.0, p90=90.0, p99=99.0, max=100.0)


def test_one_latency_is_every_quantile() -> None:
    assert summarise([2.0], slowest=2.0) == Latency(p50=2.0, p90=2.0, p99=2.0, max=2.0)


def test_a_report_of_nothing_is_all_zero() -> None:
    assert Counters().report().latency == Latency()


def test_a_sample_retried_three_times_is_one_retried_sample() -> None:
    counters = Counters()
    for first in (True, False, False):
        counters.retry("busy", first=first)
    report = counters.report()
    assert (report.retried, report.retries) == (1, {"busy": 3})


def test_a_long_job_keeps_the_slowest_and_forgets_the_rest() -> None:
    counters = Counters()
    for seconds in [9.0, *[1.0] * RECENT]:
        counters.score(seconds)
    report = counters.report()
    assert (report.scored, report.latency) == (RECENT + 1, Latency(p50=1.0, p90=1.0, p99=1.0, max=9.0))


def test_the_spread_of_scores_far_from_zero_is_theirs() -> None:
    scores = [1e6 + 0.1 * number for number in range(100)]
    counters = Counters(tally=reduce(RunningMean.plus, scores, RunningMean()))
    announced = counters.job_scores()
    assert announced is not None
    assert (announced.mean, announced.standard_deviation) == pytest.approx((fmean(scores), pstdev(scores)))


def test_scores_near_a_floats_limit_are_counted_and_have_no_mean() -> None:
    announced = Counters(tally=reduce(RunningMean.plus, [1e308, -1e308], RunningMean())).job_scores()
    assert announced is not None
    assert (announced.count, announced.mean, announced.standard_deviation) == (2, None, None)
