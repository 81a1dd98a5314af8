"""Carrying a plan out: routers and objects, in the plan's order, writing only what differs.

A step that fails does not keep the others from being done: the next pass sees what is still missing. What failed is
told by the condition Degraded and one event, in the API server's own words.
"""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from secrets import token_hex
from time import monotonic
from typing import Final

from rewardpool_api import Condition, RewardPool, RewardPoolStatus, names
from rewardpool_api.status import MAX_MESSAGE
from rewardpool_operator.kubernetes import client, render, victims
from rewardpool_operator.kubernetes.client import Kube, KubeError, Object
from rewardpool_operator.kubernetes.compare import ANNOTATION_MANIFEST, differs, stamped
from rewardpool_operator.kubernetes.observe import Objects
from rewardpool_operator.kubernetes.pods import ANNOTATION_DELETION_COST, is_deleting
from rewardpool_operator.kubernetes.render import Keys
from rewardpool_operator.plan import Event, Join, Leave, Plan
from rewardpool_operator.router_admin import RouterAdmin, RouterError
from rewardpool_operator.snapshot import Failure, WorkerSet
from rewardpool_operator.times import rfc3339

log = logging.getLogger(__name__)

LOAD_SECONDS: Final = 5.0
"""A status that differs in its load alone is written no more often than this."""
MAX_NOTE: Final = 1024
"""Bytes the API server takes in an event."""
APPLY_FAILED: Final = "ApplyFailed"

RouterCall = Callable[[RouterAdmin], Awaitable[None]]

_RESOURCES: Final = {
    "Secret": client.SECRETS,
    "ConfigMap": client.CONFIG_MAPS,
    "Service": client.SERVICES,
    "Deployment": client.DEPLOYMENTS,
}


@dataclass(kw_only=True)
class Written:
    """What was written, kept from pass to pass."""

    manifests: dict[tuple[str, str], tuple[str, str]] = field(default_factory=dict)
    """Kind and name -> hash of the manifest that was applied, and the object's version after that."""
    status_at: float = 0.0
    """Monotonic time of the last write of the status."""


@dataclass(frozen=True, kw_only=True)
class Rendered:
    """What the pool shall own, but for the number of workers."""

    shared: tuple[Object, ...]
    """Every manifest but the worker Deployments."""
    worker_template: Object


class NotOursError(RuntimeError):
    """An object of the name we need belongs to somebody else; taking it would delete it with the pool."""


