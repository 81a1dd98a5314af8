"""The objects that a pool owns: their manifests, their sizes, the marks on its pods; writing only what differs.

An object that is refused does not keep the others from being done: the next pass sees what is still missing, and its
decision says what failed, in the API server's own words. What was refused and is the same is tried again more rarely.
"""

import asyncio
import logging
from collections.abc import Awaitable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal

from rewardpool_api import RewardPool, names
from rewardpool_api.reasons import ConditionReason
from rewardpool_operator.kubernetes import client, render, scale_down_order
from rewardpool_operator.kubernetes.cache.objects import Objects
from rewardpool_operator.kubernetes.cache.store import Store
from rewardpool_operator.kubernetes.client import Kube, KubeError, KubeUnreachableError, Object, Resource
from rewardpool_operator.kubernetes.credentials.secret_deletion import with_secret_owners
from rewardpool_operator.kubernetes.credentials.secret_reader import secret_names
from rewardpool_operator.kubernetes.desired import Rendered, Settled
from rewardpool_operator.kubernetes.ensure import Ensure, Known, NotOursError, is_ours
from rewardpool_operator.kubernetes.pods import ANNOTATION_DELETION_COST, is_deleting
from rewardpool_operator.kubernetes.revisions import files_of
from rewardpool_operator.kubernetes.steps import Step, Steps
from rewardpool_operator.plan import Plan
from rewardpool_operator.snapshot import WorkerSet
from rewardpool_operator.times import rfc3339

log = logging.getLogger(__name__)


@dataclass(kw_only=True)
class _Memory:
    """What is kept from pass to pass."""

    manifests: Known = field(default_factory=dict)
    """What `ensure.py` knows of the owned objects."""
    settled: Settled | None = None
    """What was found to be as rendered; None when something had to be written."""
    refused: Settled | None = None
    """What was refused; None when nothing was."""


