"""How soon a pool on one machine is looked at again when nothing happens."""

from typing import Any

import pytest
from support.decide_builders import a_pool

from rewardpool_api import RewardPoolStatus
from rewardpool_api.first_score import FirstScorePart, FirstScoreStatus
from rewardpool_api.status import ScalingStatus
from rewardpool_local.supervisor import AT_ZERO_PASS_SECONDS, PASS_SECONDS, QUICK_PASS_SECONDS, pass_seconds

SCALING: dict[str, Any] = {"minReplicas": 0, "maxReplicas": 1, "policy": {"queueDepth": {"targetPerReplica": 8}}}


@pytest.mark.parametrize(
    ("desired", "waits_for", "spec", "seconds"),
    [
        (None, None, {}, PASS_SECONDS),
        (1, None, {}, PASS_SECONDS),
        (0, None, {"autoscaling": SCALING}, AT_ZERO_PASS_SECONDS),
        (0, None, {"autoscaling": SCALING | {"parked": 1}, "worker": {"gpus": 0}}, QUICK_PASS_SECONDS),
        (1, None, {"autoscaling": SCALING | {"parked": 1}, "worker": {"gpus": 0}}, PASS_SECONDS),
        (0, None, {}, PASS_SECONDS),
        (1, "Load", {}, QUICK_PASS_SECONDS),
        (0, "Decision", {}, QUICK_PASS_SECONDS),
        (1, None, {"engine": {"name": "vllm", "sleep": {"enabled": True}}, "worker": {"gpus": 1}}, QUICK_PASS_SECONDS),
    ],
)
def test_a_pool_that_somebody_waits_for_is_looked_at_sooner(
    desired: int | None, waits_for: FirstScorePart | None, spec: dict[str, Any], seconds: float
) -> None:
    first = None
    if waits_for is not None:
        first = FirstScoreStatus(since="2026-01-01T00:00:00Z", seconds=1.0, waits_for=waits_for)
    scaling = None if desired is None else ScalingStatus(desired=desired, reason="")
    assert pass_seconds(a_pool(RewardPoolStatus(scaling=scaling, first_score=first), **spec)) == seconds