class Apply:
    """One pass of carrying out over one pool."""

    def __init__(
        self,
        kube: Kube,
        pool: RewardPool,
        objects: Objects,
        *,
        written: Written,
        router_admin: Callable[[str], RouterAdmin | None],
    ) -> None:
        self._kube = kube
        self._pool = pool
        self._objects = objects
        self._written = written
        self._router_admin = router_admin
        self._namespace = pool.metadata.namespace
        self.failures: list[str] = []
        """What the API server refused in this pass."""
        self.changed = False
        """Whether anything was written that `objects` does not show yet."""
        self.pool_object = objects.pool
        """The pool with the status as it was last written."""

    async def routers_only(self, plan: Plan) -> None:
        """Keep the routers' lists right while the API server is away."""
        await self._leave(plan.leaves)
        await self._join(plan.joins)

    async def all_of(self, plan: Plan, rendered: Rendered) -> None:
        """Carry out the whole plan.

        Raises:
            KubeUnreachableError: the API server went away; what was not done is done by a later pass.
        """
        await self._leave(plan.leaves)
        for manifest in rendered.shared:
            await self._guarded(self._bring_about(manifest))
        await self._mark(plan)
        await self._size(plan, rendered)
        await self._join(plan.joins)
        status, events = with_failure(plan, self._failure(), self._pool.status)
        await self._guarded(self._write_status(status))
        for event in events:
            log.info("%s: %s: %s", self._pool.key, event.reason, event.message)
            await self._guarded(self._kube.create(client.EVENTS, event_object(self._pool, event)))

    async def _guarded(self, step: Awaitable[object]) -> None:
        try:
            await step
        except (KubeError, NotOursError) as error:
            log.warning("%s: %s", self._pool.key, error)
            self.failures.append(str(error))
            self.changed = True

    async def _leave(self, leaves: Iterable[Leave]) -> None:
        await asyncio.gather(*(self._at_router(leave.router, _removal(leave)) for leave in leaves))

    async def _join(self, joins: Iterable[Join]) -> None:
        await asyncio.gather(*(self._at_router(join.router, _addition(join)) for join in joins))

    async def _at_router(self, router: str, call: RouterCall) -> None:
        admin = self._router_admin(router)
        if admin is None:
            return
        try:
            await call(admin)
        except RouterError as error:
            log.warning("%s: router %s: %s", self._pool.key, router, error)

    async def _mark(self, plan: Plan) -> None:
        """Write on the pods who is leaving, and who goes first when the set shrinks."""
        since = rfc3339(datetime.now(UTC))
        marks: dict[str, dict[str, str | None]] = {}
        for name in plan.drain:
            cost = str(victims.COST_DRAINING)
            marks[name] = {names.ANNOTATION_DRAINING_SINCE: since, ANNOTATION_DELETION_COST: cost}
        for name in plan.keep:
            marks[name] = {names.ANNOTATION_DRAINING_SINCE: None, ANNOTATION_DELETION_COST: None}
        for name in plan.retire:
            marks[name] = {ANNOTATION_DELETION_COST: str(victims.COST_RETIRED)}
        for pod in self._objects.pods:
            wanted = marks.get(pod["metadata"]["name"], {})
            found = pod["metadata"].get("annotations") or {}
            if any(found.get(name) != value for name, value in wanted.items()):
                await self._guarded(self._annotate(pod, wanted))

    async def _annotate(self, pod: Object, annotations: Mapping[str, str | None]) -> None:
        patch = {"metadata": {"annotations": dict(annotations)}}
        try:
            await self._kube.merge(client.PODS, self._namespace, pod["metadata"]["name"], patch)
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
                await self._guarded(self._kube.delete(client.DEPLOYMENTS, self._namespace, metadata["name"]))
                self.changed = True

    async def _size_one(self, worker_set: WorkerSet, plan: Plan, rendered: Rendered) -> None:
        live = self._objects.deployment(names.worker_name(self._pool.metadata.name, worker_set.revision))
        if live is not None and worker_set.replicas < live["spec"].get("replicas", 1):
            await self._delete_passed_over(worker_set.revision, plan.retire)
        if worker_set.revision == render.revision_of(rendered.worker_template):
            manifest = render.worker_deployment(self._pool, rendered.worker_template, replicas=worker_set.replicas)
            await self._bring_about(manifest)
        elif live is not None and live["spec"].get("replicas", 1) != worker_set.replicas:
            # The template of an old revision is nowhere but in its Deployment.
            patch = {"spec": {"replicas": worker_set.replicas}}
            await self._kube.merge(client.DEPLOYMENTS, self._namespace, live["metadata"]["name"], patch)
            self.changed = True

    async def _delete_passed_over(self, revision: str, retire: tuple[str, ...]) -> None:
        pods = [
            pod
            for pod in self._objects.pods_of(names.COMPONENT_WORKER)
            if pod["metadata"]["labels"][names.LABEL_REVISION] == revision and not is_deleting(pod)
        ]
        for name in victims.passed_over(pods, retire):
            await self._kube.delete(client.PODS, self._namespace, name)
            self.changed = True

    async def _bring_about(self, manifest: Object) -> None:
        """Apply the manifest, unless the live object is what it says."""
        manifest = stamped(manifest)
        kind, name = manifest["kind"], manifest["metadata"]["name"]
        live = _live(self._objects, kind, name)
        resource = _RESOURCES[kind]
        # An object without our labels is not among those that were listed.
        there = live or await self._kube.get(resource, self._namespace, name)
        if there is not None and not is_ours(there, self._pool):
            raise NotOursError(f"{kind} {name} is there and is not this pool's: delete it, or name the pool otherwise")
        digest = manifest["metadata"]["annotations"][ANNOTATION_MANIFEST]
        if live is not None and not needs_apply(manifest, live, self._written.manifests.get((kind, name))):
            return
        applied = await self._kube.apply(resource, manifest)
        self._written.manifests[kind, name] = (digest, version_of(applied))
        self.changed = True

    async def _write_status(self, status: RewardPoolStatus) -> None:
        wanted = status.model_dump(mode="json", by_alias=True, exclude_none=True)
        found = self._objects.pool.get("status") or {}
        if wanted == found:
            return
        now = monotonic()
        load_alone = {**wanted, "load": None} == {**found, "load": None}
        if load_alone and now - self._written.status_at < LOAD_SECONDS:
            return
        metadata = {"name": self._pool.metadata.name, "namespace": self._namespace}
        manifest = {"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": metadata, "status": wanted}
        self.pool_object = await self._kube.apply(client.POOLS, manifest, subresource="status")
        self._written.status_at = now

    def _failure(self) -> Failure | None:
        """What keeps the pool from being as declared on the side of Kubernetes."""
        if self.failures:
            return Failure(reason=APPLY_FAILED, message="; ".join(self.failures))
        for deployment in self._objects.deployments:
            for condition in deployment.get("status", {}).get("conditions", []):
                if (condition["type"], condition["status"]) == ("ReplicaFailure", "True"):
                    return Failure(reason=condition.get("reason", "FailedCreate"), message=condition.get("message", ""))
        return None


