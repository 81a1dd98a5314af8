"""Everything that can happen in a run, each by its name: what goes wrong, and what people do.

A run's history to come is a list of `Step`, which is data: a step can be left out and the others stay what they were.
"""

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from simulation.api_server import Refused
from simulation.network import API_FAULTS, ApiFault
from simulation.operators import NAMED
from simulation.people import ACTIONS
from simulation.programs import Router, Worker

from rewardpool_api import names

if TYPE_CHECKING:
    from simulation.world import World

LASTING: Final = frozenset(
    {
        "api: sluggish",
        "node: lost",
        "node: cut off",
        "node: cordoned",
        "operator: serves namespaces by name",
        "pods: quota",
        "pods: refused by admission",
        "router: metrics blocked",
        "router: odd metrics",
        "router: odd list",
        "router: silent",
        "router: reaches no new worker",
        "worker: silent",
    }
)
"""What may last for good: in the end a condition has to say so."""

Undo = Callable[[], None] | None


@dataclass(frozen=True)
class Step:
    """One thing that happens."""

    at: float
    """Seconds since the run began."""
    kind: str
    seconds: float
    """How long it lasts, where it lasts."""
    seed: int
    """Of its details."""

    def __str__(self) -> str:
        return f"{self.at:8.1f} s  {self.kind} for {self.seconds:.0f} s (seed {self.seed})"


def plan(chance: random.Random, *, seconds: float, count: int) -> tuple[Step, ...]:
    """Return so many steps of a cluster within that time, in order."""
    return drawn(chance, [*FAULTS, *(f"people: {action}" for action in ACTIONS)], seconds=seconds, count=count)


def drawn(chance: random.Random, known: Sequence[str], *, seconds: float, count: int) -> tuple[Step, ...]:
    """Return so many steps of these kinds within that time, in order.

    Of a few kinds: a run with some of everything seldom has the same thing happen twice, or one thing during another.
    """
    kinds = chance.sample(known, chance.randint(2, 6))
    steps = []
    for _ in range(count):
        kind = chance.choice(kinds)
        lasts = math.inf if kind in LASTING and chance.random() < 0.3 else chance.choice([2.0, 8.0, 20.0, 60.0, 120.0])
        steps.append(
            Step(
                at=round(chance.uniform(60.0, seconds), 1),
                kind=kind,
                seconds=round(lasts * chance.uniform(0.7, 1.3), 1),
                seed=chance.randint(0, 999_999),
            )
        )
    return tuple(sorted(steps, key=lambda step: step.at))


def begin(world: "World", step: Step) -> Undo:
    """Carry the step out; return what ends it, where it lasts."""
    chance = random.Random(step.seed)
    family, _, name = step.kind.partition(": ")
    if family == "people":
        return _people(world, name, chance)
    return FAULTS[step.kind](world, chance)


def _people(world: "World", name: str, chance: random.Random) -> Undo:
    pools = sorted(world.server.all(names.KIND), key=lambda one: str(one["metadata"]["name"]))
    if not pools:
        return None
    pool = chance.choice(pools)
    if "deletionTimestamp" in pool["metadata"]:
        return None
    try:
        said = getattr(world.people, name)(pool, chance)
    except Refused as refusal:
        said = f"refused: {refusal}"
    world.note("people", pool["metadata"]["name"], said)
    return None


def _api(kind: str) -> Callable[["World", random.Random], Undo]:
    def begin(world: "World", chance: random.Random) -> Undo:
        fault = ApiFault(
            kind,
            share=1.0 if kind == "sluggish" else chance.choice([0.1, 0.5, 1.0]),
            operator=chance.choice([None, None, *(one.name for one in world.operators)]),
            kinds=chance.choice([(), (), ("leases",), ("pods",), ("rewardpools",), ("secrets",), ("deployments",)]),
            verbs=chance.choice([(), (), ("GET",), ("watch",), ("PATCH",), ("PATCH", "POST")]),
        )
        world.network.api_faults.append(fault)
        return lambda: world.network.api_faults.remove(fault)

    return begin


