"""The order and the economy of reconcilers out, on an API server that only remembers what it was asked (a fake)."""

from collections.abc import Callable
from math import inf
from time import monotonic
from typing import Any

import pytest
from support.decide_builders import a_router
from support.kube_builders import a_pod, a_pool

from rewardpool_api import RewardPool, RewardPoolStatus, names
from rewardpool_api.job_scores import JobScores
from rewardpool_api.status import DemandStatus, LoadStatus
from rewardpool_control.plan import Event, Join, Leave, Plan
from rewardpool_control.snapshot import RegisteredWorker, WorkerSet
from rewardpool_kube import resources
from rewardpool_kube.errors import KubeError
from rewardpool_kube.resources import Object, Resource
from rewardpool_operator.kubernetes import render
from rewardpool_operator.kubernetes.cache.owned import RESOURCES
from rewardpool_operator.kubernetes.cache.store import Store
from rewardpool_operator.kubernetes.credentials.keys import Keys
from rewardpool_operator.kubernetes.credentials.secret_deletion import with_secret_owners
from rewardpool_operator.kubernetes.desired import Rendered, rendered
from rewardpool_operator.kubernetes.events.event_correlator import COUNT_SECONDS
from rewardpool_operator.kubernetes.events.recorder import event_object
from rewardpool_operator.kubernetes.manifests import diff
from rewardpool_operator.kubernetes.mounted_files import MountedFiles
from rewardpool_operator.kubernetes.queue.requeue import START
from rewardpool_operator.kubernetes.reconcilers.owned_objects import OwnedObjectsReconciler
from rewardpool_operator.kubernetes.reconcilers.status import StatusReconciler
from rewardpool_operator.kubernetes.reconcilers.worker_lists import WorkerListReconciler
from rewardpool_operator.kubernetes.steps import Steps
from rewardpool_operator.kubernetes.workload.pods import ANNOTATION_DELETION_COST
from rewardpool_operator.routers.admin import RouterUnreachableError

POOL = a_pool()
RENDERED = rendered(POOL, Keys(pool="p", admin="a"), image="own:1")
REVISION = RENDERED.revision.name
FILES = [item["metadata"]["name"] for item in RENDERED.files]


REASONS = {404: "NotFound", 409: "Conflict"}


class FakeKube:
    """Has the pool, remembers the calls that write; refuses what `refuse` names."""

    def __init__(self, *, refuse: str = "", refusal: int = 409, foreign: str = "") -> None:
        self.calls: list[tuple[str, str, Any]] = []
        self.refusal = refusal
        self.refuse, self._foreign = refuse, foreign
        self._version = 1

    async def get(self, resource: Resource, namespace: str, name: str) -> Object | None:
        if resource == resources.POOLS:
            return {"metadata": {"uid": POOL.metadata.uid}}
        return {"metadata": {"name": name, "uid": "other"}} if name == self._foreign else None

    async def apply(self, resource: Resource, manifest: Object, *, subresource: str = "") -> Object:
        name = manifest["metadata"]["name"]
        if name == self.refuse:
            raise KubeError(f"PATCH {name}", status=422, reason="Invalid", message="spec.imagine: unknown field")
        self._note("apply", f"{name}/{subresource}" if subresource else name, manifest)
        return live({**manifest, "metadata": {**manifest["metadata"], "resourceVersion": self._next_version()}})

    async def create(self, resource: Resource, manifest: Object) -> Object:
        name = manifest.get("reason") or manifest["metadata"]["name"]
        if name == self._foreign:
            raise KubeError(f"POST {name}", status=409, reason="AlreadyExists", message="it exists")
        self._note("create", name, manifest)
        return live({**manifest, "metadata": {**manifest["metadata"], "resourceVersion": self._next_version()}})

    async def merge(
        self, resource: Resource, namespace: str, name: str, patch: Object, *, subresource: str = ""
    ) -> Object:
        name = f"{name}/{subresource}" if subresource else name
        if name == self.refuse:
            raise KubeError(f"PATCH {name}", status=self.refusal, reason=REASONS[self.refusal], message="not that")
        self._note("merge", name, patch)
        return live({"metadata": {"name": name, "resourceVersion": "0"}, "spec": {"containers": []}})

    async def delete(self, resource: Resource, namespace: str, name: str) -> None:
        self._note("delete", name, None)

    def _next_version(self) -> str:
        self._version += 1
        return str(self._version)

    def _note(self, verb: str, name: str, body: Any) -> None:
        self.calls.append((verb, name, body))

    def done(self) -> list[str]:
        return [f"{verb} {name}" for verb, name, _ in self.calls]


