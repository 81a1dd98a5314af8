"""Policy External: who writes spec.replicas, and what holds until somebody does."""

from typing import Any

import pytest
from support.decide_builders import a_pool, a_snapshot

from rewardpool_operator.decide import decide

EXTERNAL = {"minReplicas": 0, "maxReplicas": 4, "policy": {"type": "External"}}
QUEUE = {"maxReplicas": 9, "policy": {"type": "QueueDepth", "queueDepth": {"targetPerReplica": 10}}}


def test_a_pool_begins_with_one_replica_that_others_can_read_and_change():
    plan = decide(a_snapshot(pool=a_pool(autoscaling=EXTERNAL)))

    assert plan.status.scaling.desired == 1
    assert plan.first_replicas == 1


@pytest.mark.parametrize(("there", "kept"), [(3, 3), (9, 4)])
def test_a_change_of_policy_to_external_keeps_the_size_within_the_bounds(there, kept):
    before = decide(a_snapshot(pool=a_pool(replicas=there))).status
    plan = decide(a_snapshot(pool=a_pool(autoscaling=EXTERNAL, status=before)))

    assert plan.status.scaling.desired == kept
    assert plan.first_replicas == kept


@pytest.mark.parametrize(
    "spec", [{"replicas": 0, "autoscaling": EXTERNAL}, {}, {"replicas": 2}, {"autoscaling": QUEUE}]
)
def test_what_somebody_wrote_or_nobody_has_to_is_left_alone(spec: dict[str, Any]):
    assert decide(a_snapshot(pool=a_pool(**spec))).first_replicas is None
