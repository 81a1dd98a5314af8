"""What befalls one pod of the pool, a worker's or a router's alike."""

from faults.stage import Stage
from scene import Object


def delete_and_settle(stage: Stage, pod: Object, component: str, *, deadline_seconds: float) -> str:
    """`kubectl delete pod`; return the note once another one has its place."""
    doomed = pod["metadata"]["name"]
    stage.kubectl("delete", "pod", doomed, "--wait=false")
    seconds = stage.until(
        lambda: all(other["metadata"]["name"] != doomed for other in stage.pods(component)) and stage.is_settled(),
        what="another one serves",
        deadline_seconds=deadline_seconds,
    )
    return f"replaced in {seconds:.1f} s"


def kill_and_settle(stage: Stage, pod: Object, component: str) -> str:
    """End the pod's process by SIGKILL; return the note once the kubelet has started it again."""
    stage.kill(pod)
    name = pod["metadata"]["name"]
    stage.until(lambda: _restarts(stage, component, name) > 0, what="the kubelet starts it again", deadline_seconds=60)
    return f"whole again {stage.settle():.1f} s after its restart"


def _restarts(stage: Stage, component: str, name: str) -> int:
    (found,) = (pod for pod in stage.pods(component) if pod["metadata"]["name"] == name)
    return int(found["status"]["containerStatuses"][0]["restartCount"])
