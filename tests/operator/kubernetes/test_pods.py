"""What a pod's status says about a worker or a router."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.kube_builders import a_pod

from rewardpool_api import names
from rewardpool_api.reasons import ConditionReason
from rewardpool_api.status import MAX_MESSAGE
from rewardpool_kube.resources import Object
from rewardpool_operator.kubernetes.workload import pods
from rewardpool_operator.kubernetes.workload.containers import (
    CONTAINER_DOWNLOAD,
    CONTAINER_ROUTER,
    CONTAINER_WORKER,
    PORT_HTTP,
    PORT_METRICS,
)

EXITED = {"terminated": {"exitCode": 1, "reason": "Error", "message": "starting\nValueError: no such thing"}}
BACKING_OFF = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}}


def test_a_started_container_has_answered() -> None:
    worker = pods.worker_of(a_pod())
    assert (worker.node_unreachable, worker.answering, worker.failure) == (False, True, None)


def test_a_running_container_that_has_not_started_up_has_not_answered() -> None:
    worker = pods.worker_of(a_pod(started=False))
    assert (worker.running, worker.answering) == (True, False)


def test_a_container_that_ended_no_longer_answers() -> None:
    assert not pods.worker_of(a_pod(state=EXITED)).answering


def test_a_worker_without_an_address_has_no_url() -> None:
    assert pods.worker_of(a_pod(ip=None)).url is None


@pytest.mark.parametrize(("ip", "url"), [("10.0.0.7", "http://10.0.0.7:8000"), ("fd00::7", "http://[fd00::7]:8000")])
def test_an_address_takes_the_containers_own_port(ip: str, url: str) -> None:
    assert pods.worker_of(a_pod(ip=ip)).url == url


def test_another_port_in_the_pod_is_another_url() -> None:
    pod = a_pod()
    pod["spec"]["containers"][0]["ports"] = [{"name": PORT_HTTP, "containerPort": 9000}]
    assert pods.address(pod, CONTAINER_WORKER, PORT_HTTP) == "http://10.0.0.7:9000"


def test_a_router_has_two_ports() -> None:
    pod = a_pod("r", component=names.COMPONENT_ROUTER)
    assert pods.address(pod, CONTAINER_ROUTER, PORT_HTTP) == "http://10.0.0.7:8080"
    assert pods.address(pod, CONTAINER_ROUTER, PORT_METRICS) == "http://10.0.0.7:9090"


def test_the_mark_on_the_pod_is_the_draining_state() -> None:
    pod = a_pod()
    pod["metadata"]["annotations"] = {names.ANNOTATION_DRAINING_SINCE: "2026-01-01T12:00:05.000000Z"}
    assert not pods.worker_of(pod).active


def test_a_deleted_pod_is_on_its_way_out() -> None:
    pod = a_pod()
    pod["metadata"]["deletionTimestamp"] = "2026-01-01T12:00:05Z"
    assert pods.worker_of(pod).deleting


def failure(**status: Any) -> tuple[str, str]:
    found = pods.worker_of(a_pod(**{"started": False, **status})).failure
    assert found is not None
    return found.reason, found.message


def test_a_crash_is_told_with_the_engines_last_lines() -> None:
    reason, message = failure(state=BACKING_OFF, lastState=EXITED)
    assert reason == "EngineExited"
    assert "exit code 1" in message
    assert "ValueError: no such thing" in message


def test_a_kill_for_memory_is_told_as_such() -> None:
    killed = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}
    assert failure(state=BACKING_OFF, lastState=killed)[0] == "OutOfMemory"


def test_a_crash_is_told_while_the_next_start_is_under_way() -> None:
    assert failure(state={"running": {}}, lastState=EXITED)[0] == "EngineExited"


def test_an_old_crash_of_a_worker_that_answers_again_is_no_news() -> None:
    assert pods.worker_of(a_pod(lastState=EXITED, restartCount=1)).failure is None


@pytest.mark.parametrize(
    ("waiting", "reason"),
    [
        ({"reason": "ImagePullBackOff", "message": "no such image"}, "ImagePull"),
        ({"reason": "CreateContainerConfigError", "message": 'secret "hf" not found'}, "PodNotStarting"),
        ({"reason": "x" * 500, "message": "a runtime's own word"}, "PodNotStarting"),
        ({"reason": "CrashLoopBackOff", "message": "back-off 10s"}, "EngineExited"),
    ],
)
def test_a_container_that_cannot_be_made_is_told(waiting: dict[str, str], reason: str) -> None:
    told = failure(state={"waiting": waiting})
    assert told[0] == reason
    assert waiting["message"] in told[1]


def test_a_container_that_fails_before_the_worker_starts_is_told() -> None:
    pod = a_pod(started=False, state={"waiting": {"reason": "PodInitializing"}})
    message = "git: x\nFunctionNotFound: there is no commit 0123"
    failed = {"terminated": {"exitCode": 1, "message": message}}
    pod["status"]["initContainerStatuses"] = [
        {"name": "code", "state": BACKING_OFF, "lastState": failed},
    ]
    found = pods.worker_of(pod).failure
    assert found is not None
    assert (found.reason, found.message) == ("FunctionNotFound", "there is no commit 0123\ngit: x")


def test_an_earlier_failure_of_a_container_that_ended_well_is_no_news() -> None:
    pod = a_pod(started=False)
    done = {"name": "code", "state": {"terminated": {"exitCode": 0}}, "lastState": EXITED}
    pod["status"]["initContainerStatuses"] = [done]
    assert pods.worker_of(pod).failure is None


SAID = st.one_of(
    st.text(max_size=300),
    st.text(st.characters(categories=["Cs", "Cc", "Cf"]), max_size=300),
    st.builds(
        lambda reason, message: json.dumps({"reason": reason, "message": message}),
        st.text(max_size=300) | st.sampled_from(["ModelNotFound", "RolledBack", "\ud800"]) | st.integers(),
        st.text(st.characters(categories=["Cs", "Lu"]), max_size=50) | st.lists(st.integers()),
    ),
    st.integers().map(str),
    st.just("[" * 100_000),
)


@given(said=SAID, component=st.sampled_from([names.COMPONENT_WORKER, names.COMPONENT_ROUTER, CONTAINER_DOWNLOAD]))
def test_whatever_a_container_says_last_is_a_reason_of_ours_and_a_text_that_can_be_written(
    said: str, component: str
) -> None:
    found = pods.failure_of({"name": component, "lastState": {"terminated": {"exitCode": 1, "message": said}}})
    assert found is not None
    assert found.reason in set(ConditionReason)
    assert len(found.message.encode()) <= 4 * MAX_MESSAGE


@pytest.mark.parametrize(
    ("container", "reason"), [(CONTAINER_DOWNLOAD, "DiskFull"), (CONTAINER_WORKER, "EngineExited")]
)
def test_only_a_download_is_believed_why_it_failed(container: str, reason: str) -> None:
    said = json.dumps({"reason": "DiskFull", "message": "no room"})
    found = pods.failure_of({"name": container, "lastState": {"terminated": {"exitCode": 1, "message": said}}})
    assert found is not None
    assert found.reason == reason


def test_a_mark_of_leaving_that_is_no_time_is_none() -> None:
    pod = a_pod()
    pod["metadata"]["annotations"] = {names.ANNOTATION_DRAINING_SINCE: "yesterday"}
    assert pods.worker_of(pod).draining_since is None


def test_a_container_that_is_being_made_is_no_failure() -> None:
    pod = a_pod(started=False, state={"waiting": {"reason": "ContainerCreating"}})
    assert pods.worker_of(pod).failure is None
    assert pods.is_stuck_before_start(pod)


def on_a_node(*, state: Object | None = None, **status: Any) -> Object:
    pod = a_pod(started=False, ip=None, state=state or {"waiting": {"reason": "ContainerCreating"}})
    pod["status"] |= status
    return pod


@pytest.mark.parametrize(
    ("pod", "holds"),
    [
        ({"metadata": {}, "spec": {}}, True),
        ({"metadata": {}, "spec": {"nodeName": "n"}, "status": {"phase": "Pending"}}, True),
        (on_a_node(), True),
        (on_a_node(state={"waiting": {"reason": "ErrImagePull"}}), False),
        (on_a_node(state={"terminated": {"exitCode": 1}}), False),
        (on_a_node(podIP="10.0.0.7"), False),
        (on_a_node(phase="Failed"), False),
        (on_a_node(conditions=[{"type": "PodScheduled", "status": "False", "message": "no GPU"}]), False),
        (on_a_node(conditions=[{"type": "DisruptionTarget", "status": "True"}]), False),
        (on_a_node(conditions=[{"type": "Ready", "status": "Unknown"}]), False),
        ({**on_a_node(), "metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}, False),
    ],
)
def test_a_pod_is_on_its_way_until_it_has_an_address_or_something_is_wrong(pod: Object, holds: bool) -> None:
    assert pods.is_on_its_way(pod) is holds


def test_a_mount_that_fails_is_told_from_the_pods_event() -> None:
    pod = a_pod(started=False, state={"waiting": {"reason": "ContainerCreating"}})
    worker = pods.worker_of(pod, warning="FailedMount: hostPath type check failed")
    assert worker.failure is not None
    assert "hostPath type check failed" in worker.failure.message


def test_the_schedulers_words_are_kept() -> None:
    pod = a_pod(ip=None)
    pod["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "message": "0/1 nodes: no GPU"}]
    assert pods.worker_of(pod).unschedulable == "0/1 nodes: no GPU"


def test_a_gated_pod_is_told_from_one_that_no_node_takes() -> None:
    pod = a_pod(ip=None)
    pod["status"]["conditions"] = [
        {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": "blocked"}
    ]
    assert pods.worker_of(pod).unschedulable == "SchedulingGated: blocked"


@pytest.mark.parametrize(("status", "refusal"), [("True", "exceeded quota: gpus"), ("False", None)])
def test_a_deployment_says_why_its_pods_are_not_made(status: str, refusal: str | None) -> None:
    condition = {"type": "ReplicaFailure", "status": status, "message": "exceeded quota: gpus"}
    assert pods.refusal_of({"metadata": {}, "status": {"conditions": [condition]}}) == refusal


def with_conditions(**conditions: str) -> dict[str, Any]:
    pod = a_pod()
    pod["status"]["conditions"] = [
        {"type": kind, "status": status, "reason": "EvictionByEvictionAPI", "message": "drained"}
        for kind, status in conditions.items()
    ]
    return pod


def test_an_announced_eviction_dooms_a_worker_before_it_is_deleted() -> None:
    worker = pods.worker_of(with_conditions(Ready="True", ContainersReady="True", DisruptionTarget="True"))
    assert worker.disruption_target == "EvictionByEvictionAPI: drained"
    assert not worker.deleting
    assert not worker.available


def test_a_disruption_that_was_called_off_dooms_nobody() -> None:
    assert pods.worker_of(with_conditions(Ready="True", DisruptionTarget="False")).disruption_target is None


@pytest.mark.parametrize("ready", ["False", "Unknown"])
def test_a_worker_whose_node_does_not_report_is_what_was_heard_last(ready: str) -> None:
    worker = pods.worker_of(with_conditions(Ready=ready, ContainersReady="True"))
    assert (worker.node_unreachable, worker.running, worker.answering) == (True, True, True)
    assert worker.failure is not None
    assert worker.failure.reason == "NodeLost"


@pytest.mark.parametrize("component", [names.COMPONENT_WORKER, names.COMPONENT_ROUTER])
def test_a_pod_whose_readiness_gate_is_closed_is_not_lost(component: str) -> None:
    pod = a_pod(component=component)
    gates = {"type": "Ready", "status": "False", "reason": "ReadinessGatesNotReady"}
    pod["status"]["conditions"] = [gates, {"type": "ContainersReady", "status": "True"}]
    assert not pods.is_lost(pod)


@pytest.mark.parametrize(
    ("gate", "running", "exposed", "concealed"),
    [
        pytest.param("True", True, True, False, id="open"),
        pytest.param("False", True, False, True, id="closed again"),
        pytest.param("False", False, False, False, id="closed, and what it had is gone"),
        pytest.param(None, True, False, False, id="never opened"),
    ],
)
def test_a_routers_gate_says_whether_trainers_are_sent_to_it(
    gate: str | None, running: bool, exposed: bool, concealed: bool
) -> None:
    pod = a_pod(component=names.COMPONENT_ROUTER, state={"running": {}} if running else {"waiting": {}})
    pod["status"]["conditions"] = [{"type": names.CONDITION_HOLDS_WORKERS, "status": gate}] if gate else []
    router = pods.router_of(pod)
    assert (router.exposed, router.concealed) == (exposed, concealed)


def test_a_router_that_no_node_takes_says_so() -> None:
    pod = a_pod(component=names.COMPONENT_ROUTER, ip=None, state={})
    pod["status"]["conditions"] = [
        {"type": "PodScheduled", "status": "False", "message": "0/3 nodes: Insufficient cpu"}
    ]
    failure = pods.router_of(pod).failure
    assert failure is not None
    assert (failure.reason, failure.message) == ("Unschedulable", "0/3 nodes: Insufficient cpu")


def test_a_worker_whose_node_is_back_serves_as_before() -> None:
    worker = pods.worker_of(with_conditions(Ready="True", ContainersReady="True"))
    assert (worker.node_unreachable, worker.answering, worker.failure) == (False, True, None)


def test_a_flooded_worker_that_misses_its_readiness_probe_is_not_lost() -> None:
    assert not pods.worker_of(with_conditions(Ready="False", ContainersReady="False")).node_unreachable


def test_an_evicted_pod_is_over() -> None:
    pod = a_pod()
    pod["status"]["phase"] = "Failed"
    assert pods.is_over(pod)


@pytest.mark.parametrize("spoil", ["labels", "ownerReferences"])
def test_a_pod_that_only_looks_like_ours_is_not_ours(spoil: str) -> None:
    pod = a_pod()
    assert pods.is_managed(pod)
    del pod["metadata"][spoil]
    assert not pods.is_managed(pod)
