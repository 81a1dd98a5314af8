"""The step from one to eight times the load, beside the computed table of docs/results/peers.md."""

import pytest
from autoscaler.policies import factories
from autoscaler.step import MAX_REPLICAS, TARGET, StepResponse, step_response

from rewardpool_simulator.trace import PolicyFigures

FACTORIES = factories(PolicyFigures(target_per_replica=TARGET), min_replicas=1, max_replicas=MAX_REPLICAS)


@pytest.mark.parametrize("ready_seconds", [0, 180])
@pytest.mark.parametrize(
    ("name", "seconds", "peak"),
    [
        ("queue-depth", 0, 8),
        ("hpa", 15, 8),
        ("keda", 15, 8),
        # At 70 % of the target, as shipped.
        ("knative", 4, 12),
        ("kubeai", 510, 8),
        ("aibrix-apa", 0, 64),
    ],
)
def test_a_step_is_answered_as_computed(name, seconds, peak, ready_seconds):
    assert step_response(FACTORIES[name], ready_seconds=ready_seconds) == StepResponse(seconds=seconds, peak=peak)


def test_queue_depth_answers_within_a_second_of_any_moment():
    answer = step_response(FACTORIES["queue-depth"], late_seconds=0.9)
    assert answer.seconds == pytest.approx(0.9)
    assert answer.peak == 8


def test_a_step_that_is_never_answered_has_no_seconds():
    assert step_response(FACTORIES["aibrix-kpa"]).seconds is None