def _removal(leave: Leave) -> RouterCall:
    return lambda admin: admin.remove(leave.worker_id)


def _addition(join: Join) -> RouterCall:
    return lambda admin: admin.add(join.worker_url)


def is_ours(live: Object, pool: RewardPool) -> bool:
    """Whether the object belongs to the pool, by its label or by its owner."""
    metadata = live["metadata"]
    owners = {owner["uid"] for owner in metadata.get("ownerReferences", [])}
    return metadata.get("labels", {}).get(names.LABEL_POOL) == pool.metadata.name or pool.metadata.uid in owners


def needs_apply(manifest: Object, live: Object, before: tuple[str, str] | None) -> bool:
    """Whether applying the stamped manifest would change the live object.

    The API server writes some values in its own way ("1000m" of CPU as "1"), and then the object differs from the
    manifest for ever. So a difference that was there right after the same manifest was applied is none.

    Args:
        manifest: as it would be applied.
        live: the object.
        before: hash and version that the last apply left; None when there was none.
    """
    if not differs(manifest, live):
        return False
    digest = manifest["metadata"]["annotations"][ANNOTATION_MANIFEST]
    return before != (digest, version_of(live)) or differs({"metadata": manifest["metadata"]}, live)


def version_of(live: Object) -> str:
    """Changes when somebody changes what the object is asked to be; without a generation, when anything changes."""
    metadata = live["metadata"]
    return f"{metadata['uid']}/{metadata.get('generation') or metadata['resourceVersion']}"


def with_failure(
    plan: Plan, failure: Failure | None, old: RewardPoolStatus
) -> tuple[RewardPoolStatus, tuple[Event, ...]]:
    """The plan's status and events, with what Kubernetes refused as the condition Degraded."""
    if failure is None:
        return plan.status, plan.events
    before = old.condition("Degraded")
    known = before is not None and before.status == "True"
    degraded = Condition(
        type="Degraded",
        status="True",
        reason=failure.reason,
        message=failure.message[-MAX_MESSAGE:],
        last_transition_time=before.last_transition_time if before and known else rfc3339(datetime.now(UTC)),
        observed_generation=plan.status.observed_generation,
    )
    conditions = [degraded if condition.type == "Degraded" else condition for condition in plan.status.conditions]
    events = tuple(event for event in plan.events if not event.reason.endswith("Degraded"))
    if before is None or (before.status, before.reason) != ("True", failure.reason):
        events += (Event(type="Warning", reason=failure.reason, message=failure.message),)
    return plan.status.model_copy(update={"conditions": conditions}), events


def event_object(pool: RewardPool, event: Event) -> Object:
    """An event of the API group events.k8s.io."""
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": f"{pool.metadata.name}.{token_hex(8)}", "namespace": pool.metadata.namespace},
        "eventTime": rfc3339(datetime.now(UTC)),
        "type": event.type,
        "reason": event.reason,
        "action": "Reconcile",
        "note": event.message.encode()[:MAX_NOTE].decode(errors="ignore"),
        "regarding": {
            "apiVersion": names.API_VERSION,
            "kind": names.KIND,
            "name": pool.metadata.name,
            "namespace": pool.metadata.namespace,
            "uid": pool.metadata.uid,
        },
        "reportingController": f"{names.GROUP}/operator",
        "reportingInstance": socket.gethostname()[:128],
    }


def rendered(pool: RewardPool, keys: Keys, *, image: str) -> Rendered:
    """Everything the pool shall own."""
    return Rendered(
        shared=(
            *render.secrets(pool, keys),
            render.files_config_map(pool),
            render.router_service(pool),
            render.router_deployment(pool, fingerprint=keys.fingerprint, image=image),
        ),
        worker_template=render.worker_template(pool, image=image),
    )


def _live(objects: Objects, kind: str, name: str) -> Object | None:
    secrets = [secret for secret in (objects.key_secret, objects.admin_secret) if secret is not None]
    found = {
        "Secret": secrets,
        "ConfigMap": objects.config_maps,
        "Service": objects.services,
        "Deployment": objects.deployments,
    }
    return next((item for item in found[kind] if item["metadata"]["name"] == name), None)
