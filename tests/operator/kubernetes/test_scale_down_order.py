"""Whom a ReplicaSet would stop, against whom we want stopped."""

from typing import Any

from support.kube_builders import a_pod

from rewardpool_operator.kubernetes.workload.scale_down_order import passed_over


def not_ready(name: str) -> dict[str, Any]:
    pod = a_pod(name)
    pod["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
    return pod


def test_among_equals_the_cost_decides() -> None:
    assert passed_over([a_pod("gone"), a_pod("stays")], ["gone"]) == []


def test_a_drained_worker_would_outlive_one_that_is_starting() -> None:
    assert passed_over([a_pod("drained"), not_ready("starting")], ["drained"]) == ["drained"]


def test_a_worker_that_never_started_goes_before_one_that_serves() -> None:
    assert passed_over([not_ready("broken"), a_pod("serves")], ["broken"]) == []


def test_a_pod_without_a_node_goes_first() -> None:
    waiting = not_ready("waiting")
    del waiting["spec"]["nodeName"]
    assert passed_over([not_ready("drained"), waiting], ["drained"]) == ["drained"]


def test_the_last_ones_go_in_any_case() -> None:
    assert passed_over([a_pod("one")], ["one"]) == []
