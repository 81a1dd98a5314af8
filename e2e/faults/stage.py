"""The pool under load: looking at it, changing it, and waiting for it. What every fault is written with."""

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from cluster.contract import Cluster
from cluster.processes import ClusterError
from cluster.progress import Say
from faults import manifests
from faults.manifests import NAMESPACE, POOL
from faults.tally import Tally, TrafficLog, count
from installation import Installation
from rewardpool_api import names

Object = dict[str, Any]

POLL_SECONDS = 0.4
SETTLE_SECONDS = 60.0
"""Deadline for the pool to be whole after a fault, unless the fault needs another."""
ANSWER_SECONDS = 130.0
"""A sample's own deadline is 120 s: after this none is in flight any more."""


class FaultError(RuntimeError):
    """A promise was not kept; the message says which."""


class Stage:
    """One pool with its traffic on one cluster."""

    def __init__(self, cluster: Cluster, installation: Installation, *, folder: Path, rate: float, say: Say) -> None:
        self.cluster = cluster
        self.installation = installation
        self.say = say
        self._folder = folder / "traffic"
        self._rate = rate
        self._traffic = TrafficLog(self._folder)

    def open(self, *, workers: int, routers: int) -> None:
        """Bring up operator, pool and traffic, and return when samples are scored."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._folder.chmod(0o777)  # the traffic's pod is not root
        for earlier in self._folder.iterdir():
            earlier.unlink()
        # The namespace first: the chart makes a Role in it, the traffic's right to use the pool.
        self.apply(*manifests.namespace(NAMESPACE))
        self.installation.install(manifests.chart_values())
        self.installation.wait()
        self.apply(manifests.pool(workers=workers, routers=routers))
        self.until(self.is_settled, what="the pool serves", deadline_seconds=120)
        node = self.node_of(self.pods("worker")[0])
        self.apply(*manifests.traffic(self._folder, node=node, rate=self._rate))
        self.until(lambda: self._traffic.flows, what="samples are scored", deadline_seconds=60)

    def close(self) -> None:
        """Remove the pool and its namespace."""
        # The traffic first: whatever the pool's end does to it is nobody's business.
        for what in (["pod", manifests.TRAFFIC], ["rewardpools", "--all"]):
            self._attempt("delete", *what, "--ignore-not-found", "--timeout=60s")
        self._attempt("delete", "namespace", NAMESPACE, "--ignore-not-found", "--wait=false")

    def tally(self, since: float, until: float) -> Tally:
        """What became of the samples due in that window, once all of them are answered or past their deadline."""
        indices = self._traffic.due(since, until)
        deadline = time.monotonic() + ANSWER_SECONDS
        while time.monotonic() < deadline:
            answers = self._traffic.answers()
            if all(index in answers for index in indices) or not self.traffic_runs():
                break
            time.sleep(POLL_SECONDS)
        return count(indices, self._traffic.answers())

    def traffic_runs(self) -> bool:
        """Whether the traffic's pod is there and has not ended."""
        return self.kubectl("get", "pod", manifests.TRAFFIC, "-o", "jsonpath={.status.phase}") == "Running"

    # Looking.

    def kubectl(self, *args: str, namespace: str = NAMESPACE, deadline_seconds: float = 60.0) -> str:
        """Run kubectl in the pool's namespace; raises `ClusterError`."""
        return self.cluster.kubectl(f"--namespace={namespace}", *args, deadline_seconds=deadline_seconds)

    def objects(self, kinds: str, *, namespace: str = NAMESPACE) -> list[Object]:
        """The objects of one or more kinds, separated by commas."""
        found: list[Object] = json.loads(self.kubectl("get", kinds, "-o", "json", namespace=namespace))["items"]
        return found

    def pool(self) -> Object:
        """The RewardPool object."""
        found: Object = json.loads(self.kubectl("get", "rewardpool", POOL, "-o", "json"))
        return found

    def condition(self, kind: str) -> Object:
        """A condition of the pool; empty where it was never set."""
        return condition(self.pool(), kind)

    def pods(self, component: str) -> list[Object]:
        """The pool's pods of one component, leaving ones included, oldest first."""
        return of_component(self.objects("pods"), component)

    def node_of(self, pod: Object) -> str:
        """The node that a pod runs on."""
        return str(pod["spec"]["nodeName"])

    def is_settled(self) -> bool:
        """Whether the pool is as its spec says: all of it ready, nothing starting, leaving or changing."""
        return is_settled(self.objects("rewardpools,pods,deployments"))

    # Changing.

    def apply(self, *objects: Object) -> None:
        """Apply manifests as the one who wrote them."""
        document = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
        self.cluster.kubectl("apply", "-f", "-", input=document)

    def change(self, spec: Mapping[str, Any]) -> None:
        """Merge into the pool's spec, as a user would."""
        self.kubectl("patch", "rewardpool", POOL, "--type=merge", "--patch", json.dumps({"spec": spec}))

    def shape(self, *, workers: int, routers: int) -> None:
        """Bring the pool to that size and return when it is."""
        self.change({"replicas": workers, "router": {"replicas": routers}})
        self.settle()

    def kill(self, pod: Object) -> None:
        """End the first container of a pod by SIGKILL, behind the back of Kubernetes."""
        container = pod["status"]["containerStatuses"][0]["containerID"]
        self.cluster.kill_container(self.node_of(pod), container.rpartition("//")[2])

    # Waiting.

    def settle(self, deadline_seconds: float = SETTLE_SECONDS) -> float:
        """Wait until the pool is whole; return the seconds it took."""
        return self.until(self.is_settled, what="the pool is whole", deadline_seconds=deadline_seconds)

    def until(self, check: Callable[[], bool], *, what: str, deadline_seconds: float) -> float:
        """Wait for `check`; return the seconds it took. Raises `FaultError` after the deadline."""
        began = time.monotonic()
        while not check():
            if time.monotonic() - began > deadline_seconds:
                raise FaultError(f"{what}: not after {deadline_seconds:.0f} s")
            time.sleep(POLL_SECONDS)
        return time.monotonic() - began

    def _attempt(self, *args: str) -> None:
        try:
            self.kubectl(*args, deadline_seconds=90)
        except ClusterError as error:
            self.say(f"cleaning up: {error}")


