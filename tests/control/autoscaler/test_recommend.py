"""The whole decision, by policy QueueDepth: tables, one behaviour each."""

import pytest
from support.autoscaler_builders import DEMAND, DRAIN_TIME, QUEUE_DEPTH, a_job, a_scaling, run, signals, sizes

from rewardpool_control.autoscaler.signals import Claim, Start, Throughput


@pytest.mark.parametrize(("requests", "wanted"), [(0, 1), (1, 1), (10, 1), (11, 2), (80, 8), (5000, 8)])
def test_the_size_holds_the_requests_at_the_target(requests, wanted):
    assert sizes(requests) == [wanted]


def test_the_pool_grows_at_once_and_shrinks_after_the_window():
    scaling = a_scaling(scaleDown={"stabilizationWindowSeconds": 3})
    assert sizes(5, 80, 5, 5, 5, 5, scaling=scaling) == [1, 8, 8, 8, 8, 1]


@pytest.mark.parametrize(
    ("starts", "window", "starting", "held"),
    [
        pytest.param([20.0], 3, True, 27.0, id="as long as a start takes"),
        pytest.param([20.0, 40.0], 3, True, 52.0, id="the slowest one counts"),
        pytest.param([], 3, True, 77.0, id="until one was seen"),
        pytest.param([20.0], 100, True, 100.0, id="a longer window holds"),
        pytest.param([20.0], 3, False, 3.0, id="none starts"),
    ],
)
def test_replicas_that_start_are_not_taken_back_in_less_than_a_start_takes(starts, window, starting, held):
    scaling = a_scaling(scaleDown={"stabilizationWindowSeconds": window})
    seen = tuple(Start(worker=f"w{number}", seconds=seconds) for number, seconds in enumerate(starts))
    there = {"replicas": 8, "serving": 1 if starting else 8, "starts": seen}
    looks = [signals(requests, at=at, **there) for requests, at in [(80, 0), (5, 1), (5, held + 0.9), (5, held + 1)]]
    assert [one.desired for one in run(*looks, scaling=scaling)] == [8, 8, 8, 1]


def test_the_users_window_holds_again_once_all_have_started():
    scaling = a_scaling(scaleDown={"stabilizationWindowSeconds": 3})
    looks = [signals(80, replicas=8), signals(5, at=1, replicas=8), signals(5, at=10, replicas=8)]
    ready = signals(5, at=11, replicas=8, serving=8)
    assert [one.desired for one in run(*looks, ready, scaling=scaling)] == [8, 8, 8, 1]


def test_it_shrinks_step_by_step_to_the_largest_size_of_the_window():
    scaling = a_scaling(scaleDown={"stabilizationWindowSeconds": 3})
    assert sizes(80, 40, 20, 5, 5, 5, 5, scaling=scaling) == [8, 8, 8, 8, 4, 2, 1]


def test_missing_metrics_hold_the_size():
    decisions = run(signals(80), signals(None, at=1), signals(None, at=2))
    assert [decision.desired for decision in decisions] == [8, 8, 8]
    assert decisions[-1].limit == "MetricsUnavailable"


def test_what_some_routers_have_grows_the_pool_while_another_one_is_silent():
    decisions = run(signals(None, replicas=0), signals(50, at=1, partial=True), scaling=a_scaling(minReplicas=0))
    assert decisions[-1].desired == 5
    assert "metrics of a router are missing" in decisions[-1].reason


def test_no_request_at_some_routers_is_no_reason_to_go_to_zero():
    scaling = a_scaling(minReplicas=0, cooldownSeconds=0, scaleDown={"stabilizationWindowSeconds": 0})
    decisions = run(signals(5), *(signals(0, at=at, partial=True) for at in (1, 1000)), scaling=scaling)
    assert [decision.desired for decision in decisions] == [1, 1, 1]


def test_no_request_at_some_routers_ends_no_burst():
    scaling = a_scaling(QUEUE_DEPTH, DEMAND)
    decisions = run(signals(50), signals(0, at=1, partial=True), scaling=scaling)
    assert decisions[-1].bursts == decisions[0].bursts


def test_missing_metrics_do_not_keep_a_job_from_what_it_announced():
    scaling = a_scaling(QUEUE_DEPTH, DEMAND)
    burst = signals(None, at=1, announcements=(a_job(samples=40),))
    assert [one.desired for one in run(signals(5), burst, scaling=scaling)] == [1, 4]


def test_a_new_pool_without_metrics_holds_what_there_is():
    assert sizes(None, replicas=5) == [5]


def test_an_idle_pool_goes_to_zero_after_its_time_and_wakes_for_the_first_request():
    scaling = a_scaling(minReplicas=0, cooldownSeconds=3, scaleDown={"stabilizationWindowSeconds": 0})
    assert sizes(5, 0, 0, 0, 0, 1, scaling=scaling) == [1, 1, 1, 1, 0, 1]