def _history_forgotten(world: "World", chance: random.Random) -> Undo:
    world.server.forget_history()
    _watches_end(world, chance)
    return None


def _watches_end(world: "World", chance: random.Random) -> Undo:
    for watch in world.server.watches():
        if chance.random() < 0.7:
            watch.end()
    return None


def _watches_go_silent(world: "World", chance: random.Random) -> Undo:
    for watch in world.server.watches():
        if chance.random() < 0.5:
            watch.is_silent = True
    return None


def _watch_line(line: bytes) -> Callable[["World", random.Random], Undo]:
    def begin(world: "World", chance: random.Random) -> Undo:
        for watch in world.server.watches():
            if chance.random() < 0.3:
                watch.lines.put_nowait(line)
        return None

    return begin


def _restored(world: "World", chance: random.Random) -> Undo:
    if world.backup is not None:
        world.server.restore(world.backup)
    return None


def _backed_up(world: "World", _: random.Random) -> Undo:
    world.backup = world.server.backup()
    return None


def _crd_deleted(world: "World", _: random.Random) -> Undo:
    """With it all pools go; whoever brings it back applies their manifests again."""
    server, pools = world.server, world.server.all(names.KIND)
    for pool in pools:
        server.delete(names.KIND, pool["metadata"]["namespace"], pool["metadata"]["name"], at_once=True)
    server.absent.add(names.KIND)
    for watch in server.watches():
        if watch.kind == names.KIND:
            watch.end()

    def undo() -> None:
        server.absent.discard(names.KIND)
        for pool in pools:
            if server.get(names.KIND, pool["metadata"]["namespace"], pool["metadata"]["name"]) is None:
                world.people.make_again(pool)

    return undo


def _partition(world: "World", chance: random.Random) -> Undo:
    pair = (chance.choice(world.operators).name, "api")
    world.network.partitions.add(pair)
    return lambda: world.network.partitions.discard(pair)


def _operator_killed(world: "World", chance: random.Random) -> Undo:
    chance.choice(world.operators).kill()
    return None


def _namespaces_named(world: "World", _: random.Random) -> Undo:
    def serve(namespaces: tuple[str, ...]) -> None:
        for operator in world.operators:
            operator.serve(namespaces)

    serve(NAMED)
    return lambda: serve(())


def _lease_deleted(world: "World", _: random.Random) -> Undo:
    for lease in world.server.all("Lease"):
        if not (lease["metadata"].get("labels") or {}).get(names.LABEL_POOL):
            world.server.delete("Lease", lease["metadata"]["namespace"], lease["metadata"]["name"])
    return None


def _node(lost: str) -> Callable[["World", random.Random], Undo]:
    def begin(world: "World", chance: random.Random) -> Undo:
        node = chance.choice(world.cluster.nodes)
        if not node.reports:
            return None
        getattr(world.cluster, lost)(node)
        return lambda: world.cluster.bring_back(node)

    return begin


def _node_cordoned(world: "World", chance: random.Random) -> Undo:
    node = chance.choice(world.cluster.nodes)
    node.cordoned = True

    def undo() -> None:
        node.cordoned = False

    return undo


def _evicted(world: "World", chance: random.Random) -> Undo:
    pods = [one for one in world.server.all("Pod") if one["spec"].get("nodeName")]
    if pods:
        world.cluster.evict(chance.choice(pods))
    return None


def _quota(world: "World", chance: random.Random) -> Undo:
    world.cluster.quota = max(1, len(world.server.all("Pod")) + chance.randint(-2, 1))

    def undo() -> None:
        world.cluster.quota = None

    return undo


def _admission(world: "World", chance: random.Random) -> Undo:
    world.cluster.refuses_pods = 'pods is forbidden: violates PodSecurity "restricted:latest": hostPath volumes'

    def undo() -> None:
        world.cluster.refuses_pods = ""

    return undo


