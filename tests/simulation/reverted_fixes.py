"""Faults that were fixed, each switched on again: what shows that the simulation finds such.

A fix has the steps by which a run finds its fault, and a word of the violation.
"""

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import ValidationError
from simulation import machine, operators, world
from simulation.faults import Step
from simulation.world import Outcome

from rewardpool_api import RewardPool
from rewardpool_api.status import ServiceRateStatus
from rewardpool_api.times import read_time
from rewardpool_control.autoscaler import recommend
from rewardpool_control.decide import conditions, revisions, rollout
from rewardpool_kube import answers, client, resources
from rewardpool_local.folder import PoolFolder
from rewardpool_local.process import Process
from rewardpool_local.supervisor import Supervisor
from rewardpool_operator.kubernetes import budgets, leader, pool_reconciler, stored_pool
from rewardpool_operator.kubernetes.cache import reflector, store
from rewardpool_operator.kubernetes.polls import parity_check
from rewardpool_operator.kubernetes.reconcilers import status, worker_lists

Patch = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True)
class Fix:
    """One fault that is no more."""

    name: str
    switch_off: Patch
    seed: int
    steps: tuple[Step, ...]
    finds: str
    """In the violation."""
    run: Callable[[int, tuple[Step, ...]], Outcome] = world.run
    """Of a cluster, or of one machine."""


def _answers_unread(patch: pytest.MonkeyPatch) -> None:
    """An answer without metadata reaches whoever asked."""
    for module in (answers, client):
        patch.setattr(module, "checked_object", lambda _, answer: answer)


def _whole_lists(patch: pytest.MonkeyPatch) -> None:
    """Without an API server an operator changes every router's list."""

    async def restore(self: Any, plan: Any, _: Any) -> bool:
        return bool(await self.reconcile(plan))

    patch.setattr(worker_lists.WorkerListReconciler, "restore", restore)


def _lease_made_at_once(patch: pytest.MonkeyPatch) -> None:
    """Whoever makes a Lease that was deleted acts at once."""

    def was_made(self: Any) -> None:
        self._acts_from = -math.inf

    patch.setattr(leader.Leadership, "_was_made", was_made)


def _keys_stay(patch: pytest.MonkeyPatch) -> None:
    """A pool of the same name has the keys of the one that was deleted."""
    patch.setattr(store, "is_ours", lambda *_: True)
    _uids_unread(patch)


def _uids_unread(patch: pytest.MonkeyPatch) -> None:
    """What was decided about a pool is written to another one of its name."""
    for module in (pool_reconciler, status):
        patch.setattr(module, "check_uid", lambda *_: None)


def _silent_jobs_uncounted(patch: pytest.MonkeyPatch) -> None:
    """A job that announces nothing is none."""
    patch.setattr(recommend, "_with_unannounced", lambda case, **_: case.memory)


def _answers_decoded_late(patch: pytest.MonkeyPatch) -> None:
    """An answer that is no text reaches whoever asked."""

    async def call(self: Any, verb: Any, path: str, **options: Any) -> Any:
        async with self._request(verb, path, **options) as response:
            status, raw = response.status, await response.read()
        raw.decode()
        return self._answer_of(f"{verb} {path}", status, raw)

    patch.setattr(client.Kube, "_call", call)


def _election_ends_unnoticed(patch: pytest.MonkeyPatch) -> None:
    """The operator goes on without its election, which an odd answer ended."""
    _answers_unread(patch)

    async def run(operator: Any, leadership: Any) -> None:
        election = asyncio.create_task(leadership.run())
        try:
            await operator.run()
        finally:
            election.cancel()

    patch.setattr(operators, "_run", run)


def _calls_share_their_time(patch: pytest.MonkeyPatch) -> None:
    """GET and PATCH of the Lease have three seconds together."""
    before = leader.Leadership._take_or_renew

    async def take_or_renew(self: Any) -> Any:
        async with asyncio.timeout(leader.CALL_SECONDS):
            return await before(self)

    patch.setattr(leader.Leadership, "_take_or_renew", take_or_renew)


def _watch_ends_by_an_error(patch: pytest.MonkeyPatch) -> None:
    """What one answer of a watch brings about ends it."""

    async def run(self: Any) -> None:
        await self.list()
        while True:
            await self._watch()

    patch.setattr(reflector.Reflector, "run", run)