def test_requests_too_short_to_be_seen_in_flight_keep_the_pool_awake():
    scaling = a_scaling(minReplicas=0, cooldownSeconds=3)
    seen = [signals(5), *(signals(0, at=at, answered=at % 2) for at in range(1, 20))]
    assert {decision.desired for decision in run(*seen, scaling=scaling)} == {1}


def test_one_replica_is_kept_until_the_pool_was_idle_for_long_enough():
    decision = run(signals(5), signals(0, at=1), scaling=a_scaling(minReplicas=0))[-1]
    assert (decision.desired, decision.recommended_replicas, decision.limit) == (1, 0, "CooldownSeconds")


def test_a_small_difference_changes_nothing():
    assert sizes(40, 44, 45, 37, 36, scaling=a_scaling(tolerancePercent=10)) == [4, 4, 5, 5, 5]


@pytest.mark.parametrize(("announced", "size"), [(0, 4), (36, 4), (40, 4), (41, 5), (44, 5)])
def test_a_small_difference_counts_only_where_it_is_announced(announced, size):
    # 44 requests at 10 a replica are 4.4 replicas.
    look = signals(44, replicas=4, announcements=(a_job(samples=announced),))
    assert run(look, scaling=a_scaling(QUEUE_DEPTH, DEMAND, tolerancePercent=10))[-1].desired == size


def test_the_first_request_is_never_within_the_tolerance():
    assert sizes(0, 1, scaling=a_scaling(minReplicas=0, tolerancePercent=90), replicas=0) == [0, 1]


def test_growth_takes_no_more_than_a_step_in_a_period():
    scaling = a_scaling(scaleUp={"step": {"replicas": 2, "periodSeconds": 10}})
    assert sizes(10, 80, 80, 80, 80, every=5, scaling=scaling) == [1, 3, 3, 5, 5]


def test_a_step_by_share_doubles_the_pool():
    scaling = a_scaling(scaleUp={"step": {"percent": 100, "periodSeconds": 1}})
    assert sizes(10, 80, 80, 80, every=2, scaling=scaling) == [1, 2, 4, 8]


def test_shrinking_takes_no_more_than_a_step_in_a_period():
    scaling = a_scaling(scaleDown={"stabilizationWindowSeconds": 0, "step": {"replicas": 3, "periodSeconds": 10}})
    assert sizes(80, 0, 0, 0, 0, every=5, scaling=scaling) == [8, 5, 5, 2, 2]


def test_a_step_lets_a_pool_leave_zero():
    scaling = a_scaling(minReplicas=0, scaleUp={"step": {"percent": 10}})
    assert sizes(80, scaling=scaling, replicas=0) == [1]


@pytest.mark.parametrize(
    ("seen", "fields", "limit"),
    [
        (signals(5000), {}, "MaxReplicas"),
        (signals(0), {}, "MinReplicas"),
        (signals(44, replicas=4), {"tolerancePercent": 10}, "Tolerance"),
        (signals(80, unschedulable="no GPU"), {}, "Unschedulable"),
        (signals(80, serving=8, unschedulable="no GPU"), {}, None),
        (signals(80), {}, None),
    ],
)
def test_what_holds_the_number_back_is_named(seen, fields, limit):
    assert run(seen, scaling=a_scaling(**fields))[-1].limit == limit


def test_a_worker_that_fits_nowhere_is_not_asked_for_again():
    seen = [signals(40, at=at, replicas=4, serving=1, unschedulable="no GPU") for at in range(5)]
    assert [one.desired for one in run(*seen)] == [4] * 5


def test_a_budget_leaves_what_others_do_not_hold():
    scaling = a_scaling(budget={"name": "gpus", "maxReplicas": 6})
    other = Claim(pool="rm-b", total=6, priority=1, wanted=4, allocated=4)
    decision = run(signals(80, pool="rm-a", others=(other,)), scaling=scaling)[-1]
    assert (decision.desired, decision.recommended_replicas, decision.limit) == (2, 8, "Budget")


def test_every_change_is_in_the_history_with_its_reason_and_limit():
    history = run(signals(5), signals(500, at=1), signals(500, at=2))[-1].history
    assert [(entry.replicas, entry.limit) for entry in history] == [(1, None), (8, "MaxReplicas")]
    assert "500 requests over 10 per replica" in history[-1].reason


def test_the_history_keeps_ten_changes():
    scaling = a_scaling(scaleDown={"stabilizationWindowSeconds": 0})
    decisions = run(*(signals(10 + 10 * (at % 2), at=at) for at in range(30)), scaling=scaling)
    assert len(decisions[-1].history) == 10


def test_steady_load_changes_nothing_in_the_state():
    decisions = run(*(signals(25, at=at) for at in range(50)))
    assert decisions[-1] == decisions[0]