class FakeRouter:
    """Notes calls beside those to the API server."""

    def __init__(self, kube: FakeKube, *, away: bool = False) -> None:
        self._kube, self._away = kube, away

    async def add(self, worker_url: str) -> None:
        self._note("join", worker_url)

    async def remove(self, worker_id: str) -> None:
        self._note("leave", worker_id)

    def _note(self, verb: str, name: str) -> None:
        if self._away:
            raise RouterUnreachableError("nobody there")
        self._kube.calls.append((verb, name, None))


def a_store(
    *pods: Object, replicas: int = 1, others: tuple[Object, ...] = (), status: Any = None, without: str = ""
) -> Store:
    """All shared objects as applied, and the present revision's Deployment in some size."""
    store = Store()
    store.put(
        resources.POOLS,
        live(
            {
                "metadata": {"name": "rm", "namespace": "rl"},
                "spec": {},
                "status": status or {},
            }
        ),
    )
    secrets = [live(diff.stamped(manifest)) for manifest in RENDERED.shared if manifest["kind"] == "Secret"]
    manifests = [
        with_secret_owners(manifest, secrets) if manifest["kind"] == "Service" else manifest
        for manifest in RENDERED.shared
    ]
    for files in RENDERED.files:
        store.put(resources.CONFIG_MAPS, live(files))
    manifests.append(render.worker_deployment(POOL, RENDERED.revision, replicas=replicas))
    for manifest in manifests:
        if manifest["kind"] != without:
            store.put(RESOURCES[manifest["kind"]], live(diff.stamped(manifest)))
    for pod in pods:
        store.put(resources.PODS, live(pod))
    for deployment in others:
        store.put(resources.DEPLOYMENTS, live(deployment))
    return store


def an_empty_store() -> Store:
    store = Store()
    store.put(resources.POOLS, live({"metadata": {"name": "rm", "namespace": "rl"}, "status": {}}))
    return store


def live(manifest: Object) -> Object:
    name = manifest["metadata"]["name"]
    uid = POOL.metadata.uid if name == POOL.metadata.name else f"uid-{name}"
    metadata = {"namespace": "rl", "uid": uid, "resourceVersion": "1"}
    return {**manifest, "metadata": {"generation": 1, **metadata, **manifest["metadata"]}}


def a_worker_pod(name: str, *, ready: bool = True, **annotations: str) -> Object:
    pod = a_pod(name)
    pod["metadata"]["labels"][names.LABEL_REVISION] = REVISION
    pod["metadata"]["annotations"] = annotations
    if not ready:
        pod["status"]["conditions"] = []
    return pod


def a_plan(*, replicas: int = 1, **parts: Any) -> Plan:
    sets = parts.pop("worker_sets", (WorkerSet(revision=REVISION, replicas=replicas),))
    return Plan(worker_sets=sets, status=parts.pop("status", RewardPoolStatus(replicas=1)), **parts)


class Reconcilers:
    """Those of the pool, as a pass takes them, with what one pass came to."""

    def __init__(
        self, kube: FakeKube, store: Store, *, away: bool = False, clock: Callable[[], float] = monotonic
    ) -> None:
        router: Any = FakeRouter(kube, away=away)
        api: Any = kube
        self._store = store
        self._steps = Steps()
        self.lists = WorkerListReconciler(("rl", "rm"), lambda _: router)
        self.status = StatusReconciler(api, store, self._steps, clock=clock)
        self._owned = OwnedObjectsReconciler(api, store, MountedFiles(api, store), self._steps)
        self.changed = False

    @property
    def failures(self) -> list[str]:
        return [failing.message for failing in self._steps.failing]

    async def carry_out(self, plan: Plan, pool: RewardPool = POOL, rendered: Rendered = RENDERED) -> None:
        objects = self._store.objects(("rl", "rm"))
        assert objects is not None
        in_lists = await self.lists.reconcile(plan)
        self.changed = await self._owned.reconcile(pool, objects, plan, rendered) or in_lists
        await self.status.reconcile(pool, objects.status, plan, also=self.lists.repairs())


