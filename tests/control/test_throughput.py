"""What a worker does, by tables of looks and a clock of the test's own."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.decide_builders import a_router, a_worker

from rewardpool_control.autoscaler.signals import Throughput
from rewardpool_control.snapshot import RegisteredWorker, Router, Worker
from rewardpool_control.throughput import (
    APART_SECONDS,
    LONGEST_SECONDS,
    SHORTEST_SECONDS,
    VALID_SECONDS,
    BusyWorker,
    Count,
    Throughputs,
)
from rewardpool_operator.kubernetes.queue.requeue import BUSY_SECONDS

Look = tuple[float, int, int]
"""Seconds, requests answered, requests in flight."""


def measured(*looks: Look) -> tuple[float, int] | None:
    """What is said at the last look."""
    busy, said = BusyWorker(), None
    for now, answered, in_flight in looks:
        said = busy.record(Count(answered={"router": answered}, in_flight=in_flight), now=now)
    return said


def steady(rate: int, *, until: int, in_flight: int = 4) -> list[Look]:
    """A look every second."""
    return [(float(second), rate * second, in_flight) for second in range(until + 1)]


@pytest.mark.parametrize(
    ("looks", "expected"),
    [
        pytest.param(steady(6, until=4), (6.0, 4), id="busy all the time"),
        pytest.param(steady(6, until=3), None, id="not for long enough"),
        pytest.param(steady(0, until=90), None, id="it answers nothing"),
        pytest.param(steady(6, until=9, in_flight=0), None, id="it has nothing to do"),
        pytest.param([*steady(6, until=3), (4, 24, 1)], (6.0, 1), id="the least in flight counts"),
        pytest.param([*steady(6, until=3), (3.5, 20, 0), (4, 20, 4)], None, id="a breath in between"),
        pytest.param([*steady(6, until=2), (6, 36, 4)], None, id="nobody looked for a while"),
        pytest.param([*steady(6, until=3), (4, 2, 4)], None, id="a router that was restarted"),
        pytest.param(
            [(0, 9, 4), (1, 9, 4), (2, 9, 4), (3, 9, 4), (4, 17, 4)], None, id="a first wave has no beginning"
        ),
        pytest.param(
            [*((float(t), 8 * (t // 4), 8) for t in range(9))], (2.0, 8), id="from one wave of answers to the next"
        ),
        pytest.param([*((float(t), t // 2, 1) for t in range(7))], None, id="one sample tells nothing yet"),
        pytest.param([*((float(t), t // 2, 1) for t in range(11))], (0.5, 1), id="four slow samples do"),
        pytest.param([*((float(t), t // 20, 1) for t in range(61))], (0.05, 1), id="and one does after a long time"),
    ],
)
def test_what_a_worker_does(looks: Sequence[Look], expected: tuple[float, int] | None) -> None:
    assert measured(*looks) == expected


def test_a_measurement_is_passed_on_for_a_moment_and_not_for_ever() -> None:
    looks = steady(6, until=4)
    assert measured(*looks, (4 + VALID_SECONDS - 0.5, 24, 0)) == (6.0, 4)
    assert measured(*looks, (4 + VALID_SECONDS, 24, 0)) is None


def test_a_figure_that_is_missing_begins_anew() -> None:
    busy = BusyWorker()
    for now, answered, in_flight in steady(6, until=3):
        busy.record(Count(answered={"router": answered}, in_flight=in_flight), now=now)
    assert busy.record(None, now=3.5) is None
    assert busy.record(Count(answered={"router": 24}, in_flight=4), now=4) is None


@given(st.lists(st.tuples(st.floats(0.05, 5), st.integers(-50, 50), st.integers(0, 8)), max_size=60))
def test_whatever_the_counters_do_nothing_impossible_is_measured(steps: list[tuple[float, int, int]]) -> None:
    busy, now, answered, most = BusyWorker(), 0.0, 100, 0
    for seconds, more, in_flight in steps:
        now, answered = now + seconds, max(0, answered + more)
        most += max(0, more)
        said = busy.record(Count(answered={"router": answered}, in_flight=in_flight), now=now)
        if said is not None:
            rate, least = said
            assert 0 < rate <= most / SHORTEST_SECONDS
            assert least > 0


@given(rate=st.integers(1, 500), apart=st.floats(0.2, 2.0), restart=st.integers(1, 30))
def test_a_steady_rate_is_measured_as_it_is_whenever_the_router_restarts(rate: int, apart: float, restart: int) -> None:
    busy, said = BusyWorker(), None
    for look in range(int(3 * LONGEST_SECONDS / apart)):
        now = look * apart
        since = now - restart * apart if look >= restart else now
        said = busy.record(Count(answered={"router": int(rate * since)}, in_flight=3), now=now) or said
    assert said is not None
    # A count is a whole number, so each end of a measurement is uncertain by one answer.
    assert said[0] == pytest.approx(rate, abs=2 / SHORTEST_SECONDS)


def a_counting_router(name: str, answered: int | None, in_flight: int | None = 4, **fields: Any) -> Router:
    entry = RegisteredWorker(id="a", url="http://a:8000", in_flight=in_flight, answered=answered)
    return a_router(name, registered=(entry,), **fields)


def throughput(*looks: Sequence[Router]) -> Throughput | None:
    """Of worker a at the last of several looks, a second apart."""
    throughputs, workers = Throughputs(), (a_worker("a"),)
    seen: tuple[Worker, ...] = workers
    for now, routers in enumerate(looks):
        seen = throughputs.measure(workers, routers, now=float(now))
    return seen[0].throughput


def test_what_several_routers_counted_is_one_workers_throughput() -> None:
    looks = [(a_counting_router("x", 2 * second), a_counting_router("y", 4 * second)) for second in range(5)]
    assert throughput(*looks) == Throughput(worker="a", rate=6.0, in_flight=8)


def test_a_router_that_joins_begins_anew() -> None:
    looks = [(a_counting_router("x", 6 * second),) for second in range(4)]
    assert throughput(*looks, (a_counting_router("x", 24), a_counting_router("y", 1))) is None


@pytest.mark.parametrize(
    "router",
    [
        a_counting_router("x", None),
        a_counting_router("x", 24, None),
        a_counting_router("x", 24, age_seconds=2.0),
        a_counting_router("x", 24, answering=False),
    ],
    ids=["no count", "no requests in flight", "old figures", "a silent router"],
)
def test_a_look_without_metrics_measures_nothing(router: Router) -> None:
    looks = [(a_counting_router("x", 6 * second),) for second in range(4)]
    assert throughput(*looks, (router,)) is None


def test_one_look_that_told_nothing_is_passed_over() -> None:
    looks = [(a_counting_router("x", 6 * second),) for second in range(4)]
    old = a_counting_router("x", 12, age_seconds=2.0)
    assert throughput(*looks[:3], (old,), (a_counting_router("x", 24),)) == Throughput(
        worker="a", rate=6.0, in_flight=4
    )


def test_a_worker_that_left_the_routers_does_nothing() -> None:
    looks = [(a_counting_router("x", 6 * second),) for second in range(5)]
    assert throughput(*looks, (a_router("x", registered=()),)) is None


def test_looks_at_a_busy_pool_are_close_enough_together() -> None:
    assert 2 * BUSY_SECONDS <= APART_SECONDS


def test_answers_between_two_looks_count_though_nothing_was_in_flight_at_either() -> None:
    throughputs, worker = Throughputs(), a_worker("a")
    answered = [
        throughputs.measure((worker,), (a_counting_router("x", count, in_flight=0),), now=float(now))[0].answered
        for now, count in enumerate((7, 7, 9, 0))
    ]
    assert answered == [0, 0, 2, 0]
