"""Odd pods and Leases on a real API server: it keeps what is drawn, or refuses it, and the pool is reconciled on.

Statuses are written as a kubelet would, Leases as training jobs would; what the operator then sees is what a real
watch says.
"""

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import Final

import pytest
from hypothesis import strategies as st
from support.drawing import draw_all
from support.hostile_operator import Running, operator_of
from support.odd_objects import lease_of, leases, pods_of
from support.patience import PATIENCE
from support.pool_surroundings import KEY
from support.tried import EXAMPLES, TRIED

from cluster.control_plane import ControlPlane
from rewardpool_api import names
from rewardpool_kube import resources
from rewardpool_kube.errors import KubeError
from rewardpool_kube.resources import Object, Resource

pytestmark = pytest.mark.real

NAMESPACE: Final = "hostile-objects"
POOL: Final = KEY[1]
ROUND_SECONDS: Final = 20.0
PODS: Final = 2
"""Of each component."""
SPEC: Final = {
    "model": {"source": "python://rewards:score", "type": "Function"},
    "engine": {"name": "python"},
    "worker": {"gpus": 0},
    "router": {"replicas": PODS},
    "autoscaling": {"minReplicas": PODS, "maxReplicas": 4, "policy": {"type": "Demand", "demand": {}}},
}


def last_words(report: Object) -> Object:
    """A pod whose container died and left this as its termination message."""
    died = {"terminated": {"exitCode": 1, "message": json.dumps(report)}}
    status = {
        "restartCount": 3,
        "ready": False,
        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": died,
    }
    statuses = [{"name": name, **status} for name in (names.COMPONENT_WORKER, names.COMPONENT_ROUTER)]
    return {"metadata": {}, "status": {"phase": "Running", "conditions": [], "containerStatuses": statuses}}


LAST_WORDS: Final = [
    last_words({"reason": "Long" * 100, "message": "a reason as no condition may have it"}),
    last_words({"reason": "ModelNotFound", "message": "half \ud800 of a pair"}),
]
drawn = st.tuples(pods_of(names.COMPONENT_WORKER), pods_of(names.COMPONENT_ROUTER), leases)


@dataclass
class Writer:
    """Writes what was drawn."""

    running: Running
    written: dict[tuple[Resource, str], int] = field(default_factory=dict)
    """The versions of the last round."""
    kept: int = 0
    refused: int = 0

    async def write(self, workers: Object, routers: Object, jobs: list[Object]) -> None:
        """Give all pods that there are the statuses, and make the Leases; what is refused is counted."""
        self.written.clear()
        for component, said in ((names.COMPONENT_WORKER, workers), (names.COMPONENT_ROUTER, routers)):
            for pod in self.pods(component):
                await self._keep(
                    resources.PODS, pod, {"metadata": {"annotations": said["metadata"].get("annotations")}}
                )
                await self._keep(resources.PODS, pod, {"status": said["status"]}, subresource="status")
        for lease in map(lease_of, jobs):
            await self._make(lease)

    def pods(self, component: str) -> list[str]:
        """The pods that the operator has seen."""
        found = self.running.operator.store.objects((NAMESPACE, POOL))
        return [pod["metadata"]["name"] for pod in (found.pods_of(component) if found else ())]

    def has_seen_all(self) -> bool:
        """Whether the operator has seen what was written last, or something newer."""
        for (resource, name), version in self.written.items():
            seen = self.running.operator.store.find(resource, NAMESPACE, name)
            if seen is not None and int(seen["metadata"]["resourceVersion"]) < version:
                return False
        return True

    async def _make(self, lease: Object) -> None:
        await self.running.kube.delete(resources.LEASES, NAMESPACE, lease["metadata"]["name"])
        metadata = {**lease["metadata"], "namespace": NAMESPACE}
        metadata.pop("managedFields", None)  # the API server writes them
        manifest = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", **lease, "metadata": metadata}
        try:
            self._note(resources.LEASES, await self.running.kube.create(resources.LEASES, manifest))
        except KubeError as error:
            self._refused(error)

    async def _keep(self, resource: Resource, name: str, patch: Mapping[str, Object], *, subresource: str = "") -> None:
        merge = self.running.kube.merge(resource, NAMESPACE, name, dict(patch), subresource=subresource)
        try:
            self._note(resource, await merge)
        except KubeError as error:
            self._refused(error)

    def _note(self, resource: Resource, found: Object) -> None:
        self.kept += 1
        self.written[resource, found["metadata"]["name"]] = int(found["metadata"]["resourceVersion"])

    def _refused(self, error: KubeError) -> None:
        assert error.status in (400, 404, 413, 422), error
        self.refused += 1


async def until(holds: Callable[[], bool], what: str) -> None:
    deadline = monotonic() + ROUND_SECONDS * PATIENCE
    while not holds():
        assert monotonic() < deadline, what
        await asyncio.sleep(0.02)


async def reconciled(running: Running, number: int) -> None:
    """A pass has ended that began after all that was written; another spec asks for it."""
    spec = {"autoscaling": {"maxReplicas": 5 + number % 2}}
    changed = await running.kube.merge(resources.POOLS, NAMESPACE, POOL, {"spec": spec})

    def observed() -> bool:
        status = (running.operator.store.pool((NAMESPACE, POOL)) or {}).get("status") or {}
        return bool(status.get("observedGeneration") == changed["metadata"]["generation"])

    await until(observed, f"round {number}: no status about generation {changed['metadata']['generation']}")


async def test_no_pod_or_lease_that_an_api_server_keeps_fails_its_pools_passes(control_plane: ControlPlane) -> None:
    control_plane.kubectl("create", "namespace", NAMESPACE)
    rounds = [*((said, said, []) for said in LAST_WORDS), *draw_all(drawn, max(2, EXAMPLES // 5))]
    metadata = {"name": POOL, "namespace": NAMESPACE}
    manifest = {"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": metadata, "spec": SPEC}
    async with operator_of(control_plane, NAMESPACE) as running:
        writer = Writer(running)
        await running.kube.create(resources.POOLS, manifest)
        components = (names.COMPONENT_WORKER, names.COMPONENT_ROUTER)
        await until(lambda: all(len(writer.pods(component)) >= PODS for component in components), "the pods are made")
        for number, (workers, routers, jobs) in enumerate(rounds):
            await writer.write(workers, routers, jobs)
            await until(writer.has_seen_all, f"round {number}: what was written is seen")
            await reconciled(running, number)
            assert not running.failed.found, running.failed.found[0]
    TRIED["statuses of pods, annotations and Leases that an API server kept"] += writer.kept
    TRIED["of them refused by it"] += writer.refused
    assert writer.kept > writer.refused