def _no_next_worker_leaves(patch: pytest.MonkeyPatch) -> None:
    """A rollout that lacks room waits for it, for as long as that takes."""
    before = rollout._replace

    def waits(snapshot: Any, wanted: int, target: str, *, in_place: int, cramped: bool, lacking: bool) -> Any:
        size, keep = before(snapshot, wanted, target, in_place=in_place, cramped=cramped, lacking=lacking)
        old = sum(worker.active for worker in snapshot.workers if worker.revision != target)
        return (wanted, old) if lacking else (size, keep)

    since = revisions._silent_since

    def silent_since(snapshot: Any, desired: int, **options: Any) -> Any:
        waits = any(worker.unschedulable for worker in snapshot.workers_of(snapshot.revision))
        return None if waits else since(snapshot, desired, **options)

    patch.setattr(rollout, "_replace", waits)
    patch.setattr(revisions, "_silent_since", silent_since)


def _any_lack_is_of_room(patch: pytest.MonkeyPatch) -> None:
    """Nodes without GPUs are taken for nodes whose GPUs others have."""
    patch.setattr(rollout, "lacks_room", lambda words: "Insufficient" in words or "exceeded quota" in words)


def _deadline_needs_a_pod(patch: pytest.MonkeyPatch) -> None:
    """Where Kubernetes makes no pod of a revision, its deadline does not run."""
    before = revisions._silent_since

    def silent_since(snapshot: Any, desired: int, **options: Any) -> Any:
        is_made = any(worker.active for worker in snapshot.workers_of(snapshot.revision))
        return before(snapshot, desired, **options) if is_made else None

    patch.setattr(revisions, "_silent_since", silent_since)


def _complete_without_routers(patch: pytest.MonkeyPatch) -> None:
    """A rollout is complete, and in time, once its workers answer the operator."""

    def serves(snapshot: Any, _: int) -> bool:
        return bool(snapshot.available_of(snapshot.revision))

    def is_complete(snapshot: Any, desired: int, *, parked: int) -> bool:
        return desired > 0 and bool(snapshot.available_of(snapshot.revision) >= desired + parked)

    patch.setattr(revisions, "_serves", serves)
    patch.setattr(revisions, "_is_complete", is_complete)


def _held_pools_are_left(patch: pytest.MonkeyPatch) -> None:
    """Nobody keeps the lists of a deleted pool that a finalizer keeps."""
    before = pool_reconciler.PoolReconciler._keep_lists

    async def keep_lists(self: Any, seen: Any, objects: Any, *rest: Any) -> bool:
        return "deletionTimestamp" not in objects.pool["metadata"] and await before(self, seen, objects, *rest)

    patch.setattr(pool_reconciler.PoolReconciler, "_keep_lists", keep_lists)


def _deleted_pools_remembered(patch: pytest.MonkeyPatch) -> None:
    """What is known of a pool outlives it."""
    patch.setattr(budgets.Budgets, "forget", lambda *_: None)


def _every_answer_remembered(patch: pytest.MonkeyPatch) -> None:
    """Something is kept of every pass."""
    before = budgets.Budgets.decided

    def decided(self: Any, key: Any, status: Any) -> None:
        before(self, key, status)
        self.__dict__.setdefault("all_decided", []).append(status.scaling)

    patch.setattr(budgets.Budgets, "decided", decided)


def _crd_ends_the_operator(patch: pytest.MonkeyPatch) -> None:
    """An operator ends whose CRD is deleted."""
    before = reflector.Reflector._failed

    def failed(self: Any, error: Any, count: int) -> None:
        before(self, error, count)
        if self.problem == reflector.NO_CRD:
            raise error

    patch.setattr(reflector.Reflector, "_failed", failed)


def _crd_unsaid(patch: pytest.MonkeyPatch) -> None:
    """A CRD that is deleted is an answer of the API server's like any other."""
    patch.setattr(reflector, "NOT_FOUND", None)


def _blindness_unsaid(patch: pytest.MonkeyPatch) -> None:
    """Metrics that the size follows from may be missing without a word in Ready and Degraded."""
    patch.setattr(conditions, "_blind", lambda _: None)


def _pauses_of_any_length(patch: pytest.MonkeyPatch) -> None:
    """Each attempt at a golden set's scores waits for twice as long as the one before."""
    patch.setattr(parity_check, "LONGEST_PAUSE_SECONDS", math.inf)


def _strangers_whole(patch: pytest.MonkeyPatch) -> None:
    """What has our label is kept as it is, whoever it belongs to."""
    before = store.trimmed

    def trimmed(resource: Any, found: Any) -> Any:
        is_ours = bool(found["metadata"].get("ownerReferences"))
        kinds = (resources.DEPLOYMENTS, resources.PODS, resources.SERVICES)
        return before(resource, found) if is_ours or resource not in kinds else found

    patch.setattr(store, "trimmed", trimmed)


def _hundred_connections(patch: pytest.MonkeyPatch) -> None:
    """All calls and watches of an operator share the connections that the library's client has by default."""
    patch.setattr(client, "MOST_CONNECTIONS", 100)


