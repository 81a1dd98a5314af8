"""What must hold at every moment, and what must be so in the end."""

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from simulation.api_server import Object
from simulation.cluster import mark_of
from simulation.programs import Entry, Router, Worker

from rewardpool_api import names
from rewardpool_api.reasons import ConditionReason

if TYPE_CHECKING:
    from simulation.world import World

EVERY_SECONDS: Final = 1.0
CALLS_PER_SECOND: Final = 60
"""Of one operator at one address, at most: a pass asks for one thing at each, ten times a second at most."""
MOST_TASKS: Final = 400
HANDOVER_SECONDS: Final = 2.5
"""After an operator was last seen to lead, its passes have ended."""
IDLE_SECONDS: Final = 20.0
"""Less than the window and the cooldown of every pool here."""
WAITING_SECONDS: Final = 300.0
"""For a sample, at most, where nothing is wrong."""
OPERATORS_OWN: Final = ("replica set", "somebody", "operator")
"""Whose deletion of a worker is what an operator wanted."""
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
        self._led_at: dict[str, float] = {}
        """Operator -> when it was last seen to lead."""

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

    def worker_stopped(self, worker: Worker, by: str) -> None:
        """No router has a worker that an operator stops."""
        if by not in OPERATORS_OWN or self._world.server.get(names.KIND, *worker.pool) is None:
            return
        if not worker.loaded or self._is_excused():
            return
        for router in self._world.cluster.routers():
            if worker.url in router.entries and router.pool == worker.pool and self._is_heard(router):
                self._world.violated(f"{worker.pod} was stopped by {by} while {router.pod} lists it")
        if worker.in_flight:
            self._world.note("stopped with", len(worker.in_flight), "in flight:", worker.pod)

    def removed(self, router: Router, entry: Entry) -> None:
        self._world.note("list", router.pod, "without", entry.url)

    def _changed(self, type_: str, kind: str, found: Object) -> None:
        if kind == "Secret" and type_ != "DELETED":
            self._check_key(found)
        if kind != names.KIND or type_ == "DELETED":
            return
        metadata = found["metadata"]
        self._specs[metadata["uid"], metadata.get("generation", 1)] = found["spec"]
        self._check_claim(found)
        self._desired[metadata["uid"]] = ((found.get("status") or {}).get("scaling") or {}).get("desired", 0)

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
        """No elastic pool goes to zero under load of a job that did not announce that it would pause."""
        scaling = status.get("scaling") or {}
        if "autoscaling" not in pool["spec"] or pool["spec"].get("suspend") or scaling.get("desired") != 0:
            return
        key, now = (pool["metadata"]["namespace"], pool["metadata"]["name"]), self._world.time.monotonic()
        before = self._desired.get(pool["metadata"]["uid"], 0)
        silent = [one for one in self._world.trainers if one.pool == key and not one.announces]
        seen = max((one.sent_at for one in silent), default=float("-inf"))
        if before > 0 and now - seen < IDLE_SECONDS:
            self._world.violated(f"{key[1]} goes from {before} to zero {now - seen:.0f} s after a sample")

    def _look(self, number: int) -> None:
        world = self._world
        self._led_at |= {one.name: world.time.monotonic() for one in world.operators if one.leads}
        if sum(one.leads for one in world.operators) > 1:
            world.violated("two operators lead at once")
        if number % 10 == 0:
            calls = world.network.calls
            for name, total in calls.items():
                if total - self._calls[name] > 10 * CALLS_PER_SECOND:
                    world.violated(f"{total - self._calls[name]} calls in 10 s: {name}")
            self._calls = calls.copy()
            tasks = len(asyncio.all_tasks())
            if tasks > MOST_TASKS:
                world.violated(f"{tasks} tasks")
            self._check_bounds()
        asyncio.get_running_loop().call_later(EVERY_SECONDS, self._look, number + 1)

    def _check_bounds(self) -> None:
        for kind, there in self._world.server.count_of_objects().items():
            if there > (600 if kind == "Event" else 80):
                self._world.violated(f"{there} objects of kind {kind}")

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
        found += self._unanswered()
        leaders = sum(one.leads for one in self._world.operators)
        if leaders != 1:
            found.append(f"{leaders} operators lead")
        for operator in self._world.operators:
            if operator.manager is None or not operator.manager.health()["ok"]:
                found.append(f"{operator.name} is not healthy")
        return found

    def _unanswered(self) -> list[str]:
        now, found = self._world.time.monotonic(), []
        for trainer in self._world.trainers:
            pool = self._world.server.get(names.KIND, *trainer.pool)
            waiting = [since for since in trainer.waiting.values() if now - since > WAITING_SECONDS]
            if pool is not None and waiting and not self._excuses(pool) and not pool["spec"].get("suspend"):
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
        if serving is None:
            return None if excuses else f"no router is ready: {reasons}"
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

    def _heard_routers(self, key: tuple[str, str]) -> list[Router]:
        return [router for router in self._world.cluster.exposed_routers(key) if self._is_heard(router)]

    def _stale_entries(self, key: tuple[str, str]) -> list[str]:
        there = {worker.url for worker in self._world.cluster.workers() if worker.pool == key}
        routers = self._heard_routers(key)
        return sorted({url for router in routers for url in router.entries if url not in there})