def _program_crashes(kind: str) -> Callable[["World", random.Random], Undo]:
    def begin(world: "World", chance: random.Random) -> Undo:
        found = [
            one
            for one in world.cluster.running.values()
            if one.program is not None and isinstance(one.program, Router) == (kind == "router")
        ]
        if found:
            world.cluster.crash(chance.choice(found))
        return None

    return begin


def _moved(world: "World", chance: random.Random) -> Undo:
    found = [one for one in world.cluster.running.values() if one.program is not None and one.node.runs]
    if found:
        world.cluster.move(chance.choice(found))
    return None


def _silent(kind: str) -> Callable[["World", random.Random], Undo]:
    def begin(world: "World", chance: random.Random) -> Undo:
        programs: list[Router | Worker] = [*(world.cluster.routers() if kind == "router" else world.cluster.workers())]
        if not programs:
            return None
        host = chance.choice(programs).address.partition(":")[0]
        world.network.silent.add(host)
        return lambda: world.network.silent.discard(host)

    return begin


def _router_is_odd(odd: str) -> Callable[["World", random.Random], Undo]:
    def begin(world: "World", chance: random.Random) -> Undo:
        routers = world.cluster.routers()
        if not routers:
            return None
        router = chance.choice(routers)
        router.odd = odd

        def undo() -> None:
            router.odd = None

        return undo

    return begin


def _metrics_blocked(world: "World", _: random.Random) -> Undo:
    blocked = world.network.blocked_ports
    blocked.add(names.ROUTER_METRICS_PORT)
    return lambda: blocked.discard(names.ROUTER_METRICS_PORT)


def _no_new_worker_is_reached(world: "World", chance: random.Random) -> Undo:
    """A policy or a mesh that knows the workers there are."""
    network = world.network
    network.reached_by_routers = frozenset(worker.address for worker in world.cluster.workers())

    def undo() -> None:
        network.reached_by_routers = None

    return undo


def _list_is_lost(world: "World", chance: random.Random) -> Undo:
    routers = world.cluster.routers()
    if routers:
        chance.choice(routers).entries.clear()
    return None


def _list_is_stale(world: "World", chance: random.Random) -> Undo:
    """An address that nothing has, as after a worker whose leaving a router forgot."""
    routers = world.cluster.routers()
    if routers:
        chance.choice(routers).remember("http://10.250.0.1:8000")
    return None


FAULTS: Final[Mapping[str, Callable[["World", random.Random], Undo]]] = {
    **{f"api: {kind}": _api(kind) for kind in API_FAULTS},
    "api: history forgotten": _history_forgotten,
    "api: watches end": _watches_end,
    "api: watches go silent": _watches_go_silent,
    "api: watch breaks a line": _watch_line(b'{"type": "MODIFIED", "obj\n'),
    "api: watch has an error": _watch_line(b'{"type": "ERROR", "object": {"kind": "Status", "code": 500}}\n'),
    "api: watch has nonsense": _watch_line(b'{"type": "MODIFIED", "object": {"metadata": 3}}\n'),
    "api: CRD deleted": _crd_deleted,
    "api: backed up": _backed_up,
    "api: restored from the backup": _restored,
    "operator: partitioned": _partition,
    "operator: killed": _operator_killed,
    "operator: lease deleted": _lease_deleted,
    "operator: serves namespaces by name": _namespaces_named,
    "node: lost": _node("lose"),
    "node: cut off": _node("cut_off"),
    "node: cordoned": _node_cordoned,
    "pod: evicted": _evicted,
    "pod: address moved": _moved,
    "pods: quota": _quota,
    "pods: refused by admission": _admission,
    "router: crashes": _program_crashes("router"),
    "router: silent": _silent("router"),
    "router: metrics blocked": _metrics_blocked,
    "router: odd metrics": _router_is_odd("metrics"),
    "router: odd list": _router_is_odd("list"),
    "router: status 500": _router_is_odd("500"),
    "router: reaches no new worker": _no_new_worker_is_reached,
    "router: list lost": _list_is_lost,
    "router: list stale": _list_is_stale,
    "worker: crashes": _program_crashes("worker"),
    "worker: silent": _silent("worker"),
}
