"""SimulatedFleet: a simulated cluster, for properties of whole sequences of decisions.

It does what a plan says, and between two plans what Kubernetes would do by itself: replace deleted pods, start those
that fit, let them answer when their revision is healthy, restart what crashed. Time passes by ticks of one second.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from support.decide_builders import NOW, a_pool, a_router, a_snapshot, a_worker

from rewardpool_api import RewardPool
from rewardpool_control.decide import decide
from rewardpool_control.golden_set import GoldenScores, parse_golden_set
from rewardpool_control.plan import Plan
from rewardpool_control.snapshot import RegisteredWorker, Snapshot, Worker, WorkerSet

GOLDEN = parse_golden_set('{"text": "two plus two is four"}')
ALLOWED = 0.1
DEADLINE_SECONDS = 20
START_SECONDS = 2
NO_ROOM = "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."


@dataclass(frozen=True, kw_only=True)
class Health:
    """How workers of a revision turn out."""

    answers: bool = True
    """Whether they ever answer."""
    score: float = 1.0
    """What they make of the golden text."""


class SimulatedFleet:
    """A pool with revision `r0`, which is healthy, and whatever `change` makes of it.

    Args:
        strategy: of rollouts.
        replicas: wanted.
        room: how many workers the cluster has GPUs for; None for any number.
        parity: whether a golden set is compared.
        parked: replicas that are kept out of the routers.
    """

    def __init__(
        self, *, strategy: str, replicas: int, room: int | None = None, parity: bool = False, parked: int = 0
    ) -> None:
        self.rollout: dict[str, Any] = {"strategy": strategy, "progressDeadlineSeconds": DEADLINE_SECONDS}
        if parity:
            self.rollout["parity"] = {"goldenSetRef": {"name": "golden"}, "maxAbsDiff": ALLOWED}
        self.golden = GOLDEN if parity else None
        self.replicas = replicas
        self.room = room
        self.parked = parked
        self.status = None
        self.revision = "r0"
        self.health = {"r0": Health()}
        self.workers: dict[str, Worker] = {}
        self.sets: dict[str, WorkerSet] = {}
        self.listed: set[str] = set()
        self.now = NOW
        self.plan: Plan | None = None
        self._born = 0
        self._up_at: dict[str, Any] = {}

    def __repr__(self) -> str:
        """What hypothesis shows of a failing example."""
        workers = [
            f"{worker.name}{'' if worker.answering else ' silent'}{' leaves' if worker.draining_since else ''}"
            for worker in self.workers.values()
        ]
        sizes = f"{self.replicas} and {self.parked}, {self.room}"
        return f"SimulatedFleet({self.rollout}, {sizes}: {workers} of {self.revision})"

    # What happens to it.

    def change(self, health: Health) -> None:
        """The spec renders to another revision."""
        self.revision = f"r{len(self.health)}"
        self.health[self.revision] = health

    def crash(self, choice: int) -> None:
        """The process of a worker ends; the kubelet starts it again."""
        self._any(choice, lambda worker: replace(worker, running=False, answering=False))

    def delete(self, choice: int) -> None:
        """Somebody deletes a pod: it is gone at the next tick."""
        self._any(choice, lambda worker: replace(worker, deleting=True))

    def doom(self, choice: int) -> None:
        """A disruption of a pod is announced."""
        self._any(choice, lambda worker: replace(worker, disruption_target="EvictionByEvictionAPI: drained"))

    def _any(self, choice: int, change: Callable[[Worker], Worker]) -> None:
        if self.workers:
            name = sorted(self.workers)[choice % len(self.workers)]
            self.workers[name] = change(self.workers[name])
            self._up_at[name] = self.now + timedelta(seconds=START_SECONDS)

    # Time.

    def tick(self) -> Plan:
        """A second passes, Kubernetes does its part, and the operator decides and applies."""
        self.now += timedelta(seconds=1)
        self._kubernetes()
        return self.decide_and_apply()

    def decide_and_apply(self) -> Plan:
        """One pass of the operator; it remembers nothing but the status."""
        self.plan = decide(self.snapshot())
        self._apply(self.plan)
        return self.plan

    @property
    def pool(self) -> RewardPool:
        scaling = {"minReplicas": 0, "maxReplicas": 10, "policy": {"type": "External"}, "parked": self.parked}
        autoscaling = {"autoscaling": scaling, "worker": {"gpus": 0}} if self.parked else {}
        return a_pool(replicas=self.replicas, rollout=self.rollout, status=self.status, **autoscaling)

    def snapshot(self) -> Snapshot:
        entries = tuple(RegisteredWorker(id=url, url=url, in_flight=0) for url in sorted(self.listed))
        snapshot = a_snapshot(
            *self.workers.values(),
            pool=self.pool,
            now=self.now,
            routers=(a_router(registered=entries),),
            sets=tuple(self.sets.values()),
        )
        return replace(snapshot, revision=self.revision, golden=self.golden)

    def serving(self) -> int:
        """Workers that are in the router and answer."""
        return sum(worker.url in self.listed and worker.available for worker in self.workers.values())

    def _apply(self, plan: Plan) -> None:
        self.status = plan.status
        self.listed -= {leave.worker_url for leave in plan.leaves}
        for name in plan.drain:
            self.workers[name] = replace(self.workers[name], draining_since=self.now)
        for name in plan.undrain:
            self.workers[name] = replace(self.workers[name], draining_since=None)
        for name in plan.stop:
            del self.workers[name]
        before = self.sets
        self.sets = {
            worker_set.revision: replace(before.get(worker_set.revision, worker_set), replicas=worker_set.replicas)
            for worker_set in plan.worker_sets
        }
        for measure in plan.measure:
            scores = GoldenScores(digest=GOLDEN.digest, scores=(self.health[measure.revision].score,))
            self.sets[measure.revision] = replace(self.sets[measure.revision], golden=scores)
        self.listed |= {join.worker_url for join in plan.joins}

    def _kubernetes(self) -> None:
        gone = {name for name, worker in self.workers.items() if worker.deleting or worker.disruption_target}
        gone |= {name for name, worker in self.workers.items() if worker.revision not in self.sets}
        for name in gone:
            del self.workers[name]
        for revision, worker_set in self.sets.items():
            present = [worker for worker in self.workers.values() if worker.revision == revision]
            # A ReplicaSet that is too large takes those that are not ready first.
            for worker in sorted(present, key=lambda worker: (worker.answering, worker.name))[worker_set.replicas :]:
                del self.workers[worker.name]
            for _ in range(worker_set.replicas - len(present)):
                self._create(revision)
        for name, worker in list(self.workers.items()):
            self.workers[name] = self._lived(worker)

    def _create(self, revision: str) -> None:
        self._born += 1
        name = f"{revision}-{self._born}"
        pending = a_worker(name, revision=revision, running=False, answering=False, url=None)
        self.workers[name] = replace(pending, created=self.now)

    def _lived(self, worker: Worker) -> Worker:
        """A second in the life of a worker."""
        if worker.url is None:
            running = sum(other.url is not None for other in self.workers.values())
            if self.room is not None and running >= self.room:
                return replace(worker, unschedulable=NO_ROOM)
            self._up_at[worker.name] = self.now + timedelta(seconds=START_SECONDS)
            return replace(worker, url=f"http://{worker.name}:8000", unschedulable=None, running=True)
        if worker.answering or self.now < self._up_at[worker.name]:
            return worker
        return replace(worker, running=True, answering=self.health[worker.revision].answers)
