"""What must hold at every moment, and what must be so in the end."""

import asyncio
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from simulation import remembered
from simulation.api_server import Object
from simulation.cluster import mark_of
from simulation.people import STRANGER
from simulation.programs import Entry, Router, Worker
from simulation.trainers import RENEW_SECONDS

from rewardpool_api import names
from rewardpool_api.reasons import ConditionReason
from rewardpool_api.times import time_of
from rewardpool_control.autoscaler.recommend import PAUSE_SECONDS
from rewardpool_operator.kubernetes.cache.owned import WATCHED

if TYPE_CHECKING:
    from simulation.world import World

EVERY_SECONDS: Final = 1.0
CALLS_PER_SECOND: Final = 60
"""Of one operator at one address, at most: a pass asks for one thing at each, ten times a second at most."""
MOST_TASKS: Final = 400
WATCHES: Final = len(WATCHED) + 1
"""Of an operator, for each namespace that it serves by name."""
MOST_TEXT: Final = 200_000
"""Characters of one text of an operator's; the mounted files are 110,000."""
MOST_REMEMBERED: Final = 300
"""Entries of one collection of an operator's; the largest API object has 57 in one."""
HANDOVER_SECONDS: Final = 2.5
"""After an operator was last seen to lead, its passes have ended."""
IDLE_SECONDS: Final = 20.0
"""Less than the window and the cooldown of every pool here."""
WAITING_SECONDS: Final = 300.0
"""For a sample, at most, where nothing is wrong."""
OPERATORS_OWN: Final = ("replica set", "somebody", "operator")
"""Whose deletion of a worker is what an operator wanted."""
HEARD_SECONDS: Final = 8.0
"""After a router could not be read, until its list is read again: pauses between looks grow to five seconds."""
CALM_SECONDS: Final = 15.0
"""Without a fault, and with room for one worker more: whoever stops one by now knows of both."""
TOLD_SECONDS: Final = 5.0
"""From a worker that leaves a list to the status that has the size for which it leaves."""
FORGOTTEN_SECONDS: Final = 60.0
"""From a pool's end to that of all it owned, and of all that is remembered of it."""
CRD_SECONDS: Final = 30.0
"""From the end of the CRD until every operator says so."""
PARITY_SECONDS: Final = 120.0
"""For the scores of a golden set, where nothing is wrong any more and a worker answers."""
HARMLESS: Final = tuple(
    f"people: {action}" for action in ("edit", "larger_workers", "scale", "suspend", "pause", "roll_back", "restart")
)
"""First words of steps that cost no worker by themselves."""
NO_EXCUSE: Final = frozenset(
    {
        ConditionReason.AS_EXPECTED,
        ConditionReason.STARTING,
        ConditionReason.SCALING,
        ConditionReason.SURGING,
        ConditionReason.REPLACING,
        ConditionReason.NO_ROOM,
        ConditionReason.STABLE,
        ConditionReason.ALL_READY,
        ConditionReason.UPDATING_WORKER_LIST,
        ConditionReason.SERVING,
    }
)
"""Reasons that say that all is well or will soon be."""


Turns = Literal["new first", "old first", "as told"]
"""Which worker a rollout moves first: a new one; an old one, for want of room; an old one, since the spec says so."""


@dataclass(frozen=True)
class Taken:
    """A worker that an operator takes off a router's list."""

    wanted: int
    """The pool's size by the last status."""
    left: int
    """Workers that still serve behind that router."""
    room_seconds: float
    """For how long there has been room for one worker more."""
    hopeless_seconds: float
    """For how long no node would have had room, if everybody had left."""
    calm_seconds: float
    """Since the last fault."""
    turns: Turns

    def is_missed(self, wanted_soon: int) -> bool:
        """Whether the pool falls below its size where there was room, or where its leaving gives none.

        Args:
            wanted_soon: the size that a status gives soon after: a smaller one is why a worker leaves.
        """
        if self.left >= min(self.wanted, wanted_soon) or self.calm_seconds < CALM_SECONDS:
            return False
        match self.turns:
            case "new first":
                return max(self.room_seconds, self.hopeless_seconds) >= CALM_SECONDS
            case "old first":
                return self.hopeless_seconds >= CALM_SECONDS
            case _:
                return False


