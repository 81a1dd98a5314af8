"""What befalls one pod, whichever it is."""

import json
from contextlib import AbstractContextManager

from faults.stage import Stage
from scene import Object, StoryError, container_of, first_status

HUNG_SECONDS = 180.0
"""Probes give up after a minute; what does not heed SIGTERM then has its grace, and is killed."""


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


def kill_and_settle(stage: Stage, pod: Object) -> str:
    """End the pod's process by SIGKILL; return the note once the kubelet has started it again."""
    stage.kill(pod)
    restarted(stage, pod, deadline_seconds=60)
    return f"whole again {stage.settle():.1f} s after its restart"


def hang(stage: Stage, pod: Object) -> AbstractContextManager[None]:
    """Return a context in which the processes of a pod's first container hold still."""
    return stage.cluster.breaker().stopped(container_of(pod))


def restarted(stage: Stage, pod: Object, *, deadline_seconds: float) -> float:
    """Return the seconds until the kubelet has started a pod's first container again.

    Raises:
        StoryError: It does not, or it starts another one of the pod's containers again.
    """
    get = ["get", "pod", pod["metadata"]["name"], "-o", "json"]
    before, first = _restarts(pod), first_status(pod)["name"]

    def now() -> dict[str, int]:
        return _restarts(json.loads(stage.kubectl(*get, namespace=pod["metadata"]["namespace"])))

    what = f"the kubelet starts {first} of {pod['metadata']['name']} again"
    seconds = stage.until(lambda: now()[first] > before[first], what=what, deadline_seconds=deadline_seconds)
    others = {name for name, count in now().items() if count > before[name]} - {first}
    if others:
        raise StoryError(f"{what}, and {', '.join(sorted(others))} as well")
    return seconds


def _restarts(pod: Object) -> dict[str, int]:
    return {one["name"]: one["restartCount"] for one in pod["status"]["containerStatuses"]}
