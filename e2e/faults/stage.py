"""The pool under load: what every fault is written with."""

import time
from pathlib import Path

from cluster.contract import Cluster
from cluster.progress import Say
from faults import manifests
from faults.manifests import NAMESPACE, POOL
from faults.tally import Tally, TrafficLog, count
from installation import Installation
from rewardpool_api import names
from scene import POLL_SECONDS, Object, Scene, condition, is_ready, node_of, of_component

SETTLE_SECONDS = 60.0
"""Deadline for the pool to be whole after a fault, unless the fault needs another."""
ANSWER_SECONDS = 130.0
"""A sample's own deadline is 120 s: after this none is in flight any more."""


class Stage(Scene):
    """One pool with its traffic on one cluster."""

    def __init__(self, cluster: Cluster, installation: Installation, *, folder: Path, rate: float, say: Say) -> None:
        super().__init__(cluster, namespace=NAMESPACE, name=POOL, say=say)
        self.installation = installation
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
        node = node_of(self.pods("worker")[0])
        self.apply(*manifests.traffic(self._folder, node=node, rate=self._rate))
        self.until(lambda: self._traffic.flows, what="samples are scored", deadline_seconds=60)

    def close(self) -> None:
        """Remove the pool and its namespace."""
        # The traffic first: whatever the pool's end does to it is nobody's business.
        for what in (["pod", manifests.TRAFFIC], ["rewardpools", "--all"]):
            self.attempt("delete", *what, "--ignore-not-found", "--timeout=60s")
        self.attempt("delete", "namespace", NAMESPACE, "--ignore-not-found", "--wait=false")

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
        return self.phase(manifests.TRAFFIC) == "Running"

    def is_settled(self) -> bool:
        """Whether the pool is as its spec says: all of it ready, nothing starting, leaving or changing."""
        return is_settled(self.objects("rewardpools,pods,deployments"))

    def shape(self, *, workers: int, routers: int) -> None:
        """Bring the pool to that size and return when it is."""
        self.change({"replicas": workers, "router": {"replicas": routers}})
        self.settle()

    def settle(self, deadline_seconds: float = SETTLE_SECONDS) -> float:
        """Wait until the pool is whole; return the seconds it took."""
        return self.until(self.is_settled, what="the pool is whole", deadline_seconds=deadline_seconds)


def is_settled(objects: list[Object], name: str = POOL) -> bool:
    """Whether a pool, among its namespace's pods and Deployments, is as its spec says and nothing is under way."""
    found = [item for item in objects if item["kind"] == names.KIND and item["metadata"]["name"] == name]
    if not found or found[0].get("status", {}).get("observedGeneration") != found[0]["metadata"]["generation"]:
        return False
    pool = found[0]
    workers, routers = of_component(objects, name, "worker"), of_component(objects, name, "router")
    said = {kind: condition(pool, kind).get("status") for kind in ("Serving", "RouterReady", "Progressing")}
    deployments = [item for item in objects if item["kind"] == "Deployment"]
    return (
        said == {"Serving": "True", "RouterReady": "True", "Progressing": "False"}
        and all(map(is_ready, [*workers, *routers]))
        and pool["status"].get("readyReplicas") == pool["spec"]["replicas"] == len(workers)
        and pool["spec"]["router"]["replicas"] == len(routers)
        # A router counts as available some seconds after it is ready; before that its rollout goes on.
        and all(is_complete(item) for item in deployments)
    )


def settle(scene: Scene, *, what: str, deadline_seconds: float) -> float:
    """Wait until the pool is as its spec says; return the seconds."""
    return scene.until(
        lambda: is_settled(scene.objects("rewardpools,pods,deployments"), scene.name),
        what=what,
        deadline_seconds=deadline_seconds,
    )


def is_complete(deployment: Object) -> bool:
    """Whether a Deployment's controller has nothing left to do."""
    wanted, status = deployment["spec"]["replicas"], deployment["status"]
    counts = {status.get(name, 0) for name in ("replicas", "updatedReplicas", "availableReplicas")}
    return status.get("observedGeneration") == deployment["metadata"]["generation"] and counts == {wanted}
