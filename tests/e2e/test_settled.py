"""When a pool under load counts as whole: too early, and a fault would not be over when it is counted."""

from typing import Any

import pytest

from faults.stage import is_settled

Object = dict[str, Any]


def a_pod(component: str, *, ready: str = "True", **metadata: str) -> Object:
    labels = {"rewardpool.dev/pool": "faults", "rewardpool.dev/component": component}
    return {
        "kind": "Pod",
        "metadata": {"labels": labels, "creationTimestamp": "2026-01-01T00:00:00Z", **metadata},
        "status": {"conditions": [{"type": "Ready", "status": ready}]},
    }


def a_pool(*, generation: int = 1, progressing: str = "False") -> Object:
    said = {"Serving": "True", "RouterReady": "True", "Progressing": progressing}
    return {
        "kind": "RewardPool",
        "metadata": {"name": "faults", "generation": generation},
        "spec": {"replicas": 1, "router": {"replicas": 1}},
        "status": {
            "observedGeneration": 1,
            "readyReplicas": 1,
            "conditions": [{"type": kind, "status": status} for kind, status in said.items()],
        },
    }


def a_deployment(*, replicas: int = 1, available: int = 1) -> Object:
    counts = {"replicas": replicas, "updatedReplicas": replicas, "availableReplicas": available}
    return {
        "kind": "Deployment",
        "metadata": {"generation": 1},
        "spec": {"replicas": replicas},
        "status": {"observedGeneration": 1, **counts},
    }


WORKER, ROUTER = a_pod("worker"), a_pod("router")


def test_a_pool_with_all_it_wants_is_whole() -> None:
    kept_for_a_rollback = a_deployment(replicas=0, available=0)
    assert is_settled([a_pool(), WORKER, ROUTER, a_deployment(), kept_for_a_rollback])


@pytest.mark.parametrize(
    "objects",
    [
        pytest.param([WORKER, ROUTER, a_deployment()], id="no pool"),
        pytest.param([a_pool(generation=2), WORKER, ROUTER, a_deployment()], id="not seen yet"),
        pytest.param([a_pool(progressing="True"), WORKER, ROUTER, a_deployment()], id="changing"),
        pytest.param([a_pool(), WORKER, WORKER, ROUTER, a_deployment()], id="one too many"),
        pytest.param([a_pool(), a_pod("worker", ready="False"), ROUTER, a_deployment()], id="not ready"),
        pytest.param([a_pool(), WORKER, a_pod("router", deletionTimestamp="now"), a_deployment()], id="leaving"),
        pytest.param([a_pool(), WORKER, a_deployment()], id="no router"),
        pytest.param([a_pool(), WORKER, ROUTER, a_deployment(available=0)], id="not available"),
    ],
)
def test_it_is_not_whole_before_that(objects: list[Object]) -> None:
    assert not is_settled(objects)