async def carried_out(
    plan: Plan, store: Store, kube: FakeKube | None = None, **how: Any
) -> tuple[FakeKube, Reconcilers]:
    kube = kube or FakeKube()
    reconcilers = Reconcilers(kube, store, **how)
    await reconcilers.carry_out(plan)
    return kube, reconcilers


async def test_an_empty_cluster_gets_every_object_before_the_workers() -> None:
    kube, reconcilers = await carried_out(a_plan(), an_empty_store())
    made = [f"create {name}" for name in (*FILES, "rm-key", "rm-router-admin", *["rm-router"] * 2)]
    assert kube.done() == [*made, f"create rm-worker-{REVISION}", "apply rm/status"]
    assert not reconcilers.changed, "watches tell what becomes of it"


@pytest.mark.parametrize(
    ("workers", "routers", "serving", "made"),
    [(2, 2, 2, ["rm-worker", "rm-router"]), (2, 1, 2, ["rm-worker"]), (1, 1, 1, []), (2, 2, 0, [])],
)
async def test_a_disruption_budget_is_made_in_the_pass_in_which_it_first_protects_a_pod(
    workers: int, routers: int, serving: int, made: list[str]
) -> None:
    status = RewardPoolStatus(ready_replicas=serving)
    plan = a_plan(protected_workers=workers, protected_routers=routers, status=status)
    kube, _ = await carried_out(plan, a_store(without="PodDisruptionBudget"))
    assert [name for verb, name, body in kube.calls if body and body["kind"] == "PodDisruptionBudget"] == made


async def test_pins_are_written_once_there_are_some() -> None:
    kube, store = FakeKube(), a_store(without="ConfigMap")
    pinned = rendered(POOL, Keys(pool="p", admin="a"), image="own:1", pins={REVISION: "abc"})
    await Reconcilers(kube, store).carry_out(a_plan(), rendered=pinned)
    assert "create rm-pins" in kube.done()


async def test_what_was_found_as_rendered_is_compared_again_once_it_changed() -> None:
    kube, store = FakeKube(), a_store()
    reconcilers = Reconcilers(kube, store)
    await reconcilers.carry_out(a_plan())
    edited = store.find(resources.SERVICES, "rl", "rm-router")
    assert edited is not None
    metadata = {**edited["metadata"], "resourceVersion": "2", "generation": 2}
    store.put(resources.SERVICES, {**edited, "metadata": metadata, "spec": {"type": "ExternalName"}})
    kube.calls.clear()
    await reconcilers.carry_out(a_plan())
    assert "apply rm-router" in kube.done()


async def test_what_is_as_declared_is_not_written() -> None:
    status = RewardPoolStatus(replicas=1)
    store = a_store(status=status.model_dump(mode="json", by_alias=True, exclude_none=True))
    kube, reconcilers = await carried_out(a_plan(status=status), store)
    assert kube.calls == []
    assert not reconcilers.changed


async def test_the_order_is_the_plans() -> None:
    plan = a_plan(
        replicas=1,
        leaves=(Leave(router="r", worker_id="id", worker_url="u"),),
        drain=("w0",),
        joins=(Join(router="r", worker_url="http://w1"),),
        events=(Event(type="Normal", reason="Scaled", message="m"),),
    )
    kube, _ = await carried_out(plan, a_store(a_worker_pod("w0"), a_worker_pod("w1"), replicas=2))
    assert kube.done() == [
        "leave id", "join http://w1", "merge w0", f"apply rm-worker-{REVISION}", "apply rm/status", "create Scaled",
        "create RoutersRepaired",
    ]  # fmt: skip


async def test_a_draining_worker_is_marked_once_and_kept_by_taking_the_mark_back() -> None:
    marks = {names.ANNOTATION_DRAINING_SINCE: "2026-01-01T12:00:00Z", ANNOTATION_DELETION_COST: "-100"}
    kube, _ = await carried_out(a_plan(undrain=("w0",)), a_store(a_worker_pod("w0", **marks)))
    (patch,) = (body for verb, name, body in kube.calls if (verb, name) == ("merge", "w0"))
    assert patch["metadata"]["annotations"] == dict.fromkeys(marks)