def condition(pool: Object, kind: str) -> Object:
    """A condition of a RewardPool object; empty where it was never set."""
    found = (item for item in pool.get("status", {}).get("conditions", []) if item["type"] == kind)
    return next(found, {})


def of_component(pods: list[Object], component: str) -> list[Object]:
    """Those pods of a list that belong to the pool under load and to one component, oldest first."""
    labels = {names.LABEL_POOL: POOL, names.LABEL_COMPONENT: component}.items()
    found = [pod for pod in pods if pod["kind"] == "Pod" and labels <= pod["metadata"].get("labels", {}).items()]
    return sorted(found, key=lambda pod: str(pod["metadata"]["creationTimestamp"]))


def is_ready(pod: Object) -> bool:
    """Whether the kubelet calls a pod ready, and nobody told it to go."""
    conditions = pod["status"].get("conditions", [])
    ready = any(item["type"] == "Ready" and item["status"] == "True" for item in conditions)
    return ready and "deletionTimestamp" not in pod["metadata"]


def is_settled(objects: list[Object]) -> bool:
    """Whether a pool, among its namespace's pods and Deployments, is as its spec says and nothing is under way."""
    found = [item for item in objects if item["kind"] == names.KIND and item["metadata"]["name"] == POOL]
    if not found or found[0].get("status", {}).get("observedGeneration") != found[0]["metadata"]["generation"]:
        return False
    pool = found[0]
    workers, routers = of_component(objects, "worker"), of_component(objects, "router")
    said = {kind: condition(pool, kind).get("status") for kind in ("Ready", "RouterReady", "Progressing")}
    deployments = [item for item in objects if item["kind"] == "Deployment"]
    return (
        said == {"Ready": "True", "RouterReady": "True", "Progressing": "False"}
        and all(map(is_ready, [*workers, *routers]))
        and pool["status"].get("readyReplicas") == pool["spec"]["replicas"] == len(workers)
        and pool["spec"]["router"]["replicas"] == len(routers)
        # A router counts as available some seconds after it is ready; before that its rollout goes on.
        and all(is_complete(item) for item in deployments)
    )


def is_complete(deployment: Object) -> bool:
    """Whether a Deployment's controller has nothing left to do."""
    wanted, status = deployment["spec"]["replicas"], deployment["status"]
    counts = {status.get(name, 0) for name in ("replicas", "updatedReplicas", "availableReplicas")}
    return status.get("observedGeneration") == deployment["metadata"]["generation"] and counts == {wanted}
