"""What one replica does: which measurements count, and what they come to."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.decide_builders import NOW

from rewardpool_api.autoscaling import ServiceRateSpec
from rewardpool_api.status import ServiceRateStatus
from rewardpool_control.autoscaler.service_rate import MAX_MEASUREMENTS, learned, service_rate
from rewardpool_control.autoscaler.signals import Throughput

SPEC = ServiceRateSpec()


def measured(*rates, in_flight=16, spec=SPEC, known=None, apart=5, start=1, tokens=None):
    """What is known after these rates, one measurement after the other."""
    for number, rate in enumerate(rates, start=start):
        at = NOW + timedelta(seconds=number * apart)
        seen = [Throughput(worker="w", rate=rate, in_flight=in_flight)]
        known = learned(known, seen, spec=spec, now=at, tokens=tokens)
    return known


def later(known, *, tokens=None, **throughput):
    at = NOW + timedelta(hours=1)
    return learned(known, [Throughput(worker="w", **throughput)], spec=SPEC, now=at, tokens=tokens)


def test_nothing_is_known_before_something_was_measured():
    assert service_rate(learned(None, [], spec=SPEC, now=NOW), spec=SPEC) is None


def test_the_manifest_stands_in_until_then():
    rate = service_rate(None, spec=ServiceRateSpec(initial_per_replica=12))
    assert (rate.per_replica, rate.latency_seconds) == (12, 0)


def test_the_rate_is_the_median_which_a_long_sample_does_not_move():
    assert measured(10, 10, 0.1, 10, 10).per_replica == 10


def test_a_lower_quantile_is_more_careful():
    assert measured(2, 4, 6, 8, 10, spec=ServiceRateSpec(quantile=0.25)).per_replica == 4


def test_a_replica_with_little_to_do_says_nothing():
    known = measured(10, 10)
    assert later(known, rate=1, in_flight=2) is known


def test_a_replica_with_little_to_do_that_does_more_says_something():
    known = measured(10)
    assert later(known, rate=30, in_flight=1).per_replica == 20


def test_a_full_replica_that_became_slower_counts():
    known = measured(*[10] * 8)
    assert measured(*[2] * 16, in_flight=40, known=known, start=9).per_replica == 2


def test_what_few_requests_showed_is_dropped_when_more_show_more():
    known = measured(3, 3, 3, in_flight=2)
    assert later(known, rate=25, in_flight=40).per_replica == 25


def test_the_fewest_requests_with_which_a_replica_does_as_much_are_enough():
    known = measured(25, in_flight=320)
    known = measured(24, in_flight=20, known=known, start=2)
    assert (known.in_flight, known.per_replica) == (20, 25)


def test_a_queue_at_the_replica_does_not_look_like_a_slow_replica():
    known = measured(25, 25, 25, in_flight=320)
    known = measured(24, in_flight=25, known=known, start=5)
    assert service_rate(known, spec=SPEC).latency_seconds == 1


def test_measurements_are_kept_some_seconds_apart():
    assert len(measured(10, 11, 12, apart=1).measured) == 1


def test_the_last_measurements_are_kept():
    assert len(measured(*range(1, 40)).measured) == MAX_MEASUREMENTS


@pytest.mark.parametrize("rate", [float("nan"), float("inf"), 0.0, -1.0])
def test_nonsense_is_no_measurement(rate):
    assert measured(rate) is None


def test_no_number_of_replicas_answers_faster_than_one_request_takes():
    rate = service_rate(measured(0.8, in_flight=16), spec=SPEC)
    assert rate.latency_seconds == 20
    assert rate.within(5) == rate.within(20) == 16


def test_long_samples_do_not_look_like_a_slow_replica():
    known = measured(64, in_flight=64, tokens=128)
    known = measured(1, in_flight=2, known=known, start=2, tokens=8192)
    assert (known.per_replica, known.tokens_per_sample) == (8190, 8190)


@pytest.mark.parametrize(
    ("tokens", "rate", "latency"),
    [
        pytest.param(128, 64, 1.0, id="as long as those that were measured"),
        pytest.param(8192, 1, 1.0, id="longer"),
        pytest.param(81920, 0.1, 10.0, id="longer than what is enough for a replica"),
        pytest.param(None, 64, 1.0, id="unknown, so taken for as long as those"),
    ],
)
def test_the_rate_is_for_samples_of_the_present_length(tokens, rate, latency):
    known = measured(64, in_flight=64, tokens=128)
    found = service_rate(known, spec=SPEC, tokens=tokens)
    assert found.per_replica == pytest.approx(rate, rel=0.01)
    assert found.latency_seconds == pytest.approx(latency, rel=0.01)


def test_a_rate_of_samples_becomes_one_of_tokens_when_a_job_says_how_long_they_are():
    known = measured(64, in_flight=64)
    assert service_rate(known, spec=SPEC, tokens=8192).per_replica == 64
    known = later(known, rate=1, in_flight=1, tokens=100)
    assert (known.per_replica, known.in_flight, known.measured[0].rate) == (6400, 6400, 6400)


def test_a_job_that_does_not_say_it_is_measured_by_the_last_known_length():
    known = measured(64, in_flight=64, tokens=100)
    known = measured(32, in_flight=128, known=known, start=2)
    assert [one.rate for one in known.measured] == [6400, 3200]


@pytest.mark.parametrize("tokens", [1e9, 1.0])
def test_no_length_makes_a_rate_that_no_status_takes(tokens):
    known = later(measured(9e11), rate=1, in_flight=1, tokens=tokens)
    assert ServiceRateStatus.model_validate_json(known.model_dump_json(by_alias=True)) == known


@given(st.lists(st.tuples(st.floats(0.01, 1e5), st.integers(1, 1000)), min_size=1, max_size=60))
def test_the_rate_is_always_among_the_measured_ones(seen):
    known = None
    for number, (rate, in_flight) in enumerate(seen):
        at = NOW + timedelta(seconds=6 * number)
        known = learned(known, [Throughput(worker="w", rate=rate, in_flight=in_flight)], spec=SPEC, now=at)
    rates = [one.rate for one in known.measured]
    assert min(rates) <= known.per_replica <= max(rates)