@pytest.mark.parametrize(
    ("jobs", "wanted"),
    [
        pytest.param([], 2, id="nobody says it"),
        pytest.param([a_job(samplesPerRequest=1)], 2, id="one each"),
        pytest.param([a_job(samplesPerRequest=3)], 6, id="three each"),
        pytest.param([a_job(samplesPerRequest=2.6)], 6, id="a part of a sample counts"),
        pytest.param([a_job(samplesPerRequest=3), a_job(job="other", samplesPerRequest=1)], 4, id="the mean of jobs"),
        pytest.param([a_job(samplesPerRequest=3), a_job("Update", job="idle")], 6, id="whose samples are coming"),
        pytest.param([a_job("Update", samplesPerRequest=3)], 6, id="or of all, where none is"),
        pytest.param([a_job(samplesPerRequest=3, seconds=0)], 2, id="what lapsed counts no more"),
        pytest.param([a_job("Ended", samplesPerRequest=3)], 2, id="nor what ended"),
    ],
)
def test_the_size_is_for_samples_where_a_request_has_several(jobs, wanted):
    decision = run(signals(20, announcements=tuple(jobs)))[0]
    assert decision.desired == wanted
    assert ("samples, and counts for as many" in decision.reason) == (wanted > 2)


def test_what_a_replica_does_is_learned_in_samples():
    seen = Throughput(worker="w0", rate=5.0, in_flight=10)
    decision = run(signals(20, throughputs=(seen,), announcements=(a_job(samplesPerRequest=4),)))[0]
    assert decision.service_rate is not None
    assert (decision.service_rate.per_replica, decision.service_rate.in_flight) == (20.0, 40)


def test_routers_that_say_nothing_have_no_samples_either():
    told = {"announcements": (a_job(samplesPerRequest=4),)}
    assert [one.desired for one in run(signals(80, **told), signals(None, at=1, **told))] == [8, 8]


BUSY = Throughput(worker="w0", rate=12.8, in_flight=128)


@pytest.mark.parametrize(
    ("job", "wanted"),
    [
        pytest.param(a_job(samples=100, tokens=12_800, tokensPerSample=128), 1, id="100 of 128"),
        pytest.param(a_job(samples=100, tokens=819_200, tokensPerSample=8192), 50, id="100 of 8,192"),
        pytest.param(a_job(samples=100, tokensPerSample=8192), 50, id="only what is in flight is known"),
        pytest.param(a_job(samples=100), 1, id="as long as those that were measured"),
    ],
)
@pytest.mark.parametrize("policy", [DRAIN_TIME, {"type": "Demand", "demand": {"drainSeconds": 10, "learn": False}}])
def test_long_samples_are_worth_more_replicas_by_a_rate_of_tokens(policy, job, wanted):
    short = a_job(samples=100, tokensPerSample=128)
    seen = signals(0, throughputs=(BUSY,), announcements=(short,))
    scaling = a_scaling(policy, maxReplicas=500, scaleDown={"stabilizationWindowSeconds": 0})
    requests = 0 if policy is not DRAIN_TIME else 100
    assert run(seen, signals(requests, at=1, announcements=(job,)), scaling=scaling)[-1].desired == wanted


@pytest.mark.parametrize(
    ("jobs", "wanted"),
    [
        pytest.param([], 10, id="nobody says how long they are"),
        pytest.param([a_job(tokensPerSample=100)], 1, id="short ones"),
        pytest.param([a_job(tokensPerSample=5000)], 50, id="long ones"),
        pytest.param([a_job(tokensPerSample=100), a_job(job="b")], 1, id="the jobs that say it"),
        pytest.param([a_job(job="a"), a_job("Update", job="b", tokensPerSample=9)], 10, id="not one that sends none"),
    ],
)
def test_queue_depth_counts_tokens_where_it_has_a_target_for_them(jobs, wanted):
    policy = {"type": "QueueDepth", "queueDepth": {"targetPerReplica": 10, "targetTokensPerReplica": 10_000}}
    scaling = a_scaling(policy, maxReplicas=500)
    assert run(signals(100, announcements=tuple(jobs)), scaling=scaling)[-1].desired == wanted


def test_queue_depth_without_a_target_for_tokens_counts_requests():
    assert run(signals(20, announcements=(a_job(tokensPerSample=8192),)))[-1].desired == 2


def test_a_burst_counts_by_its_tokens_where_no_rate_is_known():
    policy = {"type": "QueueDepth", "queueDepth": {"targetPerReplica": 10, "targetTokensPerReplica": 10_000}}
    job = a_job("Starting", samples=20, tokens=50_000)
    assert run(signals(0, announcements=(job,)), scaling=a_scaling(DEMAND, policy))[-1].desired == 5