@dataclass
class Since:
    """Since when something is so of a pool."""

    since: dict[tuple[str, str], float] = field(default_factory=dict)

    def see(self, key: tuple[str, str], is_so: bool, now: float) -> None:
        if is_so:
            self.since.setdefault(key, now)
        else:
            self.since.pop(key, None)

    def seconds(self, key: tuple[str, str], now: float) -> float:
        return now - self.since.get(key, now)


class Invariants:
    """Those of one world."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._calls: Counter[str] = Counter()
        self._specs: dict[tuple[str, int], Object] = {}
        """Uid and generation of a pool -> its spec."""
        self._keys: dict[str, str] = {}
        """A key of the data plane -> uid of the pool that had it first."""
        self._desired: dict[str, int] = {}
        """Uid of a pool -> the size that its status said last."""
        self._unheard_at: defaultdict[str, float] = defaultdict(lambda: float("-inf"))
        """When each router could not be read last."""
        self._led_at: dict[str, float] = {}
        """Operator -> when it was last seen to lead."""
        self._room, self._hopeless, self._unscored = Since(), Since(), Since()
        self._disturbed_at = 0.0
        """When a fault last began or ended."""
        self._deleted_at: dict[tuple[str, str], float] = {}
        """Pools that are no more."""

    def start(self) -> None:
        self._world.network.on_write = self._written
        self._world.network.on_list_change = self._list_changes
        self._world.server.listeners.append(self._changed)
        self._world.cluster.removed = self.removed
        asyncio.get_running_loop().call_later(EVERY_SECONDS, self._look, 0)

    # Always.

    def _written(self, operator: str, method: str, path: str) -> None:
        """At most one leader writes. A Lease is how they find out who."""
        if "/leases" in path:
            return
        leaders = [one.name for one in self._world.operators if one.leads]
        if len(leaders) > 1:
            self._world.violated(f"{' and '.join(leaders)} lead at once: {method} {path}")

    def _list_changes(self, operator: str, method: str, router: Any) -> None:
        """Who does not lead fills a router that has nothing, and changes no other."""
        leads = any(one.leads for one in self._world.operators if one.name == operator)
        led_at = self._led_at.get(operator, float("-inf"))
        if leads or self._world.time.monotonic() - led_at <= HANDOVER_SECONDS:
            return
        if method == "DELETE" or router.entries:
            self._world.violated(f"{operator} does not lead, and changes the list of {router.pod}: {method}")

    def disturbed(self, kind: str) -> None:
        """A step begins or ends."""
        if kind not in HARMLESS:
            self._disturbed_at = self._world.time.monotonic()

    def worker_stopped(self, worker: Worker, by: str) -> None:
        """No router has a worker that an operator stops while its process runs."""
        if by not in OPERATORS_OWN or self._world.server.get(names.KIND, *worker.pool) is None:
            return
        if worker.dead or not worker.loaded or self._is_excused():
            return
        for router in self._world.cluster.routers():
            if worker.url not in router.entries or router.pool != worker.pool or not self._is_heard(router):
                continue
            if self._world.time.monotonic() - self._unheard_at[router.pod] > HEARD_SECONDS or not self._is_due(worker):
                self._world.violated(f"{worker.pod} was stopped by {by} while {router.pod} lists it")
        if worker.in_flight:
            self._world.note("stopped with", len(worker.in_flight), "in flight:", worker.pod)

    def _is_due(self, worker: Worker) -> bool:
        """Return whether the time that its drain may take is over."""
        world, namespace = self._world, worker.pool[0]
        pool, pod = world.server.get(names.KIND, *worker.pool), world.server.get("Pod", namespace, worker.pod)
        if pool is None or pod is None:
            return False
        since = time_of(pod["metadata"].get("annotations", {}).get(names.ANNOTATION_DRAINING_SINCE))
        return (
            since is not None and (world.time.now() - since).total_seconds() >= pool["spec"]["worker"]["drainSeconds"]
        )

    def removed(self, router: Router, entry: Entry) -> None:
        """An operator took it off the list."""
        self._world.note("list", router.pod, "without", entry.url)
        serving = self._serving_urls(router.pool)
        pool = self._world.server.get(names.KIND, *router.pool)
        if pool is None or entry.url not in serving or router not in self._heard_routers(router.pool):
            return
        if self._world.cluster.deleter_of(entry.url) not in ("", *OPERATORS_OWN):  # it goes whatever the pool needs
            return
        now, status = self._world.time.monotonic(), pool.get("status") or {}
        taken = Taken(
            wanted=_desired(pool),
            left=len(serving & router.entries.keys()),
            room_seconds=self._room.seconds(router.pool, now),
            hopeless_seconds=self._hopeless.seconds(router.pool, now),
            calm_seconds=0.0 if self._is_excused() else now - self._disturbed_at,
            turns=_turns(pool["spec"]["rollout"]["strategy"], (status.get("rollout") or {}).get("replaceReason")),
        )
        if taken.is_missed(taken.wanted):
            asyncio.get_running_loop().call_later(TOLD_SECONDS, self._check_taken, router, entry, taken)

    def _check_taken(self, router: Router, entry: Entry, taken: Taken) -> None:
        pool = self._world.server.get(names.KIND, *router.pool)
        if pool is not None and not self._is_excused() and taken.is_missed(_desired(pool)):
            self._world.violated(
                f"{entry.url} left {router.pod} with {taken.left} of {taken.wanted} serving, and needless"
            )

    def _changed(self, type_: str, kind: str, found: Object) -> None:
        if kind == "Secret" and type_ != "DELETED":
            self._check_key(found)
        if kind != names.KIND:
            return
        metadata = found["metadata"]
        key = metadata["namespace"], metadata["name"]
        if self._world.server.get(kind, *key) is None:
            self._deleted_at[key] = self._world.time.monotonic()
            return
        self._deleted_at.pop(key, None)
        self._specs[metadata["uid"], metadata.get("generation", 1)] = found["spec"]
        self._check_claim(found)
        self._desired[metadata["uid"]] = _desired(found)

    def _check_key(self, secret: Object) -> None:
        """To delete a pool revokes its keys."""
        owners = secret["metadata"].get("ownerReferences") or []
        key, uid = (secret.get("data") or {}).get(names.SECRET_KEY, ""), owners[0]["uid"] if owners else ""
        if secret["metadata"]["name"].endswith("-key") and self._keys.setdefault(key, uid) != uid:
            self._world.violated(f"{secret['metadata']['name']} has the key of a pool that was deleted")

    def _check_claim(self, pool: Object) -> None:
        """A status that says that a generation serves says so of workers that were made of it."""
        status, metadata = pool.get("status") or {}, pool["metadata"]
        conditions = {one["type"]: one for one in status.get("conditions") or []}
        if status.get("observedGeneration", 0) > metadata.get("generation", 1):
            self._world.violated(f"{metadata['name']} has the status of another pool: {status['observedGeneration']}")
        self._check_zero(pool, status)
        progressing = conditions.get("Progressing", {})
        spec = self._specs.get((metadata["uid"], status.get("observedGeneration", 0)))
        rollout = status.get("rollout") or {}
        if spec is None or progressing.get("reason") != ConditionReason.STABLE:
            return
        revision = status.get("currentRevision")
        if not revision or rollout.get("targetRevision") != revision:
            return
        name = names.worker_name(metadata["name"], revision)
        deployment = self._world.server.get("Deployment", metadata["namespace"], name)
        if deployment is None:
            return
        wanted = next((one["value"] for one in spec["engine"]["env"] if one["name"] == "MARK"), "")
        made = mark_of(deployment["spec"]["template"]["spec"])
        if wanted != made:
            self._world.violated(
                f"{metadata['name']} claims generation {status['observedGeneration']} ({wanted}), and {name} is {made}"
            )

    def _check_zero(self, pool: Object, status: Object) -> None:
        """No elastic pool goes to zero under load of a job that did not announce that it would pause.

        Where no job announces, a pool may learn when the load pauses, and then says so.
        """
        scaling = status.get("scaling") or {}
        if str(scaling.get("reason")).startswith("bursts come about every"):
            return
        if "autoscaling" not in pool["spec"] or pool["spec"].get("suspend") or scaling.get("desired") != 0:
            return
        key, now = (pool["metadata"]["namespace"], pool["metadata"]["name"]), self._world.time.monotonic()
        before = self._desired.get(pool["metadata"]["uid"], 0)
        jobs = [one for one in self._world.trainers if one.pool == key]
        seen = max((one.sent_at for one in jobs if not one.announces), default=float("-inf"))
        # What comes during the burst of a job that announced it, or shortly after, may be that job's own.
        quiet_at = max(
            (now if one.waiting else one.answered_at for one in jobs if one.announces), default=float("-inf")
        )
        is_told_apart = seen > quiet_at + RENEW_SECONDS + PAUSE_SECONDS
        if before > 0 and is_told_apart and now - seen < IDLE_SECONDS:
            self._world.violated(f"{key[1]} goes from {before} to zero {now - seen:.0f} s after a sample")

    def _look(self, number: int) -> None:
        world = self._world
        self._led_at |= {one.name: world.time.monotonic() for one in world.operators if one.leads}
        if sum(one.leads for one in world.operators) > 1:
            world.violated("two operators lead at once")
        for router in world.cluster.routers():
            # Without the API server its admin key is not read either.
            if not self._is_heard(router) or self._is_excused():
                self._unheard_at[router.pod] = world.time.monotonic()
        for pool in world.server.all(names.KIND):
            gpus, now = pool["spec"]["worker"]["gpus"], world.time.monotonic()
            key = pool["metadata"]["namespace"], pool["metadata"]["name"]
            self._room.see(key, world.cluster.has_room(gpus), now)
            self._hopeless.see(key, not world.cluster.could_have_room(gpus), now)
            self._check_scored(pool, now)
        self._check_crd()
        if number % 10 == 0:
            calls = world.network.calls
            most = CALLS_PER_SECOND + WATCHES * max(len(one.namespaces) for one in world.operators)
            for name, total in calls.items():
                if total - self._calls[name] > 10 * most:
                    world.violated(f"{total - self._calls[name]} calls in 10 s: {name}")
            self._calls = calls.copy()
            tasks = len(asyncio.all_tasks())
            if tasks > MOST_TASKS + WATCHES * sum(len(one.namespaces) for one in world.operators):
                world.violated(f"{tasks} tasks")
            self._check_bounds()
        if number % 60 == 0:
            self._check_texts()
        asyncio.get_running_loop().call_later(EVERY_SECONDS, self._look, number + 1)

    def _check_bounds(self) -> None:
        for kind, there in self._world.server.count_of_objects().items():
            if there > (600 if kind == "Event" else 80):
                self._world.violated(f"{there} objects of kind {kind}")
        for operator in self._world.operators:
            size, way = remembered.largest(operator.manager)
            if size > MOST_REMEMBERED:
                self._world.violated(f"{operator.name} remembers {size} things in manager{way}")

    def _check_texts(self) -> None:
        for operator in self._world.operators:
            length, way = remembered.longest(operator.manager)
            if length > MOST_TEXT:
                self._world.violated(f"{operator.name} remembers a text of {length} characters in manager{way}")

    def _check_crd(self) -> None:
        """An operator whose CRD is deleted says so, and goes on."""
        world, now = self._world, self._world.time.monotonic()
        if not world.server.absent or self._is_excused():
            return
        for operator in world.operators:
            since = max(self._disturbed_at, operator.started_at)
            if operator.manager is None or now - since < CRD_SECONDS:
                continue
            said = operator.manager.health()["namespaces_not_served"]
            if not any("is not installed" in words for words in said.values()):
                world.violated(f"{operator.name} does not say that its CRD is deleted: {said}")

    def _check_scored(self, pool: Object, now: float) -> None:
        """A rollout that waits for a comparison does not wait for long."""
        world, metadata = self._world, pool["metadata"]
        key = metadata["namespace"], metadata["name"]
        rollout = (pool.get("status") or {}).get("rollout") or {}
        parity = rollout.get("parity") or {}
        is_asked = parity.get("outcome") == "Waiting" and not self._is_excused() and not world.server.absent
        answers = is_asked and any(
            isinstance(one.program, Worker) and one.program.pool == key and parity["revision"] in one.name[1]
            for one in world.cluster.running.values()
            if one.started and one.node.reports and not one.ending
        )
        self._unscored.see(key, answers, now)
        if min(self._unscored.seconds(key, now), now - self._disturbed_at) >= PARITY_SECONDS:
            world.violated(f"{key[1]} waits for scores of its golden set: {parity.get('message')}")

    def _is_excused(self) -> bool:
        """While nobody may lead, or what an operator knows may be old, a worker may go unseen."""
        world = self._world
        return bool(world.network.api_faults or world.network.partitions or world.network.silent)

    def _is_heard(self, router: Router) -> bool:
        return router.odd in (None, "metrics") and router.address.partition(":")[0] not in self._world.network.silent

    # In the end.

    def not_settled(self) -> list[str]:
        """What is not as the last specs want it and not told either."""
        found: list[str] = []
        for pool in self._world.server.all(names.KIND):
            problem = self._problem_of(pool)
            if problem is not None:
                found.append(f"{pool['metadata']['name']}: {problem}")
        found += [problem for key in self._deleted_at for problem in self._left_of(key)]
        found += self._unanswered()
        leaders = sum(one.leads for one in self._world.operators)
        if leaders != 1:
            found.append(f"{leaders} operators lead")
        for operator in self._world.operators:
            if operator.manager is None or not operator.manager.health()["ok"]:
                found.append(f"{operator.name} is not healthy")
        return found

    def _left_of(self, key: tuple[str, str]) -> list[str]:
        """What is still there of a pool that is no more."""
        if self._world.time.monotonic() - self._deleted_at[key] < FORGOTTEN_SECONDS:
            return [f"{key[1]} was deleted just now"]
        server, labels = self._world.server, {names.LABEL_POOL: key[1]}
        kinds = [kind for kind in server.count_of_objects() if kind not in ("Event", "Lease")]
        # Of a node that does not report, Kubernetes keeps the pods until it does.
        away = {node.name for node in self._world.cluster.nodes if not node.reports}
        there = [(kind, one) for kind in kinds for one in server.selected(kind, **labels)]
        found = [
            f"{kind} {one['metadata']['name']}"
            for kind, one in there
            if not one["metadata"]["name"].startswith(STRANGER)
            and ("deletionTimestamp" not in one["metadata"] or one.get("spec", {}).get("nodeName") not in away)
        ]
        # A job may announce itself to a pool that is gone, and is warned of that.
        is_announced = any(server.selected("Lease", **labels))
        for operator in [] if is_announced else self._world.operators:
            # What is there is in the store, which holds all that watches report.
            ways = [
                way
                for way in remembered.holding(operator.manager, key)
                if not there or not way.endswith("._store._pools")
            ]
            found += [f"{operator.name}'s memory of it in manager{way}" for way in ways]
        return [f"{key[1]} was deleted, and left {', '.join(found)}"] if found else []

    def _unanswered(self) -> list[str]:
        now, found = self._world.time.monotonic(), []
        for trainer in self._world.trainers:
            pool = self._world.server.get(names.KIND, *trainer.pool)
            waiting = [since for since in trainer.waiting.values() if now - since > WAITING_SECONDS]
            is_there = pool is not None and "deletionTimestamp" not in pool["metadata"]
            if (
                pool is not None
                and is_there
                and waiting
                and not self._excuses(pool)
                and not pool["spec"].get("suspend")
            ):
                found.append(f"{trainer.name} waits for {len(waiting)} samples since {min(waiting):.0f} s")
        return found

    def _excuses(self, pool: Object) -> set[str]:
        """Reasons of its conditions that say what is wrong."""
        conditions = {one["type"]: one for one in (pool.get("status") or {}).get("conditions") or []}
        told = {conditions[kind]["reason"] for kind in ("Degraded", "Progressing", "Ready") if kind in conditions}
        if (pool.get("status") or {}).get("scaling", {}).get("desired") == 0 and pool["spec"].get("replicas") == 0:
            told.add("the pool is of size 0")
        return told - NO_EXCUSE - {ConditionReason.AT_ZERO}

    def _problem_of(self, pool: Object) -> str | None:
        metadata, status = pool["metadata"], pool.get("status") or {}
        if "deletionTimestamp" in metadata:
            # Somebody's finalizer keeps it: its workers serve as they did, and nothing is written.
            stale = self._stale_entries((metadata["namespace"], metadata["name"]))
            return f"routers of a deleted pool list what is not there: {stale}" if stale else None
        if status.get("observedGeneration") != metadata.get("generation", 1):
            return f"generation {metadata.get('generation')} is not observed: {status.get('observedGeneration')}"
        conditions = {one["type"]: one for one in status.get("conditions") or []}
        reasons = {kind: one["reason"] for kind, one in conditions.items()}
        excuses = {reasons.get("Degraded"), reasons.get("Progressing"), reasons.get("Ready")} - NO_EXCUSE - {None}
        wanted = (status.get("scaling") or {}).get("desired", 0)
        key = (metadata["namespace"], metadata["name"])
        serving = self._serving(key, status.get("currentRevision", ""))
        stale = self._stale_entries(key)
        if stale:
            return f"routers list what is not there: {stale}"
        is_sized_by_load = "autoscaling" in pool["spec"] and not pool["spec"].get("suspend")
        if is_sized_by_load and self._world.network.blocked_ports and not excuses - {ConditionReason.AT_ZERO}:
            return f"its metrics cannot be read, and no condition says so: {reasons}"
        if serving is None:
            return None if excuses else f"no router is ready: {reasons}"
        rollout = status.get("rollout") or {}
        target, stable = rollout.get("targetRevision", ""), rollout.get("stableRevision")
        if wanted and stable not in (None, target) and self._serving(key, target) == 0:
            return f"none of {target} serves, and {stable} is not back: {reasons}"
        if serving == wanted and not pool["spec"].get("suspend"):
            return None
        if pool["spec"].get("suspend") and serving == 0:
            return None
        return None if excuses else f"{serving} of {wanted} serve: {reasons}"

    def _serving(self, key: tuple[str, str], revision: str) -> int | None:
        """Workers of the revision in the lists of all exposed routers."""
        routers = self._heard_routers(key)
        if not routers:
            return None
        listed = set.intersection(*({*router.entries} for router in routers))
        there = {
            worker.url for worker in self._world.cluster.workers() if worker.pool == key and revision in worker.pod
        }
        return len(listed & there)

    def _serving_urls(self, key: tuple[str, str]) -> set[str]:
        """Of workers that would answer a sample."""
        silent = self._world.network.silent
        workers = (one for one in self._world.cluster.workers() if one.pool == key and one.loaded)
        return {one.url for one in workers if one.address.partition(":")[0] not in silent}

    def _heard_routers(self, key: tuple[str, str]) -> list[Router]:
        return [router for router in self._world.cluster.exposed_routers(key) if self._is_heard(router)]

    def _stale_entries(self, key: tuple[str, str]) -> list[str]:
        there = {worker.url for worker in self._world.cluster.workers() if worker.pool == key}
        routers = self._heard_routers(key)
        return sorted({url for router in routers for url in router.entries if url not in there})


def _desired(pool: Object) -> int:
    """The size that the status gives."""
    return int(((pool.get("status") or {}).get("scaling") or {}).get("desired", 0))


def _turns(strategy: str, no_room: str | None) -> Turns:
    if strategy == "Replace":
        return "as told"
    return "old first" if strategy == "Auto" and no_room else "new first"
