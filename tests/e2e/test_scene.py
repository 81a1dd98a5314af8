"""What a story's error says of the pool that did not come to be as it should."""

from typing import Any

from scene import container_of, in_words

Object = dict[str, Any]


def a_pod(name: str, *, phase: str = "Running", **status: Any) -> Object:
    metadata = {"name": name, "labels": {}}
    return {"kind": "Pod", "metadata": metadata, "spec": {"containers": [{}]}, "status": {"phase": phase, **status}}


def test_an_error_names_the_conditions_of_the_pool_and_why_a_pod_is_no_further() -> None:
    unplaced = {"type": "PodScheduled", "reason": "Unschedulable", "message": "0/2 nodes are available"}
    ended = {"reason": "Error", "exitCode": 137}
    container = {"ready": False, "restartCount": 2, "state": {"running": {}}, "lastState": {"terminated": ended}}
    ready = {"type": "Ready", "status": "False", "reason": "Starting", "message": "1 of 3 replicas serve"}
    pool = {"kind": "RewardPool", "metadata": {"name": "judge"}, "status": {"conditions": [ready]}}
    pods = [
        a_pod("judge-a", phase="Pending", conditions=[unplaced]),
        a_pod("judge-b", containerStatuses=[container]),
    ]
    assert in_words([pool, *pods], "judge") == (
        "Ready False Starting 1 of 3 replicas serve; "
        "judge-a Pending 0/1 ready 0 restarts 0/2 nodes are available; "
        "judge-b Running 0/1 ready 2 restarts Error 137"
    )


def test_an_error_says_so_where_nothing_is_there() -> None:
    assert in_words([], "judge") == "there is neither the pool nor a pod"


def test_a_pods_first_container_is_that_of_its_spec_and_not_of_its_statuses() -> None:
    statuses = [{"name": name, "containerID": f"containerd://id-of-{name}"} for name in ("front", "operator")]
    pod = a_pod("x", containerStatuses=statuses)
    pod["spec"]["containers"] = [{"name": "operator"}, {"name": "front"}]
    assert container_of(pod) == "id-of-operator"
