"""Carrying a plan out: routers and objects, in the plan's order, writing only what differs.

Three parts, of which none waits for another to succeed: the routers' lists, which take no API server; the objects; and
what is told. An object that is refused does not keep the others from being done: the next pass sees what is still
missing, and what failed, which is for its decision to tell.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from time import monotonic
from typing import Final, Literal

from rewardpool_api import RewardPool, RewardPoolStatus, names
from rewardpool_operator.kubernetes import client, render, scale_down_order
from rewardpool_operator.kubernetes.cache.objects import Objects
from rewardpool_operator.kubernetes.cache.store import Store
from rewardpool_operator.kubernetes.client import Kube, KubeError, Object, Resource
from rewardpool_operator.kubernetes.credentials.secret_deletion import with_witness
from rewardpool_operator.kubernetes.credentials.secret_reader import secret_names
from rewardpool_operator.kubernetes.desired import Rendered, Settled
from rewardpool_operator.kubernetes.ensure import Ensure, Known, NotOursError, is_ours
from rewardpool_operator.kubernetes.event_correlator import EventCorrelator, RepairTally, Repeat
from rewardpool_operator.kubernetes.pods import ANNOTATION_DELETION_COST, is_deleting
from rewardpool_operator.kubernetes.recorder import event_object
from rewardpool_operator.kubernetes.requeue import FIGURES_SECONDS
from rewardpool_operator.kubernetes.revisions import files_of
from rewardpool_operator.kubernetes.volatile_status import own, without_figures
from rewardpool_operator.kubernetes.worker_list_drift import WorkerListDrift
from rewardpool_operator.metrics import METRICS, Change
from rewardpool_operator.plan import Event, Join, Leave, Plan
from rewardpool_operator.routers.admin import RouterAdmin, RouterError
from rewardpool_operator.snapshot import WorkerSet
from rewardpool_operator.times import rfc3339

log = logging.getLogger(__name__)

ORIENTATION_SECONDS: Final = 6.0
"""A new operator needs two or three looks to tell requests that wait from connections that were leaked. Until then the
status keeps the figures it has."""


@dataclass(kw_only=True)
class Written:
    """What was written, kept from pass to pass."""

    manifests: Known = field(default_factory=dict)
    """What `ensure.py` knows of the owned objects."""
    lists: WorkerListDrift = field(default_factory=WorkerListDrift)
    """What the routers' lists were."""
    repairs: RepairTally = field(default_factory=RepairTally)
    """Repairs of them that are not told yet."""
    events: EventCorrelator = field(default_factory=EventCorrelator)
    """What was told."""
    settled: Settled | None = None
    """What was found to be as rendered; None when something had to be written."""
    refused: Settled | None = None
    """What was refused; None when nothing was."""
    begun_at: float = field(default_factory=monotonic)
    """Monotonic time from which on the pool was looked at."""
    status_at: float = 0.0
    """Monotonic time of the last write of the status."""
    unwritten: tuple[Object, RewardPoolStatus] | None = None
    """The status that was found, and the one that replaces it when its turn comes; None when nothing waits."""

    def as_decided(self, pool: RewardPool, found: Object) -> RewardPool:
        """The pool with the status that was decided last, be it written or not.

        Args:
            pool: the object, parsed.
            found: its status as JSON. When that is another than it was, somebody else decided meanwhile.
        """
        if self.unwritten is None or self.unwritten[0] != found:
            return pool
        return pool.model_copy(update={"status": self.unwritten[1]})