async def test_a_stopped_worker_goes_first_when_the_set_shrinks() -> None:
    kube, _ = await carried_out(a_plan(stop=("w0",)), a_store(a_worker_pod("w0"), a_worker_pod("w1"), replicas=2))
    assert kube.done()[:2] == ["merge w0", f"apply rm-worker-{REVISION}"]
    assert kube.calls[0][2]["metadata"]["annotations"] == {ANNOTATION_DELETION_COST: "-200"}


async def test_a_stopped_worker_is_deleted_where_the_controller_would_take_another() -> None:
    store = a_store(a_worker_pod("drained"), a_worker_pod("starting", ready=False), replicas=2)
    kube, _ = await carried_out(a_plan(stop=("drained",)), store)
    assert kube.done()[:3] == ["merge drained", "delete drained", f"apply rm-worker-{REVISION}"]


@pytest.mark.parametrize("marks", [{}, {ANNOTATION_DELETION_COST: "-200"}], ids=["now", "in an earlier pass"])
async def test_no_set_shrinks_for_a_worker_that_is_gone_when_it_is_marked(marks: dict[str, str]) -> None:
    store = a_store(a_worker_pod("gone", **marks), a_worker_pod("serves"), replicas=2)
    kube, reconcilers = await carried_out(a_plan(stop=("gone",)), store, FakeKube(refuse="gone", refusal=404))
    assert kube.done() == ["apply rm/status"]
    assert store.find(resources.PODS, "rl", "gone") is None
    assert reconcilers.changed, "the next pass plans without it"


def an_old_deployment(replicas: int) -> Object:
    labels = {names.LABEL_POOL: "rm", names.LABEL_REVISION: "old"}
    metadata = {"name": "rm-worker-old", "labels": labels, "ownerReferences": render.owner_references(POOL)}
    template = {"metadata": {}, "spec": {}}
    return {"kind": "Deployment", "metadata": metadata, "spec": {"replicas": replicas, "template": template}}


async def test_an_old_revision_is_only_resized() -> None:
    sets = (WorkerSet(revision=REVISION, replicas=1), WorkerSet(revision="old", replicas=1))
    kube, _ = await carried_out(a_plan(worker_sets=sets), a_store(others=(an_old_deployment(2),)))
    assert ("merge", "rm-worker-old", {"spec": {"replicas": 1}}) in kube.calls


async def test_a_revision_nobody_needs_is_deleted() -> None:
    kube, _ = await carried_out(a_plan(), a_store(others=(an_old_deployment(0),)))
    assert "delete rm-worker-old" in kube.done()


async def test_a_router_that_is_away_holds_up_nothing() -> None:
    plan = a_plan(joins=(Join(router="r", worker_url="u"),))
    kube, _ = await carried_out(plan, a_store(), away=True)
    assert kube.done() == ["apply rm/status"]


async def test_a_refusal_keeps_nothing_else_from_being_done() -> None:
    plan = a_plan(joins=(Join(router="r", worker_url="u"),))
    kube, reconcilers = await carried_out(plan, a_store(replicas=2), FakeKube(refuse=f"rm-worker-{REVISION}"))
    assert kube.done() == ["join u", "apply rm/status"]
    assert "spec.imagine" in reconcilers.failures[0]


async def test_an_object_of_somebody_else_is_left_alone() -> None:
    kube, reconcilers = await carried_out(a_plan(), a_store(without="Service"), FakeKube(foreign="rm-router"))
    assert "apply rm-router" not in kube.done()
    assert "not by this pool" in reconcilers.failures[0]


