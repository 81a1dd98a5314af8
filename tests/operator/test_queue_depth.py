"""The QueueDepth policy: tables, and properties that hold for every load."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.decide_builders import NOW

from rewardpool_api.pool import AutoscalingSpec
from rewardpool_api.status import LoadStatus, ScalingStatus
from rewardpool_operator.autoscaler.queue_depth import recommend


def a_policy(minimum=1, maximum=8, *, window=60, idle=100):
    return AutoscalingSpec.model_validate(
        {
            "minReplicas": minimum,
            "maxReplicas": maximum,
            "policy": {"type": "QueueDepth", "queueDepth": {"targetPerReplica": 10}},
            "scaleDown": {"stabilizationSeconds": window},
            "idleSeconds": idle,
        }
    )


def run(loads, *, scaling=None, step_seconds=1, start=1):
    """Feed one load (requests in flight, None for missing) after the other; return the decisions."""
    scaling, previous, decisions = scaling or a_policy(), None, []
    for number, requests in enumerate(loads):
        previous = recommend(
            scaling=scaling,
            policy=scaling.policy.queue_depth,
            load=None if requests is None else LoadStatus(in_flight=requests),
            previous=previous,
            replicas=start,
            now=NOW + timedelta(seconds=number * step_seconds),
        )
        decisions.append(previous)
    return [decision.desired for decision in decisions], decisions


@pytest.mark.parametrize(("requests", "wanted"), [(0, 1), (1, 1), (10, 1), (11, 2), (80, 8), (5000, 8)])
def test_the_size_holds_the_requests_at_the_target(requests, wanted):
    assert run([requests])[0] == [wanted]


def test_the_pool_grows_at_once_and_shrinks_after_the_window():
    sizes, _ = run([5, 80, 5, 5, 5, 5], scaling=a_policy(window=3))
    assert sizes == [1, 8, 8, 8, 8, 1]


def test_it_shrinks_step_by_step_to_the_largest_size_of_the_window():
    sizes, _ = run([80, 40, 20, 5, 5, 5, 5], scaling=a_policy(window=3))
    assert sizes == [8, 8, 8, 8, 4, 2, 1]


def test_missing_figures_hold_the_size():
    assert run([80, None, None])[0] == [8, 8, 8]


def test_a_new_pool_without_figures_holds_what_there_is():
    assert run([None], start=5)[0] == [5]


def test_an_idle_pool_goes_to_zero_after_its_time_and_wakes_for_the_first_request():
    sizes, _ = run([5, 0, 0, 0, 0, 1], scaling=a_policy(minimum=0, idle=3, window=0))
    assert sizes == [1, 1, 1, 1, 0, 1]


def test_steady_load_changes_nothing_in_the_state():
    _, decisions = run([25] * 50)
    assert decisions[-1] == decisions[0]


LOADS = st.lists(st.none() | st.integers(0, 200), min_size=1, max_size=60)


@given(LOADS, st.integers(0, 3), st.integers(4, 9))
def test_the_size_is_always_within_bounds(loads, minimum, maximum):
    sizes, _ = run(loads, scaling=a_policy(minimum, maximum, window=5, idle=3), start=2)
    assert all(minimum <= size <= maximum for size in sizes)


@given(LOADS)
def test_the_size_never_falls_on_a_missing_figure(loads):
    sizes, _ = run(loads, scaling=a_policy(window=2))
    assert all(
        after >= before for before, after, load in zip(sizes, sizes[1:], loads[1:], strict=False) if load is None
    )


@given(st.integers(0, 200), st.integers(2, 50))
def test_constant_load_never_makes_it_oscillate(requests, length):
    assert len(set(run([requests] * length)[0])) == 1


@given(st.integers(0, 100), st.integers(0, 100))
def test_more_requests_never_want_fewer_replicas(one, more):
    assert run([one])[0][0] <= run([one + more])[0][0]


@given(LOADS)
def test_the_size_is_the_largest_recommendation_of_the_window(loads):
    """Against the plain definition, computed over the whole history."""
    window = 7
    sizes, _ = run(loads, scaling=a_policy(window=window), start=1)
    wanted = [None if load is None else max(1, min(8, -(-load // 10))) for load in loads]
    for now, size in enumerate(sizes):
        if wanted[now] is None:
            continue
        # A recommendation holds until the next known one replaces it.
        held = [
            wanted[then]
            for then in range(now + 1)
            if wanted[then] is not None
            and next((later for later in range(then + 1, now + 1) if wanted[later] is not None), now) > now - window
        ]
        assert size == max(held)


@given(LOADS)
def test_a_restarted_operator_decides_the_same(loads):
    """The state goes through JSON between every two decisions, as it does in the status."""
    scaling, kept, fresh = a_policy(window=5), None, None
    for number, requests in enumerate(loads):
        arguments = {
            "scaling": scaling,
            "policy": scaling.policy.queue_depth,
            "load": None if requests is None else LoadStatus(in_flight=requests),
            "replicas": 1,
            "now": NOW + timedelta(seconds=number),
        }
        kept = recommend(previous=kept, **arguments)
        stored = fresh and ScalingStatus.model_validate_json(fresh.model_dump_json(by_alias=True))
        fresh = recommend(previous=stored, **arguments)
        assert fresh == kept