class Apply:
    """One pass of carrying out over one pool."""

    def __init__(
        self,
        kube: Kube,
        store: Store,
        pool: RewardPool,
        objects: Objects,
        *,
        written: Written,
        router_admin: Callable[[str], RouterAdmin | None],
        figures_seconds: float = FIGURES_SECONDS,
    ) -> None:
        self._kube = kube
        self._store = store
        self._pool = pool
        self._objects = objects
        self._written = written
        self._router_admin = router_admin
        self._figures_seconds = figures_seconds
        self._namespace = pool.metadata.namespace
        self._upkeep = Ensure(kube, store, pool, known=written.manifests)
        self.failures: list[str] = []
        """What the API server refused of the pool's objects in this pass."""
        self.put_off = False
        """Whether what was refused before, and is the same now, was not tried in this pass."""
        self.changed = False
        """Whether something was done whose outcome no watch tells, or that another step follows."""
        self._wrote = False
        """Whether any owned object was not as rendered."""

    async def restore_routers(self, plan: Plan) -> None:
        """Put back what routers lost, and nothing else: for when the API server is away, or somebody else may lead.

        No worker is taken out: what is known of the pods may be old, and the routers have health checks of their own.
        """
        await self._join(plan.joins)

    async def keep_lists(self, plan: Plan) -> None:
        """Bring the routers' lists to what they shall be: off first, then on. Needs nobody but the routers."""
        await self._leave(plan.leaves)
        await self._join(plan.joins)

    async def bring_about(
        self, plan: Plan, rendered: Rendered, *, may_write_secrets: bool = True, again: bool = True
    ) -> None:
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
        is_settled = seen.holds(self._written.settled)
        self.put_off = not again and seen.holds(self._written.refused)
        tries = not is_settled and not self.put_off
        if tries:
            await self._guarded(self._upkeep.look_for(self._names_in(plan, rendered)))
            workers, routers = plan.protected_workers, plan.protected_routers
            await self._bring_about_shared(
                [render.protecting(manifest, workers=workers, routers=routers) for manifest in rendered.shared],
                may_write_secrets=may_write_secrets,
            )
            await self._remove_policies(rendered.shared)
        await self._mark(plan)
        if tries:
            await self._size(plan, rendered)
            self._written.refused = seen if self.failures else None
            self._written.settled = None if self._wrote or self.failures or not may_write_secrets else seen
        await self._remove_files(rendered.shared)
        if plan.first_replicas is not None:
            await self._guarded(self._give_scale(plan.first_replicas))

    async def expose(self, plan: Plan) -> None:
        """Open the readiness gates of routers that hold their workers, and close those of routers that do not.

        Raises:
            KubeUnreachableError: the API server went away.
        """
        await asyncio.gather(
            *(self._guarded(self._set_gate(router, "True", "ListComplete")) for router in plan.expose),
            *(self._guarded(self._set_gate(router, "False", "ListIncomplete")) for router in plan.conceal),
        )

    async def tell(self, plan: Plan, *, write_status: bool = True, held: bool = False) -> None:
        """Write status and events.

        Args:
            plan: what to say.
            write_status: False for events alone.
            held: whether nothing was decided, so that no figures are to be waited for.

        Raises:
            KubeError: the API server does not take the status.
            KubeUnreachableError: the API server went away.
        """
        news = (*plan.events, *self._written.repairs.due(now=monotonic()))
        # Together: where a thousand pools start at once, every single write waits its turn at the API server.
        outcomes = await asyncio.gather(
            *((self._write_status(plan.status, held=held),) if write_status else ()),
            *(self._told(event) for event in news),
            return_exceptions=True,
        )
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    async def _told(self, event: Event) -> None:
        try:
            await self._tell(event)
        except KubeError as error:
            # The log has what an event would have said, and conditions have what lasts.
            log.warning("an event was not written: %s", error)

    async def _tell(self, event: Event) -> None:
        """Write an event, or that it was said again."""
        memory, now = self._written.events, monotonic()
        taken = memory.take(event, now=now)
        if isinstance(taken, Repeat):
            series = {"count": taken.count, "lastObservedTime": rfc3339(datetime.now(UTC))}
            try:
                await self._kube.merge(client.EVENTS, self._namespace, taken.name, {"series": series})
            except KubeError as error:
                # Events end after an hour, or by hand; the next time that it is said it is a new one.
                if error.status != 404:
                    raise
                memory.gone(event)
        elif taken is not None:
            log.info("%s: %s", event.reason, event.message)
            manifest = event_object(self._pool, event)
            await self._kube.create(client.EVENTS, manifest)
            memory.written(event, manifest["metadata"]["name"], now=now)

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
        """Secrets first: pods wait for them, and the witness names them by what they are in the cluster."""
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
            with_witness(manifest, there) if self._is_witness(manifest) else manifest
            for manifest in manifests
            if manifest["kind"] != "Secret" and self._is_time_for(manifest)
        ]
        await asyncio.gather(*(self._guarded(self._bring_about(manifest)) for manifest in rest))

    def _is_witness(self, manifest: Object) -> bool:
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
        if await self._upkeep.bring_about(manifest):
            self._wrote = True

    async def _guarded(self, step: Awaitable[object]) -> None:
        try:
            await step
        except (KubeError, NotOursError) as error:
            log.warning("%s", error)
            self.failures.append(str(error))
            self.changed = True

    async def _leave(self, leaves: Iterable[Leave]) -> None:
        await asyncio.gather(*(self._at_router(leave) for leave in leaves))

    async def _join(self, joins: tuple[Join, ...]) -> None:
        self._written.lists.to_join(joins, now=monotonic())
        await asyncio.gather(*(self._at_router(join) for join in joins))

    async def _at_router(self, change: Join | Leave) -> None:
        admin = self._router_admin(change.router)
        if admin is None:
            return
        try:
            if isinstance(change, Join):
                await admin.add(change.worker_url)
            else:
                await admin.remove(change.worker_id)
        except RouterError as error:
            log.warning("router %s: %s", change.router, error)
            return
        self.changed = True
        if self._written.lists.is_repair(change):
            kind: Change = "join" if isinstance(change, Join) else "leave"
            METRICS.router_repaired(self._namespace, self._pool.metadata.name, kind)
            self._written.repairs.add(kind)
        self._written.lists.done(change)

    async def _mark(self, plan: Plan) -> None:
        """Write on the pods who is leaving, and who goes first when the set shrinks."""
        since = rfc3339(datetime.now(UTC))
        marks: dict[str, dict[str, str | None]] = {}
        for name in plan.drain:
            cost = str(scale_down_order.COST_DRAINING)
            marks[name] = {names.ANNOTATION_DRAINING_SINCE: since, ANNOTATION_DELETION_COST: cost}
        for name in plan.keep:
            marks[name] = {names.ANNOTATION_DRAINING_SINCE: None, ANNOTATION_DELETION_COST: None}
        for name in plan.retire:
            marks[name] = {ANNOTATION_DELETION_COST: str(scale_down_order.COST_RETIRED)}
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
            await self._delete_passed_over(worker_set.revision, plan.retire)
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

    async def _delete_passed_over(self, revision: str, retire: tuple[str, ...]) -> None:
        pods = [
            pod
            for pod in self._objects.pods_of(names.COMPONENT_WORKER)
            if pod["metadata"]["labels"][names.LABEL_REVISION] == revision and not is_deleting(pod)
        ]
        for name in scale_down_order.passed_over(pods, retire):
            await self._delete(client.PODS, name)

    async def _delete(self, resource: Resource, name: str) -> None:
        ending = await self._kube.delete(resource, self._namespace, name)
        if ending is None:
            self._store.forget(resource, self._namespace, name)
        else:
            self._store.put(resource, ending)
        self.changed = self._wrote = True

    async def _give_scale(self, replicas: int) -> None:
        """Write spec.replicas where there is none; who wrote it meanwhile is right."""
        version = self._objects.pool["metadata"]["resourceVersion"]
        scale = {"metadata": {"resourceVersion": version}, "spec": {"replicas": replicas}}
        try:
            await self._kube.merge(client.POOLS, self._namespace, self._pool.metadata.name, scale, subresource="scale")
        except KubeError as error:
            if error.status != 409:
                raise
        self.changed = True

    async def _write_status(self, status: RewardPoolStatus, *, held: bool) -> None:
        wanted = status.model_dump(mode="json", by_alias=True, exclude_none=True)
        found = self._objects.pool.get("status") or {}
        ours, before = own(wanted), own(found)
        if ours == before:
            self._written.unwritten = None
            return
        now = monotonic()
        is_new_here = not held and now - self._written.begun_at < ORIENTATION_SECONDS
        if status.load is None and found.get("load") and is_new_here:
            return
        is_news = without_figures(ours) != without_figures(before)
        if not is_news and now - self._written.status_at < self._figures_seconds:
            self._written.unwritten = found, status
            return
        metadata = {"name": self._pool.metadata.name, "namespace": self._namespace}
        manifest = {"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": metadata, "status": wanted}
        self._store.put(client.POOLS, await self._kube.apply(client.POOLS, manifest, subresource="status"))
        self._written.status_at, self._written.unwritten = now, None