async def test_a_status_that_differs_in_figures_alone_waits_for_its_turn_and_is_not_forgotten() -> None:
    found = as_json(RewardPoolStatus())
    loaded = RewardPoolStatus.model_validate({"replicas": 7, "load": {"inFlight": 3, "waiting": 0}})
    kube, store = FakeKube(), a_store(status=found)
    reconcilers = Reconcilers(kube, store, clock=lambda: 0.0)
    await reconcilers.carry_out(a_plan(status=RewardPoolStatus(replicas=7)))
    kube.calls.clear()
    await reconcilers.carry_out(a_plan(status=loaded))
    assert kube.calls == []
    (pool,) = (store.pool(("rl", "rm")),)
    assert pool is not None
    assert reconcilers.status.as_decided(POOL, pool["status"]).status == loaded


async def written_in_two_minutes(*, has_scores: bool) -> tuple[list[float], list[int | None]]:
    """A job's minute of load and one without: the times of writes of the status, and the scores that each has."""
    kube, store, times = FakeKube(), a_store(status=as_json(RewardPoolStatus())), [0.0]
    reconcilers, at, scores = Reconcilers(kube, store, clock=lambda: times[0]), list[float](), list[int | None]()
    for second in range(120):
        times[0] = float(second)
        status = RewardPoolStatus(
            load=LoadStatus(in_flight=second if second < 60 else 0),
            demands=[DemandStatus(job="a", state="Live", scores=JobScores(count=second) if has_scores else None)],
        )
        kube.calls.clear()
        await reconcilers.carry_out(a_plan(status=status))
        if kube.calls:
            pool = store.pool(("rl", "rm"))
            assert pool is not None
            at.append(times[0])
            scores.append(pool["status"]["demands"][0].get("scores", {}).get("count"))
    return at, scores


async def test_a_job_that_announces_scores_costs_no_more_writes_of_the_status_than_one_that_does_not() -> None:
    at, scores = await written_in_two_minutes(has_scores=True)
    assert (await written_in_two_minutes(has_scores=False))[0] == at
    assert len(at) > 2
    assert scores == at, "each write has the scores of its moment"


async def test_steps_wait_for_the_state_they_lead_to_and_are_written_with_it() -> None:
    kube, store, times = FakeKube(), a_store(status=as_json(RewardPoolStatus())), [0.0]
    reconcilers = Reconcilers(kube, store, clock=lambda: times[-1])
    for seconds, replicas in ((0.0, 1), (0.6, 2), (0.9, 3)):
        times.append(seconds)
        await reconcilers.carry_out(a_plan(status=RewardPoolStatus(replicas=replicas)))
    assert kube.calls == []
    assert reconcilers.status.seconds_until_writing() == pytest.approx(START.shortest - 0.9)
    await reconcilers.carry_out(a_plan(status=RewardPoolStatus(replicas=4, observed_generation=2)))
    assert kube.done() == ["apply rm/status"]
    assert reconcilers.status.seconds_until_writing() == inf


async def test_a_step_that_nothing_follows_is_written_after_a_moment() -> None:
    kube, store, times = FakeKube(), a_store(status=as_json(RewardPoolStatus())), [0.0]
    reconcilers = Reconcilers(kube, store, clock=lambda: times[-1])
    await reconcilers.carry_out(a_plan(status=RewardPoolStatus(replicas=1)))
    times.append(START.shortest)
    await reconcilers.carry_out(a_plan(status=RewardPoolStatus(replicas=1)))
    assert kube.done() == ["apply rm/status"]


async def test_a_step_that_cannot_be_written_wakes_no_pass_again_and_again() -> None:
    kube, store, times = FakeKube(refuse="rm"), a_store(status=as_json(RewardPoolStatus())), [0.0]
    reconcilers = Reconcilers(kube, store, clock=lambda: times[-1])
    for seconds in (0.0, START.shortest, START.shortest):
        times.append(seconds)
        await reconcilers.carry_out(a_plan(status=RewardPoolStatus(replicas=1)))
    assert kube.calls == []
    assert reconcilers.status.seconds_until_writing() == inf


async def test_a_status_is_forgotten_that_somebody_else_has_written_over() -> None:
    loaded = RewardPoolStatus.model_validate({"load": {"inFlight": 3, "waiting": 0}})
    kube, store = FakeKube(), a_store()
    reconcilers = Reconcilers(kube, store, clock=lambda: 0.0)
    await reconcilers.carry_out(a_plan())
    await reconcilers.carry_out(a_plan(status=loaded))
    assert reconcilers.status.as_decided(POOL, {"replicas": 7}) is POOL