class OwnedObjectsReconciler:
    """The objects of one pool.

    Args:
        kube: the API server.
        store: knows what is written at once.
        steps: hears what was refused.
    """

    def __init__(self, kube: Kube, store: Store, steps: Steps) -> None:
        self._kube = kube
        self._store = store
        self._steps = steps
        self._memory = _Memory()

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

        Args:
            pool: whose.
            objects: what there is.
            plan: after its lists.
            rendered: what the pool shall own; None where nothing was decided but which routers may be asked.
            may_write_secrets: False while nobody knows what the Secrets are.

        Returns:
            Whether something was done whose outcome no watch tells, or that another step follows.

        Raises:
            PoolGoneError: the pool was deleted, and the watch of pools said nothing.
        """
        again = self._steps.pause(Step.OBJECTS) == 0
        one = _Pass(self._kube, self._store, pool, objects, memory=self._memory)
        try:
            await one.expose(plan)
            if rendered is not None:
                await one.bring_about(plan, rendered, may_write_secrets=may_write_secrets, again=again)
        except KubeUnreachableError as error:
            self._steps.came_to(Step.OBJECTS, ConditionReason.API_SERVER_UNREACHABLE, str(error))
        else:
            if rendered is not None and (one.failures or not one.put_off):
                self._steps.came_to(Step.OBJECTS, ConditionReason.APPLY_FAILED, "; ".join(one.failures) or None)
        return one.changed


class _Pass:
    """One pass over one pool's objects."""

    def __init__(self, kube: Kube, store: Store, pool: RewardPool, objects: Objects, *, memory: _Memory) -> None:
        self._kube = kube
        self._store = store
        self._pool = pool
        self._objects = objects
        self._memory = memory
        self._namespace = pool.metadata.namespace
        self._ensure = Ensure(kube, store, pool, known=memory.manifests)
        self.failures: list[str] = []
        """What the API server refused in this pass."""
        self.put_off = False
        """Whether what was refused before, and is the same now, was not tried in this pass."""
        self.changed = False
        """See `OwnedObjectsReconciler.reconcile`."""
        self._wrote = False
        """Whether any owned object was not as rendered."""

    async def bring_about(self, plan: Plan, rendered: Rendered, *, may_write_secrets: bool, again: bool) -> None:
        """Bring the owned objects about: marks on workers, their number, what is rendered.

        Args:
            plan: after its lists.
            rendered: what the pool shall own.
            may_write_secrets: False while nobody knows what the Secrets are.
            again: whether to try what was refused before and is the same.

        Raises:
            KubeUnreachableError: the API server went away; what was not done is done by a later pass.
        """
        seen = self._looked_at(plan, rendered)
        is_settled = seen.holds(self._memory.settled)
        self.put_off = not again and seen.holds(self._memory.refused)
        tries = not is_settled and not self.put_off
        if tries:
            await self._guarded(self._ensure.look_for(self._names_in(plan, rendered)))
            workers, routers = plan.protected_workers, plan.protected_routers
            await self._bring_about_shared(
                [render.protecting(manifest, workers=workers, routers=routers) for manifest in rendered.shared],
                may_write_secrets=may_write_secrets,
            )
            await self._remove_policies(rendered.shared)
        await self._mark(plan)
        if tries:
            await self._size(plan, rendered)
            self._memory.refused = seen if self.failures else None
            self._memory.settled = None if self._wrote or self.failures or not may_write_secrets else seen
        await self._remove_files(rendered.shared)

    async def expose(self, plan: Plan) -> None:
        """Open the readiness gates of routers that hold their workers, and close those of routers that do not.

        Raises:
            KubeUnreachableError: the API server went away.
        """
        await asyncio.gather(
            *(self._guarded(self._set_gate(router, "True", "ListComplete")) for router in plan.expose),
            *(self._guarded(self._set_gate(router, "False", "ListIncomplete")) for router in plan.conceal),
        )

    def _looked_at(self, plan: Plan, rendered: Rendered) -> Settled:
        found = self._objects
        owned = (*found.deployments, *found.services, *found.config_maps, *found.secrets)
        others = tuple(item for items in found.others.values() for item in items)
        return Settled(
            rendered=rendered,
            worker_sets=plan.worker_sets,
            serving=self._is_serving(),
            protected=(plan.protected_workers, plan.protected_routers),
            owned=owned + others,
        )

    def _is_serving(self) -> bool:
        """Whether a worker served at the last look."""
        return self._pool.status.ready_replicas > 0

    def _names_in(self, plan: Plan, rendered: Rendered) -> list[tuple[str, str]]:
        """Kind and name of what is to be brought about."""
        shared = [
            (manifest["kind"], manifest["metadata"]["name"])
            for manifest in rendered.shared
            if self._is_time_for(manifest)
        ]
        revisions = {worker_set.revision for worker_set in plan.worker_sets}
        current = revisions & {rendered.revision.name}
        return shared + [("Deployment", names.worker_name(self._pool.metadata.name, revision)) for revision in current]

    async def _bring_about_shared(self, manifests: Iterable[Object], *, may_write_secrets: bool) -> None:
        """Secrets first: pods wait for them, and the ConfigMap of pins names them by what they are in the cluster."""
        secrets = [manifest for manifest in manifests if manifest["kind"] == "Secret"] if may_write_secrets else []
        if self._objects.secrets:
            # One tells what the other one already has: their order counts.
            for manifest in secrets:
                await self._guarded(self._bring_about(manifest))
        else:
            await asyncio.gather(*(self._guarded(self._bring_about(manifest)) for manifest in secrets))
        found = [
            self._store.find(client.SECRETS, self._namespace, name) for name in secret_names(self._pool.metadata.name)
        ]
        there = [secret for secret in found if secret is not None]
        rest = [
            with_secret_owners(manifest, there) if self._names_secrets(manifest) else manifest
            for manifest in manifests
            if manifest["kind"] != "Secret" and self._is_time_for(manifest)
        ]
        await asyncio.gather(*(self._guarded(self._bring_about(manifest)) for manifest in rest))

    def _names_secrets(self, manifest: Object) -> bool:
        pins = names.pins_config_map(self._pool.metadata.name)
        return (manifest["kind"], manifest["metadata"]["name"]) == ("ConfigMap", pins)

    async def _remove_files(self, manifests: Iterable[Object]) -> None:
        """Mounted files stay for as long as a template or a pod names them; Kubernetes keeps no such count."""
        needed = {manifest["metadata"]["name"] for manifest in manifests if manifest["kind"] == "ConfigMap"}
        for deployment in self._objects.deployments:
            needed |= files_of(deployment["spec"]["template"])
        for pod in self._objects.pods:
            needed |= files_of(pod)
        files = names.files_config_map(self._pool.metadata.name)
        for config_map in self._objects.config_maps:
            name = config_map["metadata"]["name"]
            is_files = name == files or name.startswith(f"{files}-")
            if is_files and name not in needed and not is_deleting(config_map) and is_ours(config_map, self._pool):
                await self._guarded(self._delete(client.CONFIG_MAPS, name))

    async def _remove_policies(self, manifests: Iterable[Object]) -> None:
        """Network policies are the one kind of which a pool may want none any more."""
        wanted = {manifest["metadata"]["name"] for manifest in manifests if manifest["kind"] == "NetworkPolicy"}
        for policy in self._objects.others.get("NetworkPolicy", ()):
            if policy["metadata"]["name"] not in wanted and is_ours(policy, self._pool):
                await self._guarded(self._delete(client.NETWORK_POLICIES, policy["metadata"]["name"]))

    def _is_time_for(self, manifest: Object) -> bool:
        """A budget is made once there is something to protect: Kubernetes counts anew with every pod that comes."""
        there = self._objects.find(manifest["kind"], manifest["metadata"]["name"]) is not None
        return manifest["kind"] != "PodDisruptionBudget" or there or self._is_serving()

    async def _bring_about(self, manifest: Object) -> None:
        if await self._ensure.bring_about(manifest):
            self._wrote = True

    async def _guarded(self, step: Awaitable[object]) -> None:
        try:
            await step
        except (KubeError, NotOursError) as error:
            log.warning("%s", error)
            self.failures.append(str(error))
            self.changed = True

    async def _mark(self, plan: Plan) -> None:
        """Write on the pods who is leaving, and who goes first when the set shrinks."""
        since = rfc3339(datetime.now(UTC))
        marks: dict[str, dict[str, str | None]] = {}
        for name in plan.drain:
            cost = str(scale_down_order.COST_DRAINING)
            marks[name] = {names.ANNOTATION_DRAINING_SINCE: since, ANNOTATION_DELETION_COST: cost}
        for name in plan.undrain:
            marks[name] = {names.ANNOTATION_DRAINING_SINCE: None, ANNOTATION_DELETION_COST: None}
        for name in plan.stop:
            marks[name] = {ANNOTATION_DELETION_COST: str(scale_down_order.COST_STOPPED)}
        for pod in self._objects.pods:
            wanted = marks.get(pod["metadata"]["name"], {})
            found = pod["metadata"].get("annotations") or {}
            if any(found.get(name) != value for name, value in wanted.items()):
                await self._guarded(self._annotate(pod, wanted))

    async def _annotate(self, pod: Object, annotations: Mapping[str, str | None]) -> None:
        patch = {"metadata": {"annotations": dict(annotations)}}
        try:
            self._store.put(
                client.PODS, await self._kube.merge(client.PODS, self._namespace, pod["metadata"]["name"], patch)
            )
        except KubeError as error:
            if error.status != 404:
                raise
        self.changed = True

    async def _set_gate(self, router: str, status: Literal["True", "False"], reason: str) -> None:
        """Open or close the readiness gate of a router's pod; see `decide/router_readiness.py`."""
        condition = {
            "type": names.CONDITION_HOLDS_WORKERS,
            "status": status,
            "reason": reason,
            "lastTransitionTime": rfc3339(datetime.now(UTC)),
        }
        metadata = {"name": router, "namespace": self._namespace}
        manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "status": {"conditions": [condition]}}
        try:
            self._store.put(client.PODS, await self._kube.apply(client.PODS, manifest, subresource="status"))
        except KubeError as error:
            if error.status != 404:
                raise
        self.changed = True

    async def _size(self, plan: Plan, rendered: Rendered) -> None:
        """Bring every revision's Deployment to its size, and delete those of revisions nobody needs."""
        for worker_set in plan.worker_sets:
            await self._guarded(self._size_one(worker_set, plan, rendered))
        wanted = {worker_set.revision for worker_set in plan.worker_sets}
        for deployment in self._objects.worker_deployments():
            metadata = deployment["metadata"]
            if metadata["labels"][names.LABEL_REVISION] not in wanted and not is_deleting(deployment):
                await self._guarded(self._delete(client.DEPLOYMENTS, metadata["name"]))

    async def _size_one(self, worker_set: WorkerSet, plan: Plan, rendered: Rendered) -> None:
        live = self._objects.find("Deployment", names.worker_name(self._pool.metadata.name, worker_set.revision))
        if live is not None and worker_set.replicas < live["spec"].get("replicas", 1):
            await self._delete_passed_over(worker_set.revision, plan.stop)
        if worker_set.revision == rendered.revision.name:
            manifest = render.worker_deployment(self._pool, rendered.revision, replicas=worker_set.replicas)
            await self._bring_about(manifest)
        elif live is not None and live["spec"].get("replicas", 1) != worker_set.replicas:
            # The template of an old revision is nowhere but in its Deployment.
            patch = {"spec": {"replicas": worker_set.replicas}}
            name = live["metadata"]["name"]
            self._store.put(
                client.DEPLOYMENTS, await self._kube.merge(client.DEPLOYMENTS, self._namespace, name, patch)
            )
            self.changed = self._wrote = True

    async def _delete_passed_over(self, revision: str, stop: tuple[str, ...]) -> None:
        pods = [
            pod
            for pod in self._objects.pods_of(names.COMPONENT_WORKER)
            if pod["metadata"]["labels"][names.LABEL_REVISION] == revision and not is_deleting(pod)
        ]
        for name in scale_down_order.passed_over(pods, stop):
            await self._delete(client.PODS, name)

    async def _delete(self, resource: Resource, name: str) -> None:
        ending = await self._kube.delete(resource, self._namespace, name)
        if ending is None:
            self._store.forget(resource, self._namespace, name)
        else:
            self._store.put(resource, ending)
        self.changed = self._wrote = True
