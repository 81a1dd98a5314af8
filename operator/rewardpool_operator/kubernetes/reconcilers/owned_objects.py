"""The objects that a pool owns: their manifests, their sizes, the marks on its pods; writing only what differs.

An object that is refused does not keep the others from being done: the next pass sees what is still missing, and its
decision says what failed, in the API server's own words. What was refused and is the same is tried again more rarely.
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, Literal

from rewardpool_api import RewardPool, names
from rewardpool_api.reasons import ConditionReason
from rewardpool_api.times import rfc3339
from rewardpool_control.plan import Plan
from rewardpool_control.snapshot import WorkerSet
from rewardpool_kube import resources
from rewardpool_kube.client import Kube
from rewardpool_kube.errors import KubeError, KubeUnreachableError
from rewardpool_kube.resources import Object, Resource
from rewardpool_operator.kubernetes import render
from rewardpool_operator.kubernetes.cache.objects import Objects
from rewardpool_operator.kubernetes.cache.owned import is_ours
from rewardpool_operator.kubernetes.cache.store import Store
from rewardpool_operator.kubernetes.credentials.secret_deletion import with_secret_owners
from rewardpool_operator.kubernetes.credentials.secret_reader import secret_names
from rewardpool_operator.kubernetes.desired import Rendered, Settled
from rewardpool_operator.kubernetes.ensure import Ensure, Known, NotOursError
from rewardpool_operator.kubernetes.manifests.diff import stamped
from rewardpool_operator.kubernetes.mounted_files import MountedFiles
from rewardpool_operator.kubernetes.reconcilers import sandbox_claims
from rewardpool_operator.kubernetes.steps import ReconcileStep, Steps
from rewardpool_operator.kubernetes.workload import sandboxes, scale_down_order
from rewardpool_operator.kubernetes.workload.pods import ANNOTATION_DELETION_COST, is_deleting

log = logging.getLogger(__name__)

_NOT_ALWAYS_WANTED: Final[Mapping[str, Resource]] = {
    "PodDisruptionBudget": resources.DISRUPTION_BUDGETS,
    "NetworkPolicy": resources.NETWORK_POLICIES,
}


@dataclass(kw_only=True)
class _Memory:
    manifests: Known = field(default_factory=dict)
    workers: tuple[render.Revision, int, Object] | None = None
    """Revision, number and Deployment of the workers, as they were rendered last."""
    settled: Settled | None = None
    """State that was found as rendered; None when something had to be written."""
    refused: Settled | None = None
    in_the_way: bool = False


class OwnedObjectsReconciler:
    """The objects of one pool."""

    def __init__(self, kube: Kube, store: Store, files: MountedFiles, steps: Steps) -> None:
        self._kube = kube
        self._store = store
        self._files = files
        self._steps = steps
        self._memory = _Memory()

    @property
    def in_the_way(self) -> bool:
        """True if another owner has an object of a name that the pool needs, so that nothing is deployed."""
        return self._memory.in_the_way

    async def reconcile(
        self,
        pool: RewardPool,
        objects: Objects,
        plan: Plan,
        rendered: Rendered | None,
        *,
        may_write_secrets: bool = True,
    ) -> bool:
        """Bring a plan about, but for its lists and its status.

        Where nothing is rendered, only the routers that may be asked are brought about.

        Returns:
            True if something was done whose outcome no watch reports, or that another step follows.

        Raises:
            PoolGoneError: the pool was deleted, and the watch of pools said nothing.
        """
        again = self._steps.pause(ReconcileStep.OBJECTS) == 0
        one = _Pass(self._kube, self._store, self._files, pool, objects, memory=self._memory)
        try:
            await one.expose(plan)
            if rendered is not None:
                await one.apply(plan, rendered, may_write_secrets=may_write_secrets, again=again)
        except KubeUnreachableError as error:
            self._steps.came_to(ReconcileStep.OBJECTS, ConditionReason.API_SERVER_UNREACHABLE, str(error))
        else:
            if rendered is not None and (one.failures or not one.put_off):
                reason = ConditionReason.NAME_TAKEN if one.in_the_way else ConditionReason.APPLY_FAILED
                self._steps.came_to(ReconcileStep.OBJECTS, reason, "; ".join(one.failures) or None)
        return one.changed


class _Pass:
    def __init__(
        self, kube: Kube, store: Store, files: MountedFiles, pool: RewardPool, objects: Objects, *, memory: _Memory
    ) -> None:
        self._kube = kube
        self._store = store
        self._files = files
        self._pool = pool
        self._objects = objects
        self._memory = memory
        self._namespace = pool.metadata.namespace
        self._ensure = Ensure(kube, store, pool, known=memory.manifests)
        self.failures: list[str] = []
        self.in_the_way = False
        self.put_off = False
        """True if what was refused before, and is the same now, was not tried in this pass."""
        self.changed = False
        self._wrote = False
        self._planned_with_gone = False
        """True if a marked worker was gone: the sizes count it, so the next pass plans anew."""
        self._serves = False

    async def apply(self, plan: Plan, rendered: Rendered, *, may_write_secrets: bool, again: bool) -> None:
        """Bring the owned objects about: marks on workers, their number, what is rendered.

        What was refused before and is the same is tried only `again`.

        Raises:
            KubeUnreachableError: the API server went away; what was not done is done by a later pass.
        """
        await asyncio.gather(*(self._guarded(self._files.ensure(manifest)) for manifest in rendered.files))
        self._serves = plan.status.ready_replicas > 0
        seen = self._looked_at(plan, rendered)
        is_settled = seen.holds(self._memory.settled)
        self.put_off = not again and seen.holds(self._memory.refused)
        tries = not is_settled and not self.put_off
        if tries:
            protected = {
                names.COMPONENT_WORKER: plan.protected_workers,
                names.COMPONENT_ROUTER: plan.protected_routers,
                names.COMPONENT_GATEWAY: plan.protected_gateways,
            }
            await self._apply_shared(
                [
                    stamped(render.protecting(manifest, protected))
                    if manifest["kind"] == "PodDisruptionBudget"
                    else manifest
                    for manifest in rendered.shared
                ],
                may_write_secrets=may_write_secrets,
            )
            await self._remove_unwanted(rendered.shared)
        await self._mark(plan)
        if tries:
            if not self.in_the_way and not self._planned_with_gone:
                await self._size(plan, rendered)
            self._memory.refused = seen if self.failures else None
            self._memory.in_the_way = self.in_the_way
            self._memory.settled = None if self._wrote or self.failures or not may_write_secrets else seen

    async def expose(self, plan: Plan) -> None:
        """Open the readiness gates of routers that hold their workers, and close those of routers that do not.

        Raises:
            KubeUnreachableError: the API server went away.
        """
        await asyncio.gather(
            *(self._guarded(self._set_gate(router, "True", "ListComplete")) for router in plan.expose),
            *(self._guarded(self._set_gate(router, "False", "ListIncomplete")) for router in plan.conceal),
        )

    async def _patch(self, resource: Resource, name: str, patch: Object) -> None:
        self._store.put(resource, await self._kube.merge(resource, self._namespace, name, patch))
        self.changed = True

    def _looked_at(self, plan: Plan, rendered: Rendered) -> Settled:
        found = self._objects
        owned = (*found.deployments, *found.services, *found.config_maps, *found.secrets, *found.claims)
        # Claims come and go by what their pods do.
        owned += found.pods if found.claims else ()
        others = tuple(item for items in found.others.values() for item in items)
        return Settled(
            rendered=rendered,
            worker_sets=plan.worker_sets,
            serving=self._serves,
            protected=(plan.protected_workers, plan.protected_routers, plan.protected_gateways),
            owned=owned + others,
        )

    async def _apply_shared(self, manifests: Iterable[Object], *, may_write_secrets: bool) -> None:
        """Apply the manifests, Secrets first: pods wait for them, and the Service names them."""
        secrets = [manifest for manifest in manifests if manifest["kind"] == "Secret"] if may_write_secrets else []
        if self._objects.secrets:
            # One tells what the other one already has: their order counts.
            for manifest in secrets:
                await self._guarded(self._apply(manifest))
        else:
            await asyncio.gather(*(self._guarded(self._apply(manifest)) for manifest in secrets))
        found = [
            self._store.find(resources.SECRETS, self._namespace, name)
            for name in secret_names(self._pool.metadata.name, gateway=self._pool.spec.gateway is not None)
        ]
        there = [secret for secret in found if secret is not None and is_ours(secret, self._pool.metadata.uid)]
        rest = [
            stamped(with_secret_owners(manifest, there)) if manifest["kind"] == "Service" else manifest
            for manifest in manifests
            if manifest["kind"] != "Secret" and self._is_time_for(manifest)
        ]
        # Deployments last, and none where something is in the way: their pods would mount another owner's Secret.
        for is_deployment in (False, True):
            if self.in_the_way:
                return
            those = [manifest for manifest in rest if (manifest["kind"] == "Deployment") == is_deployment]
            await asyncio.gather(*(self._guarded(self._apply(manifest)) for manifest in those))

    async def _remove_unwanted(self, manifests: Iterable[Object]) -> None:
        """Delete network policies, and the gateway with its budget, where the pool wants none any more."""
        # Its Service and Secret stay: the operator may delete neither kind, and nothing is behind them.
        gateway = names.gateway_name(self._pool.metadata.name)
        if self._pool.spec.gateway is None and self._objects.find("Deployment", gateway) is not None:
            await self._guarded(self._delete(resources.DEPLOYMENTS, gateway))
        wanted = {(manifest["kind"], manifest["metadata"]["name"]) for manifest in manifests}
        for kind, resource in _NOT_ALWAYS_WANTED.items():
            for found in self._objects.others.get(kind, ()):
                name = found["metadata"]["name"]
                if (kind, name) not in wanted and is_ours(found, self._pool.metadata.uid):
                    await self._guarded(self._delete(resource, name))

    def _is_time_for(self, manifest: Object) -> bool:
        """Return whether the object is of use now: a budget needs pods to protect, and pins need entries."""
        match manifest["kind"]:
            case "PodDisruptionBudget":
                # Kubernetes counts a budget anew with every pod that comes.
                says_something = manifest["spec"]["minAvailable"] > 0 and self._serves
            case "ConfigMap":
                says_something = json.loads(manifest["data"][names.PINS_FILE]) != {}
            case _:
                return True
        return says_something or self._objects.find(manifest["kind"], manifest["metadata"]["name"]) is not None

    async def _apply(self, manifest: Object) -> None:
        if await self._ensure.apply(manifest):
            self._wrote = True

    async def _guarded(self, step: Awaitable[object]) -> None:
        try:
            await step
        except (KubeError, NotOursError) as error:
            self.in_the_way |= isinstance(error, NotOursError)
            log.warning("%s", error)
            self.failures.append(str(error))
            self.changed = True

    async def _mark(self, plan: Plan) -> None:
        since = rfc3339(datetime.now(UTC))
        marks: dict[str, dict[str, str | None]] = {}
        for name in plan.drain:
            cost = str(scale_down_order.COST_DRAINING)
            marks[name] = {names.ANNOTATION_DRAINING_SINCE: since, ANNOTATION_DELETION_COST: cost}
        for name in plan.undrain:
            marks[name] = {names.ANNOTATION_DRAINING_SINCE: None, ANNOTATION_DELETION_COST: None}
        for name in plan.stop:
            marks[name] = {ANNOTATION_DELETION_COST: str(scale_down_order.COST_STOPPED)}
        shrinks = bool(plan.stop) and any(self._shrinks(worker_set) for worker_set in plan.worker_sets)
        for pod in self._objects.pods:
            name = pod["metadata"]["name"]
            wanted = marks.get(name, {})
            found = pod["metadata"].get("annotations") or {}
            # A set never shrinks for a worker that was marked in an earlier pass and is gone since.
            is_checked = shrinks and name in plan.stop
            if is_checked or any(found.get(key) != value for key, value in wanted.items()):
                await self._guarded(self._annotate(pod, wanted))

    async def _annotate(self, pod: Object, annotations: Mapping[str, str | None]) -> None:
        name = pod["metadata"]["name"]
        try:
            await self._patch(resources.PODS, name, {"metadata": {"annotations": dict(annotations)}})
        except KubeError as error:
            if not error.is_not_found:
                raise
            self._store.forget(resources.PODS, self._namespace, name)
            self._planned_with_gone = self._wrote = True
        self.changed = True

    def _shrinks(self, worker_set: WorkerSet) -> bool:
        live = self._live(worker_set)
        return live is not None and worker_set.replicas < live["spec"].get("replicas", 1)

    def _live(self, worker_set: WorkerSet) -> Object | None:
        return self._objects.find("Deployment", names.worker_name(self._pool.metadata.name, worker_set.revision))

    async def _set_gate(self, router: str, status: Literal["True", "False"], reason: str) -> None:
        condition = {
            "type": names.CONDITION_HOLDS_WORKERS,
            "status": status,
            "reason": reason,
            "lastTransitionTime": rfc3339(datetime.now(UTC)),
        }
        metadata = {"name": router, "namespace": self._namespace}
        manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "status": {"conditions": [condition]}}
        try:
            self._store.put(resources.PODS, await self._kube.apply(resources.PODS, manifest, subresource="status"))
        except KubeError as error:
            if not error.is_not_found:
                raise
            self._store.forget(resources.PODS, self._namespace, router)
        self.changed = True

    async def _size(self, plan: Plan, rendered: Rendered) -> None:
        """Bring every revision's Deployment to its size, and delete those of revisions nobody needs."""
        for worker_set in plan.worker_sets:
            await self._guarded(self._size_one(worker_set, plan, rendered))
            await self._guarded(self._claim(worker_set, plan))
        wanted = {worker_set.revision for worker_set in plan.worker_sets}
        for deployment in self._objects.worker_deployments():
            metadata = deployment["metadata"]
            if metadata["labels"][names.LABEL_REVISION] not in wanted and not is_deleting(deployment):
                await self._guarded(self._delete(resources.DEPLOYMENTS, metadata["name"]))

    async def _size_one(self, worker_set: WorkerSet, plan: Plan, rendered: Rendered) -> None:
        live = self._live(worker_set)
        if live is not None and self._shrinks(worker_set) and not sandboxes.are_pods_of(live["spec"]["template"]):
            await self._delete_passed_over(worker_set.revision, plan.stop)
        if worker_set.revision == rendered.revision.name:
            await self._apply(self._workers(rendered.revision, replicas=worker_set.replicas))
        elif live is not None and live["spec"].get("replicas", 1) != worker_set.replicas:
            # The template of an old revision is nowhere but in its Deployment.
            patch = {"spec": {"replicas": worker_set.replicas}}
            await self._patch(resources.DEPLOYMENTS, live["metadata"]["name"], patch)
            self._wrote = True

    async def _claim(self, worker_set: WorkerSet, plan: Plan) -> None:
        name = names.worker_name(self._pool.metadata.name, worker_set.revision)
        deployment = self._store.find(resources.DEPLOYMENTS, self._namespace, name)
        if deployment is None or not sandboxes.are_pods_of(deployment["spec"]["template"]):
            return
        if await sandbox_claims.reconcile(self._kube, self._store, deployment, self._objects, stop=plan.stop):
            self.changed = self._wrote = True

    def _workers(self, revision: render.Revision, *, replicas: int) -> Object:
        """The Deployment of the present revision; the last one for the very same revision, which is the same pool's."""
        last = self._memory.workers
        if last is not None and last[0] is revision and last[1] == replicas:
            return last[2]
        manifest = stamped(render.worker_deployment(self._pool, revision, replicas=replicas))
        self._memory.workers = revision, replicas, manifest
        return manifest

    async def _delete_passed_over(self, revision: str, stop: tuple[str, ...]) -> None:
        pods = [
            pod
            for pod in self._objects.pods_of(names.COMPONENT_WORKER)
            if pod["metadata"]["labels"][names.LABEL_REVISION] == revision and not is_deleting(pod)
        ]
        for name in scale_down_order.passed_over(pods, stop):
            await self._delete(resources.PODS, name)

    async def _delete(self, resource: Resource, name: str) -> None:
        ending = await self._kube.delete(resource, self._namespace, name)
        if ending is None:
            self._store.forget(resource, self._namespace, name)
        else:
            self._store.put(resource, ending)
        self.changed = self._wrote = True
