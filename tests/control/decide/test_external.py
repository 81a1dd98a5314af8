"""Policy External: who writes spec.replicas, and what holds until somebody does."""

import pytest
from support.decide_builders import a_pool, a_snapshot

from rewardpool_control.decide import decide

EXTERNAL = {"minReplicas": 0, "maxReplicas": 4, "policy": {"type": "External"}}


def test_a_pool_without_replicas_begins_with_one_and_says_who_is_to_write_them():
    status = decide(a_snapshot(pool=a_pool(autoscaling=EXTERNAL))).status

    assert status.scaling.desired == 1
    active = status.condition("ScalingActive")
    assert (active.status, active.reason) == ("False", "ReplicasNotSet")
    assert "kubectl scale" in active.message


@pytest.mark.parametrize(("there", "kept"), [(3, 3), (9, 4)])
def test_a_change_of_policy_to_external_keeps_the_size_within_the_bounds(there, kept):
    before = decide(a_snapshot(pool=a_pool(replicas=there))).status
    assert decide(a_snapshot(pool=a_pool(autoscaling=EXTERNAL, status=before))).status.scaling.desired == kept


def test_what_somebody_wrote_holds_zero_too():
    status = decide(a_snapshot(pool=a_pool(replicas=0, autoscaling=EXTERNAL))).status
    active = status.condition("ScalingActive")
    assert (status.scaling.desired, active.status, active.reason) == (0, "True", "External")
