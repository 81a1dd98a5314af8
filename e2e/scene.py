"""One pool of a cluster: looking at it, changing it, and waiting for it. Every story on a cluster is told with it."""

import json
import time
from collections.abc import Callable, Mapping
from typing import Any

from cluster.contract import Cluster
from cluster.processes import ClusterError
from cluster.progress import Say
from rewardpool_api import names

Object = dict[str, Any]

POLL_SECONDS = 0.4
LONGEST_WORDS = 200
"""Characters of one message in an error's."""


class StoryError(RuntimeError):
    """Something did not happen as it should; the message says what."""


class Scene:
    """One pool, and the namespace that it is in."""

    def __init__(self, cluster: Cluster, *, namespace: str, name: str, say: Say) -> None:
        self.cluster = cluster
        self.namespace = namespace
        self.name = name
        self.say = say

    # Looking.

    def kubectl(self, *args: str, namespace: str | None = None, deadline_seconds: float = 60.0) -> str:
        """Run kubectl in the pool's namespace, or in another one; raises `ClusterError`."""
        where = f"--namespace={namespace or self.namespace}"
        return self.cluster.kubectl(where, *args, deadline_seconds=deadline_seconds)

    def objects(self, kinds: str, *, namespace: str | None = None) -> list[Object]:
        """The objects of one or more kinds, separated by commas."""
        found: list[Object] = json.loads(self.kubectl("get", kinds, "-o", "json", namespace=namespace))["items"]
        return found

    def pool(self) -> Object:
        """The RewardPool object."""
        found: Object = json.loads(self.kubectl("get", "rewardpool", self.name, "-o", "json"))
        return found

    def condition(self, kind: str) -> Object:
        """A condition of the pool; empty where it was never set."""
        return condition(self.pool(), kind)

    def pods(self, component: str) -> list[Object]:
        """The pool's pods of one component, leaving ones included, oldest first."""
        return of_component(self.objects("pods"), self.name, component)

    def uids(self, *components: str) -> set[str]:
        """The uids of the pool's pods of these components, leaving ones included."""
        return {pod["metadata"]["uid"] for component in components for pod in self.pods(component)}

    def phase(self, pod: str) -> str:
        """What Kubernetes says of a pod, such as Running; empty where there is none."""
        return self.kubectl("get", "pod", pod, "--ignore-not-found", "-o", "jsonpath={.status.phase}")

    # Changing.

    def apply(self, *objects: Object) -> None:
        """Apply manifests as the one who wrote them."""
        document = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
        self.cluster.kubectl("apply", "-f", "-", input=document)

    def change(self, spec: Mapping[str, Any]) -> None:
        """Merge into the pool's spec, as a user would."""
        self.kubectl("patch", "rewardpool", self.name, "--type=merge", "--patch", json.dumps({"spec": spec}))

    def kill(self, pod: Object) -> None:
        """End the first container of a pod by SIGKILL, behind the back of Kubernetes."""
        self.cluster.kill_container(node_of(pod), container_of(pod))

    def attempt(self, *args: str) -> None:
        """Run kubectl to clean up; what it cannot do is said."""
        try:
            self.kubectl(*args, deadline_seconds=90)
        except ClusterError as error:
            self.say(f"cleaning up: {error}")

    # Waiting.

    def until(self, check: Callable[[], bool], *, what: str, deadline_seconds: float) -> float:
        """Wait for `check`; return the seconds it took. Raises `StoryError` after the deadline."""
        began = time.monotonic()
        while not check():
            if time.monotonic() - began > deadline_seconds:
                raise StoryError(f"{what}: not after {deadline_seconds:.0f} s; {self.state()}")
            time.sleep(POLL_SECONDS)
        return time.monotonic() - began

    def state(self) -> str:
        """The pool and its pods in one line, for an error's message."""
        try:
            return in_words(self.objects("rewardpools,pods"), self.name)
        except ClusterError as error:
            return f"what it looks like cannot be said: {error}"


def node_of(pod: Object) -> str:
    """The node that a pod runs on."""
    return str(pod["spec"]["nodeName"])


def condition(pool: Object, kind: str) -> Object:
    """A condition of a RewardPool object; empty where it was never set."""
    found = (item for item in pool.get("status", {}).get("conditions", []) if item["type"] == kind)
    return next(found, {})


def of_component(objects: list[Object], pool: str, component: str) -> list[Object]:
    """Those pods of a list that belong to a pool and to one component of it, oldest first."""
    labels = {names.LABEL_POOL: pool, names.LABEL_COMPONENT: component}.items()
    found = [pod for pod in objects if pod["kind"] == "Pod" and labels <= pod["metadata"].get("labels", {}).items()]
    return sorted(found, key=lambda pod: str(pod["metadata"]["creationTimestamp"]))


def in_words(objects: list[Object], pool: str) -> str:
    """A pool's conditions and its pods, in one line: what they are, and why they are no further."""
    conditions = [
        _words(item["type"], item["status"], item.get("reason"), item.get("message"))
        for found in objects
        if found["kind"] == "RewardPool" and found["metadata"]["name"] == pool
        for item in found.get("status", {}).get("conditions", [])
    ]
    pods = [_pod_in_words(found) for found in objects if found["kind"] == "Pod"]
    return "; ".join([*conditions, *pods]) or "there is neither the pool nor a pod"


def _pod_in_words(pod: Object) -> str:
    status = pod["status"]
    where = "being deleted" if "deletionTimestamp" in pod["metadata"] else status.get("phase")
    unplaced = [item.get("message") for item in status.get("conditions", []) if item.get("reason") == "Unschedulable"]
    containers = status.get("containerStatuses", [])
    ready = f"{sum(one['ready'] for one in containers)}/{len(pod['spec']['containers'])} ready"
    restarts = f"{sum(one['restartCount'] for one in containers)} restarts"
    states = [state for one in containers for state in (one.get("state", {}), one.get("lastState", {}))]
    ends = [f"{end.get('reason')} {end.get('exitCode')}" for state in states if (end := state.get("terminated"))]
    waits = [f"{wait.get('reason')} {wait.get('message', '')}" for state in states if (wait := state.get("waiting"))]
    return _words(pod["metadata"]["name"], where, ready, restarts, *unplaced, *waits, *ends)


def _words(*parts: str | None) -> str:
    return " ".join(part.strip()[:LONGEST_WORDS] for part in parts if part)


def first_status(pod: Object) -> Object:
    """The status of a pod's first container, empty before there is one: statuses are sorted by their names."""
    name = pod["spec"]["containers"][0]["name"]
    return next((one for one in pod["status"].get("containerStatuses", []) if one["name"] == name), {})


def container_of(pod: Object) -> str:
    """Id of a pod's first container."""
    return str(first_status(pod)["containerID"]).rpartition("//")[2]


def is_ready(pod: Object) -> bool:
    """Whether the kubelet calls a pod ready, and nobody told it to go."""
    conditions = pod["status"].get("conditions", [])
    ready = any(item["type"] == "Ready" and item["status"] == "True" for item in conditions)
    return ready and "deletionTimestamp" not in pod["metadata"]
