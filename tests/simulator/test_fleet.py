"""The simulated fleet: what it does with requests, and what it costs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewardpool_simulator.events import Events
from rewardpool_simulator.fleet import Request, SimulatedFleet
from rewardpool_simulator.trace import Duration, FleetSpec


def spec(**given):
    figures = {
        "max_replicas": 8,
        "start_seconds": Duration(seconds=30),
        "service_seconds": Duration(seconds=1),
        "concurrency": 2,
    }
    return FleetSpec(**figures | given)


class Bench:
    """A fleet with a clock, and a list of when requests were answered."""

    def __init__(self, **given):
        self.events = Events()
        self.fleet = SimulatedFleet(spec(**given), self.events, seed="0")
        self.answered = []

    def ask(self, requests=1, *, service_seconds=1.0):
        for _ in range(requests):
            self.fleet.submit(Request(service_seconds, lambda: self.answered.append(self.events.now)))

    def at(self, seconds, call, *arguments):
        self.events.call_at(seconds, call, *arguments)

    def run(self, until=float("inf")):
        self.events.call_at(min(until, 1e9), lambda: None)
        while self.events.now < min(until, 1e9) and self.events.run_next():
            pass

    def loads(self):
        return [len(replica.requests) for replica in self.fleet.ready]

    def phases(self):
        return [replica.phase.value for replica in self.fleet.replicas]


@pytest.mark.parametrize(("replicas", "ends"), [(1, 30 + 12), (2, 30 + 6), (3, 30 + 4), (8, 30 + 2)])
def test_equal_requests_end_when_arithmetic_says(replicas, ends):
    bench = Bench()
    bench.at(0, bench.fleet.scale, replicas)
    bench.at(0, bench.ask, 24)
    bench.run()
    assert bench.answered[-1] == ends
    assert len(bench.answered) == 24


def test_requests_are_held_until_a_replica_is_there():
    bench = Bench()
    bench.ask(3)
    assert (bench.fleet.view().waiting, bench.fleet.view().in_flight) == (3, 0)
    bench.fleet.scale(1)
    bench.run(until=30.5)
    assert (bench.fleet.view().waiting, bench.fleet.view().in_flight) == (0, 3)


def test_a_request_goes_to_who_has_least():
    bench = Bench(concurrency=4)
    bench.fleet.scale(3)
    bench.run(until=31)
    bench.ask(7)
    assert sorted(bench.loads()) == [2, 2, 3]


def test_a_replica_takes_no_more_than_it_has_room_for():
    bench = Bench(concurrency=2, queue=1)
    bench.fleet.scale(2)
    bench.run(until=31)
    bench.ask(9)
    assert (bench.loads(), bench.fleet.view().waiting) == ([3, 3], 3)


def test_one_that_leaves_finishes_what_it_has_and_costs_until_then():
    bench = Bench()
    bench.fleet.scale(2)
    bench.run(until=31)
    bench.ask(4, service_seconds=10)
    bench.fleet.scale(0)
    assert bench.phases() == ["Draining", "Draining"]
    bench.run()
    assert bench.answered == [41, 41, 41, 41]
    assert bench.fleet.gpu_seconds() == 2 * 41


def test_a_replica_that_starts_costs_as_well_and_leaves_at_once():
    bench = Bench()
    bench.fleet.scale(3)
    bench.at(20, bench.fleet.scale, 1)
    bench.run(until=100)
    assert bench.fleet.gpu_seconds() == 20 + 20 + 100


def test_what_a_lost_replica_had_is_answered_by_others_once():
    bench = Bench()
    bench.fleet.scale(2)
    bench.run(until=31)
    bench.ask(4, service_seconds=10)
    bench.at(36, bench.fleet.lose, 0.5)
    bench.run()
    # The survivor works on two until 41 and takes the others from their beginning, or they wait for the new one.
    assert bench.answered == [41, 41, 51, 51]
    assert (bench.fleet.retried, bench.fleet.answered) == (2, 4)


def test_lost_replicas_are_made_anew():
    bench = Bench()
    bench.fleet.scale(4)
    bench.run(until=31)
    bench.fleet.lose(0.5)
    assert sorted(bench.phases()) == ["Ready", "Ready", "Starting", "Starting"]


def test_what_fits_nowhere_waits_costs_nothing_and_starts_when_there_is_room():
    bench = Bench()
    bench.fleet.limit_capacity(1)
    bench.fleet.scale(3)
    assert bench.phases() == ["Starting", "Pending", "Pending"]
    assert bench.fleet.lacks_capacity
    bench.at(100, bench.fleet.limit_capacity, None)
    bench.run(until=200)
    assert bench.phases() == ["Ready", "Ready", "Ready"]
    assert bench.fleet.gpu_seconds() == 200 + 100 + 100


def test_who_is_not_ready_leaves_first_and_then_who_has_least_to_do():
    bench = Bench(concurrency=4)
    bench.fleet.scale(2)
    bench.run(until=31)
    bench.ask(1)
    bench.fleet.scale(3)
    bench.fleet.scale(2)
    assert bench.phases() == ["Ready", "Ready"]
    bench.fleet.scale(1)
    assert bench.loads() == [1]


actions = st.one_of(
    st.tuples(st.just("ask"), st.integers(1, 40)),
    st.tuples(st.just("scale"), st.integers(0, 8)),
    st.tuples(st.just("lose"), st.sampled_from([0.3, 0.5, 1.0])),
    st.tuples(st.just("limit_capacity"), st.sampled_from([0, 2, 5, None])),
)


@given(st.lists(st.tuples(st.floats(0, 300), actions), max_size=40), st.integers(1, 4), st.integers(0, 4))
def test_every_request_is_answered_once_whatever_happens(plan, concurrency, queue):
    bench = Bench(concurrency=concurrency, queue=queue)
    asked = 0
    for seconds, (what, how_much) in plan:
        asked += how_much if what == "ask" else 0
        bench.at(seconds, bench.ask if what == "ask" else getattr(bench.fleet, what), how_much)
    bench.at(400, bench.fleet.limit_capacity, None)
    bench.at(400, bench.fleet.scale, 1)
    bench.run()
    assert len(bench.answered) == bench.fleet.answered == asked
    assert bench.fleet.view().in_flight == bench.fleet.view().waiting == 0
    assert bench.phases() == ["Ready"]


@given(st.lists(st.tuples(st.floats(0, 300), st.integers(0, 8)), max_size=20))
def test_no_more_is_paid_than_the_most_that_was_wanted_all_the_time(plan):
    bench = Bench()
    for seconds, wanted in plan:
        bench.at(seconds, bench.fleet.scale, wanted)
    bench.run(until=400)
    assert 0 <= bench.fleet.gpu_seconds() <= bench.fleet.peak * bench.events.now
