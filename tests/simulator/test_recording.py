"""Traces from a pool's statuses: about what came, when, and what was announced."""

from datetime import UTC, datetime, timedelta

import pytest
from support.decide_builders import a_pool

from rewardpool_api import RewardPoolStatus
from rewardpool_api.times import rfc3339
from rewardpool_simulator.policies import always_on, factories_for
from rewardpool_simulator.recording import StatusSnapshot, trace_from
from rewardpool_simulator.run import simulate
from rewardpool_simulator.trace import TraceError

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
RATE = {
    "perReplica": 4.0,
    "inFlight": 8,
    "measured": [{"rate": 4.0, "inFlight": 8}],
    "time": rfc3339(NOW),
}


def look(seconds, *, requests=0, demands=(), rate=RATE, starts=()):
    scaling = {"desired": 1, "reason": "", "serviceRate": rate, "starts": list(starts)}
    load = None if requests is None else {"inFlight": requests, "waiting": 0}
    status = {"replicas": 3, "load": load, "scaling": scaling, "demands": list(demands)}
    return StatusSnapshot(
        seconds=seconds, now=NOW + timedelta(seconds=seconds), status=RewardPoolStatus.model_validate(status)
    )


def made(*snapshots):
    return trace_from(a_pool(), snapshots)


def came(trace):
    return sum(arrival.samples for arrival in trace.arrivals)


def test_a_burst_came_when_there_were_suddenly_more():
    trace = made(look(0), look(1), look(2, requests=50), look(3, requests=25), look(4))
    assert trace.arrivals[0].at_seconds == 1
    assert came(trace) == pytest.approx(50, rel=0.1)


def test_a_steady_load_came_as_fast_as_it_was_answered():
    # 20 requests of two seconds each, for a minute.
    trace = made(look(0), *(look(second, requests=20) for second in range(1, 61)))
    assert came(trace) == pytest.approx(20 + 59 * 10, rel=0.05)


def test_without_a_service_rate_only_what_there_is_more_of_came():
    trace = made(look(0, rate=None), *(look(second, requests=20, rate=None) for second in range(1, 61)))
    assert came(trace) == 20


def test_while_figures_are_missing_nothing_came():
    trace = made(look(0), look(1, requests=10), look(2, requests=None), look(3, requests=10))
    assert {arrival.at_seconds for arrival in trace.arrivals} == {0, 2}


def test_what_a_replica_does_is_what_was_measured():
    fleet = made(look(0), look(1, requests=9, starts=[{"worker": "a", "seconds": 42}])).fleet
    assert (fleet.concurrency, fleet.service_seconds.seconds, fleet.start_seconds.seconds) == (8, 2, 42)


def test_without_a_request_there_is_nothing_to_replay():
    with pytest.raises(TraceError, match="no request was seen"):
        made(look(0), look(1))


def demand(phase, seconds_until):
    burst = rfc3339(NOW + timedelta(seconds=seconds_until))
    return {"job": "job", "state": "Live", "phase": phase, "samples": 64, "nextBurst": burst}


def test_demands_are_heard_again_when_a_job_would_say_them():
    snapshots = [look(second, requests=1, demands=[demand("Update", 100)]) for second in range(20)]
    demands = made(*snapshots, look(20, requests=1, demands=[demand("Rollout", 100)])).demands
    assert [one.at_seconds for one in demands] == [0, 5, 10, 15, 20]
    assert demands[1].demand.starts_in_seconds == 95
    assert demands[-1].demand.starts_in_seconds is None


@pytest.mark.parametrize("state", ["Lapsed", "Ended", "Ignored"])
def test_demands_that_do_not_count_are_not_heard(state):
    trace = made(look(0), look(1, requests=1, demands=[demand("Update", 9) | {"state": state}]))
    assert trace.demands == []


def test_a_recorded_demand_warms_the_simulated_fleet():
    quiet = [look(second, demands=[demand("Update", 300)]) for second in range(300)]
    burst = [look(second, requests=40, demands=[demand("Rollout", 300)]) for second in range(300, 330)]
    trace = made(*quiet, *burst, look(330))
    warm = simulate(trace, factories_for(trace)["demand"])
    assert warm.answered == came(trace)
    assert warm.wait_seconds == pytest.approx(simulate(trace, always_on(trace.fleet.max_replicas)).wait_seconds, abs=3)