def _any_rate_in_a_status(patch: pytest.MonkeyPatch) -> None:
    """A stored status may have any number as its service rate.

    Two guards hold it: a part of a status that is not sane is left out, and the model takes no such number. With the
    first alone switched off the pool is held as one that is not valid, which a condition says.
    """

    def parsed(found: Any, **options: Any) -> RewardPool:
        try:
            return RewardPool.model_validate(found, **options)
        except ValidationError:
            scaling = dict(found["status"]["scaling"])
            rate = scaling.pop("serviceRate")
        pool = RewardPool.model_validate({**found, "status": {**found["status"], "scaling": scaling}}, **options)
        taken = {"per_replica": rate["perReplica"], "in_flight": rate["inFlight"], "time": read_time(rate["time"])}
        known = ServiceRateStatus.model_construct(measured=[], **taken)
        assert pool.status.scaling is not None
        with_rate = pool.status.scaling.model_copy(update={"service_rate": known})
        return pool.model_copy(update={"status": pool.status.model_copy(update={"scaling": with_rate})})

    patch.setattr(stored_pool, "with_sane_status", lambda found, **_: found)
    patch.setattr(stored_pool, "RewardPool", SimpleNamespace(model_validate=parsed))


def _logs_are_needed(patch: pytest.MonkeyPatch) -> None:
    """A process whose log was removed fails every pass."""

    def bound_log(self: Any) -> None:
        self._log_file.stat()

    patch.setattr(Process, "bound_log", bound_log)


def _wanted_is_needed(patch: pytest.MonkeyPatch) -> None:
    """The supervisor ends where wanted.json is gone.

    Two guards hold it: a file that is not there asks for nothing, and what cannot be read ends no pass.
    """
    patch.setattr(PoolFolder, "wanted_stamp", lambda self: self._wanted.stat().st_mtime_ns)
    _unreadable_ends_the_supervisor(patch)


def _unreadable_ends_the_supervisor(patch: pytest.MonkeyPatch) -> None:
    """A manifest that cannot be read ends the supervisor, and with it what serves."""

    async def try_pass(self: Any, router: Any, fleet: Any) -> None:
        self._read_wanted()
        await self._pass(router, fleet)

    patch.setattr(Supervisor, "_try_pass", try_pass)


def _stamp_before_the_reading(patch: pytest.MonkeyPatch) -> None:
    """A manifest that could not be read counts as read."""
    before = Supervisor._read_wanted

    def read_wanted(self: Any) -> None:
        try:
            before(self)
        except OSError:
            self._wanted_stamp = self._folder.wanted_stamp()

    patch.setattr(Supervisor, "_read_wanted", read_wanted)


def _surge_stops_one_too_many(patch: pytest.MonkeyPatch) -> None:
    """An old worker leaves before the new one serves, whatever room there is."""
    before = rollout._in_place

    def in_place(snapshot: Any, target: str, *, desired: int, parked: int) -> int:
        return min(desired, before(snapshot, target, desired=desired, parked=parked) + 1)

    patch.setattr(rollout, "_in_place", in_place)


def step(at: float, kind: str, seconds: float = 1.0, seed: int = 1) -> Step:
    return Step(at, kind, seconds, seed)