@pytest.mark.parametrize(("seconds", "written"), [(0.0, []), (60.0, ["apply rm/status"])])
async def test_a_new_operator_keeps_the_figures_until_it_has_its_own(seconds: float, written: list[str]) -> None:
    known = RewardPoolStatus.model_validate({"load": {"inFlight": 0, "waiting": 0}})
    store = a_store(status=as_json(known))
    times = [0.0]
    kube = FakeKube()
    reconcilers = Reconcilers(kube, store, clock=lambda: times[-1])
    times.append(seconds)
    await reconcilers.carry_out(a_plan(status=RewardPoolStatus()))
    assert kube.done() == written


async def test_a_pass_after_a_write_has_nothing_to_write() -> None:
    store = an_empty_store()
    kube, _ = await carried_out(a_plan(), store)
    kube.calls.clear()
    await carried_out(a_plan(), store, kube)
    assert kube.calls == []


async def test_while_the_api_server_is_away_a_router_without_workers_is_filled_and_no_other_is_changed() -> None:
    kube = FakeKube()
    plan = a_plan(
        leaves=(Leave(router="r", worker_id="id", worker_url="u"),),
        joins=(Join(router="r", worker_url="http://w1"), Join(router="full", worker_url="http://w2")),
        drain=("w0",),
    )
    listed = RegisteredWorker(id="1", url="http://w1", healthy=True)
    routers = [
        a_router("r", registered=()),
        a_router("full", registered=(listed,)),
        a_router("silent", registered=None),
    ]
    await Reconcilers(kube, a_store()).lists.restore(plan, routers)
    assert kube.done() == ["join http://w1"]


def as_json(status: RewardPoolStatus) -> Object:
    return status.model_dump(mode="json", by_alias=True, exclude_none=True)


@pytest.mark.parametrize("message", ["x" * 5000, "é" * 5000])
def test_an_event_fits_what_the_api_server_takes(message: str) -> None:
    event = event_object(POOL, Event(type="Warning", reason="Degraded", message=message))
    assert len(event["note"].encode()) <= 1024
    assert event["regarding"]["uid"] == "pool-uid"


def test_resources_know_their_paths() -> None:
    assert (
        resources.POOLS.path("rl", "rm", "status")
        == "/apis/rewardpool.dev/v1alpha1/namespaces/rl/rewardpools/rm/status"
    )
    assert resources.PODS.path("rl") == "/api/v1/namespaces/rl/pods"


async def test_what_is_said_again_is_no_second_event() -> None:
    plan = a_plan(events=(Event(type="Normal", reason="Serving", message="m"),))
    kube = FakeKube()
    reconcilers = Reconcilers(kube, a_store())
    await reconcilers.carry_out(plan)
    await reconcilers.carry_out(plan)
    assert kube.done().count("create Serving") == 1


async def test_an_event_that_somebody_deleted_is_no_refusal_and_is_told_anew() -> None:
    event = Event(type="Normal", reason="Scaled", message="from 1 to 2 replicas")
    times, kube = [0.0], FakeKube()
    reconcilers = Reconcilers(kube, a_store(), clock=lambda: times[-1])
    await reconcilers.carry_out(a_plan(events=(event,)))
    (name,) = (body["metadata"]["name"] for verb, _, body in kube.calls if verb == "create")
    kube.refuse, kube.refusal = name, 404
    times.append(COUNT_SECONDS)
    await reconcilers.carry_out(a_plan(events=(event,)))
    assert reconcilers.failures == []
    await reconcilers.carry_out(a_plan(events=(event,)))
    assert kube.done().count("create Scaled") == 2


async def test_a_routers_gate_is_opened_and_closed() -> None:
    kube, _ = await carried_out(a_plan(expose=("r0",), conceal=("r1",)), a_store())
    gates = {
        name: [(one["status"], one["reason"]) for one in body["status"]["conditions"]]
        for verb, name, body in kube.calls
        if verb == "apply" and name.startswith("r") and name.endswith("/status") and body["kind"] == "Pod"
    }
    assert gates == {"r0/status": [("True", "ListComplete")], "r1/status": [("False", "ListIncomplete")]}