FIXES = (
    Fix(
        "answers of the API server are read at one place",
        _answers_unread,
        seed=9,
        steps=(step(60, "api: 200-empty-object", 20, seed=4),),
        finds="ended: KeyError",
    ),
    Fix(
        "whoever makes a Lease that was deleted waits",
        _lease_made_at_once,
        seed=9,
        steps=tuple(step(at, "operator: lease deleted") for at in (60, 80, 100)),
        finds="two operators lead at once",
    ),
    Fix(
        "without an API server only empty routers are filled",
        _whole_lists,
        seed=5,
        steps=(step(60, "operator: partitioned", 60), step(75, "worker: crashes"), step(80, "people: edit")),
        finds="does not lead, and changes the list",
    ),
    Fix(
        "a pool made anew has keys of its own",
        _keys_stay,
        seed=9,
        steps=(step(60, "people: recreate"),),
        finds="has the key of a pool that was deleted",
    ),
    Fix(
        "a job that announces nothing is a job",
        _silent_jobs_uncounted,
        seed=708,
        steps=(step(600, "api: backed up"),),
        finds="goes from 1 to zero",
    ),
    Fix(
        "an answer that is no text is an error of the client",
        _answers_decoded_late,
        seed=9,
        steps=(step(60, "api: 503-latin", 20, seed=4),),
        finds="UnicodeDecodeError",
    ),
    Fix(
        "the end of the election ends the operator",
        _election_ends_unnoticed,
        seed=39,
        steps=(step(60, "api: 200-empty-object", 20, seed=74),),
        finds="0 operators lead",
    ),
    Fix(
        "each call of the election has its own time",
        _calls_share_their_time,
        seed=39,
        steps=(step(60, "api: sluggish", math.inf, seed=4), step(80, "operator: lease deleted")),
        finds="0 operators lead",
    ),
    Fix(
        "a watch goes on after an answer that makes no sense",
        _watch_ends_by_an_error,
        seed=9,
        steps=(step(60, "api: watch has nonsense"),),
        finds="ended: ",
    ),
    Fix(
        "a rollout that lacks room takes the next old worker",
        _no_next_worker_leaves,
        seed=290,
        steps=(step(60, "people: larger_workers", seed=5),),
        finds="is not back",
    ),
    Fix(
        "an old worker that gives no room stays",
        _any_lack_is_of_room,
        seed=39,
        steps=(step(60, "node: cordoned", math.inf), step(90, "people: edit")),
        finds="needless",
    ),
    Fix(
        "the deadline runs without a pod",
        _deadline_needs_a_pod,
        seed=39,
        steps=(step(60, "pods: refused by admission", math.inf), step(70, "people: edit")),
        finds="is not back",
    ),
    Fix(
        "a rollout is complete once the routers list it",
        _complete_without_routers,
        seed=6,
        steps=(step(60, "router: reaches no new worker", math.inf), step(70, "people: edit")),
        finds="is not back",
    ),
    Fix(
        "the lists of a pool that a finalizer keeps are kept",
        _held_pools_are_left,
        seed=4,
        steps=(step(60, "people: delete_held"), step(90, "pod: address moved", seed=5)),
        finds="routers of a deleted pool list",
    ),
    Fix(
        "a pool that is deleted is forgotten",
        _deleted_pools_remembered,
        seed=4,
        steps=(step(60, "people: delete"),),
        finds="memory of it",
    ),
    Fix(
        "nothing grows with every pass",
        _every_answer_remembered,
        seed=4,
        steps=(step(400, "api: backed up"),),
        finds="remembers ",
    ),
    Fix(
        "Surge starts a worker before one leaves",
        _surge_stops_one_too_many,
        seed=35,
        steps=(step(100, "people: edit"),),
        finds="needless",
    ),
    Fix(
        "a deleted CRD ends no operator",
        _crd_ends_the_operator,
        seed=9,
        steps=(step(60, "api: CRD deleted", 60),),
        finds="ended: KubeError",
    ),
    Fix(
        "a deleted CRD is reported in words",
        _crd_unsaid,
        seed=9,
        steps=(step(60, "api: CRD deleted", 60),),
        finds="does not say that its CRD is deleted",
    ),
    Fix(
        "a pool at zero whose metrics are blocked says so",
        _blindness_unsaid,
        seed=72,
        steps=(step(189, "router: metrics blocked", math.inf),),
        finds="its metrics cannot be read",
    ),
    Fix(
        "pauses between attempts at a golden set have a bound",
        _pauses_of_any_length,
        seed=9,
        steps=(step(60, "people: compare"), step(80, "people: edit"), step(82, "api: 500", 260, seed=19)),
        finds="waits for scores of its golden set",
    ),
    Fix(
        "of what only has our label little is kept",
        _strangers_whole,
        seed=9,
        steps=(step(60, "people: use_our_label"),),
        finds="remembers a text of 250000 characters",
    ),
    Fix(
        "a client has as many connections as it has watches",
        _hundred_connections,
        seed=9,
        steps=(step(60, "operator: serves namespaces by name", math.inf), step(100, "people: edit")),
        finds="is not observed",
    ),
    Fix(
        "a number of a stored status has bounds",
        _any_rate_in_a_status,
        seed=3,
        steps=(step(100, "people: spoil_status", seed=2),),
        finds="ZeroDivisionError",
    ),
    Fix(
        "a log that is removed ends no care for its process",
        _logs_are_needed,
        seed=1,
        steps=(step(60, "machine: log removed"), step(65, "machine: worker killed")),
        finds="of which no process is left",
        run=machine.run,
    ),
    Fix(
        "a wanted.json that is removed asks for nothing",
        _wanted_is_needed,
        seed=1,
        steps=(step(60, "machine: wanted.json removed"),),
        finds="the supervisor ended: FileNotFoundError",
        run=machine.run,
    ),
    Fix(
        "a wanted.json of a newer version ends no pool",
        _unreadable_ends_the_supervisor,
        seed=1,
        steps=(step(60, "machine: wanted.json of a newer version"),),
        finds="the supervisor ended: StateUnreadableError",
        run=machine.run,
    ),
    Fix(
        "a manifest that could not be read is read later",
        _stamp_before_the_reading,
        seed=1,
        steps=(step(60, "machine: too many open files", 20), step(65, "machine: edited")),
        finds="not settled",
        run=machine.run,
    ),
)
