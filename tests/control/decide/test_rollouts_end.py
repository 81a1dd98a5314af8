"""Every rollout ends, whatever the cluster lets the new revision have: with it in service, or with a rollback.

The cluster is a stand-in: nodes with GPUs, a quota, and pods that start, are placed, refused or held back as Kubernetes
1.34 does it, in the scheduler's own words.
"""

from dataclasses import dataclass, field, replace
from datetime import timedelta

import pytest
from support.decide_builders import NOW, a_pool, a_router, a_snapshot, a_worker

from rewardpool_api import RewardPoolStatus
from rewardpool_api.status import RolloutStatus
from rewardpool_control.decide import decide
from rewardpool_control.snapshot import RegisteredWorker, Worker, WorkerSet

DEADLINE_SECONDS = 60
PASS_SECONDS = 2


@dataclass
class Cluster:
    """A pool of `wanted` workers whose revision `old` serves, on nodes that take pods as their GPUs allow."""

    strategy: str
    wanted: int
    gpus: list[int]
    """Of each node."""
    size: dict[str, int] = field(default_factory=lambda: {"old": 1, "new": 1})
    """GPUs that a worker of each revision asks for."""
    quota: int | None = None
    refused: str | None = None
    """Words with which no pod of the new revision is made."""
    closed: bool = False
    """Every node is cordoned: what runs there stays."""
    gate: bool = False
    """A queue never admits workers of the new revision."""
    unreachable: bool = False
    """Routers cannot reach workers of the new revision, and never list them."""

    def __post_init__(self) -> None:
        rollout = {"strategy": self.strategy, "progressDeadlineSeconds": DEADLINE_SECONDS}
        status = RewardPoolStatus(
            current_revision="old", rollout=RolloutStatus(target_revision="old", stable_revision="old")
        )
        self.pool = a_pool(replicas=self.wanted, rollout=rollout, worker={"drainSeconds": 4}, status=status)
        self.now, self.born = NOW, 0
        self.node: dict[str, int] = {}
        self.workers: dict[str, Worker] = {}
        self.sets = {"old": self.wanted}
        self.words: dict[str, str | None] = {}
        self.listed: set[str] = set()
        self.least_serving = self.wanted
        closed, self.closed = self.closed, False
        self._make_and_place()
        self.closed = closed
        self.workers = {
            name: replace(worker, answering=worker.placed, running=worker.placed)
            for name, worker in self.workers.items()
        }
        self.listed = {worker.url or "" for worker in self.workers.values() if worker.answering}
        self.least_serving = len(self.listed)

    def pass_once(self) -> None:
        self.now += timedelta(seconds=PASS_SECONDS)
        entries = tuple(RegisteredWorker(id=url, url=url, in_flight=0) for url in sorted(self.listed))
        sets = tuple(
            WorkerSet(revision=name, replicas=size, created=NOW, refused=self.words.get(name))
            for name, size in self.sets.items()
        )
        routers = (a_router(registered=entries),)
        plan = decide(a_snapshot(*self.workers.values(), pool=self.pool, now=self.now, routers=routers, sets=sets))
        self.pool = self.pool.model_copy(update={"status": plan.status})
        self.listed -= {leave.worker_url for leave in plan.leaves}
        for name in plan.drain:
            self.workers[name] = replace(self.workers[name], draining_since=self.now)
        for name in plan.stop:
            self._remove(name)
        self.sets = {worker_set.revision: worker_set.replicas for worker_set in plan.worker_sets}
        self._shrink()
        reachable = {join.worker_url for join in plan.joins if not (self.unreachable and "new" in join.worker_url)}
        self.listed |= reachable
        for name, worker in self.workers.items():
            if worker.placed and self.now - worker.created >= timedelta(seconds=3 * PASS_SECONDS):
                self.workers[name] = replace(worker, answering=True, running=True)
        self._make_and_place()
        self.least_serving = min(self.least_serving, self.serving)

    def _shrink(self) -> None:
        """Remove pods that were never placed first, as a ReplicaSet does."""
        for revision, size in self.sets.items():
            having = [worker for worker in self.workers.values() if worker.revision == revision]
            for worker in sorted(having, key=lambda one: one.placed)[: max(0, len(having) - size)]:
                self._remove(worker.name)

    def _remove(self, name: str) -> None:
        worker = self.workers.pop(name)
        self.node.pop(name, None)
        self.listed.discard(worker.url or "")

    def _used(self, node: int) -> int:
        return sum(self.size[self.workers[name].revision] for name, at in self.node.items() if at == node)

    def _make_and_place(self) -> None:
        for revision, size in self.sets.items():
            self.words[revision] = None
            for _ in range(size - sum(worker.revision == revision for worker in self.workers.values())):
                if (words := self._refusal(revision)) is not None:
                    self.words[revision] = words
                    break
                self.born += 1
                name = f"{revision}-{self.born}"
                unplaced = {"answering": False, "running": False, "placed": False}
                self.workers[name] = replace(a_worker(name, revision=revision, **unplaced), created=self.now)
        for name, worker in self.workers.items():
            if name not in self.node:
                self.workers[name] = self._schedule(worker)

    def _refusal(self, revision: str) -> str | None:
        if self.refused is not None and revision == "new":
            return self.refused
        asked = sum(self.size[worker.revision] for worker in self.workers.values())
        if self.quota is not None and asked + self.size[revision] > self.quota:
            requested, used, limited = (f"nvidia.com/gpu={gpus}" for gpus in (self.size[revision], asked, self.quota))
            return f"exceeded quota: gpus, requested: {requested}, used: {used}, limited: {limited}"
        return None

    def _schedule(self, worker: Worker) -> Worker:
        if self.gate and worker.revision == "new":
            return replace(worker, unschedulable="SchedulingGated: Scheduling is blocked")
        size, total = self.size[worker.revision], len(self.gpus)
        if self.closed:
            words = f"{total} node(s) were unschedulable, 1 Insufficient nvidia.com/gpu"
            helpful = f"{total + 1} Preemption is not helpful for scheduling"
        else:
            for node, gpus in enumerate(self.gpus):
                if self._used(node) + size <= gpus:
                    self.node[worker.name] = node
                    return replace(worker, placed=True, unschedulable=None)
            words = f"{total + 1} Insufficient nvidia.com/gpu"
            able = sum(size <= gpus for gpus in self.gpus)
            helpful = f"{total + 1 - able} Preemption is not helpful for scheduling"
            if able:
                helpful = f"{able} No preemption victims found for incoming pod, {helpful}"
        nodes = f"0/{total + 1} nodes are available"  # one node has no GPU at all
        return replace(worker, unschedulable=f"{nodes}: {words}. preemption: {nodes}: {helpful}.")

    @property
    def serving(self) -> int:
        return sum(worker.url in self.listed for worker in self.workers.values())

    @property
    def serving_of(self) -> dict[str, int]:
        listed = [worker.revision for worker in self.workers.values() if worker.url in self.listed]
        return {revision: listed.count(revision) for revision in sorted(set(listed))}

    def settle(self) -> RolloutStatus:
        """Make passes for five deadlines, and return what the status says at their end."""
        for _ in range(5 * DEADLINE_SECONDS // PASS_SECONDS):
            self.pass_once()
        rollout = self.pool.status.rollout
        assert rollout is not None
        return rollout


BOTH = pytest.mark.parametrize("strategy", ["Auto", "Replace"])


@BOTH
def test_a_pool_that_wants_more_than_fits_is_rolled_out_at_the_size_that_fits(strategy: str) -> None:
    cluster = Cluster(strategy, wanted=4, gpus=[1, 1, 1])
    assert cluster.settle().stable_revision == "new"
    assert cluster.serving_of == {"new": 3}
    assert cluster.least_serving == 2


@BOTH
def test_larger_workers_take_the_room_of_as_many_old_ones_as_they_need(strategy: str) -> None:
    cluster = Cluster(strategy, wanted=2, gpus=[2], size={"old": 1, "new": 2})
    assert cluster.settle().stable_revision == "new"
    assert cluster.serving_of == {"new": 1}


@BOTH
def test_larger_workers_than_any_node_are_rolled_back_and_cost_at_most_one(strategy: str) -> None:
    cluster = Cluster(strategy, wanted=2, gpus=[1, 1], size={"old": 1, "new": 2})
    rollout = cluster.settle()
    assert rollout.failed is not None
    assert (rollout.stable_revision, cluster.serving_of) == ("old", {"old": 2})
    assert cluster.least_serving == (2 if strategy == "Auto" else 1)


@BOTH
def test_one_worker_that_a_quota_never_lets_grow_comes_back(strategy: str) -> None:
    cluster = Cluster(strategy, wanted=1, gpus=[4], size={"old": 1, "new": 2}, quota=1)
    rollout = cluster.settle()
    assert rollout.failed is not None
    assert "exceeded quota" in rollout.failed.message
    assert (rollout.stable_revision, cluster.serving_of) == ("old", {"old": 1})
    assert cluster.least_serving == (1 if strategy == "Auto" else 0)


@BOTH
def test_a_quota_that_fits_one_more_at_a_time_is_no_obstacle(strategy: str) -> None:
    cluster = Cluster(strategy, wanted=3, gpus=[8], quota=3)
    assert cluster.settle().stable_revision == "new"
    assert cluster.serving_of == {"new": 3}
    assert cluster.least_serving == 2


@BOTH
@pytest.mark.parametrize("wanted", [1, 3])
def test_pods_that_a_policy_refuses_are_rolled_back(strategy: str, wanted: int) -> None:
    cluster = Cluster(strategy, wanted=wanted, gpus=[8], refused='violates PodSecurity "restricted:latest"')
    rollout = cluster.settle()
    assert rollout.failed is not None
    assert "violates PodSecurity" in rollout.failed.message
    assert cluster.serving_of == {"old": wanted}


@pytest.mark.parametrize("wanted", [1, 2])
def test_auto_takes_no_worker_that_serves_where_a_closed_node_is_the_obstacle(wanted: int) -> None:
    cluster = Cluster("Auto", wanted=wanted, gpus=[wanted], closed=True)
    rollout = cluster.settle()
    assert rollout.failed is not None
    assert cluster.least_serving == wanted
    assert cluster.serving_of == {"old": wanted}


@BOTH
@pytest.mark.parametrize("wanted", [1, 2])
def test_workers_that_routers_cannot_reach_are_rolled_back_and_never_stable(strategy: str, wanted: int) -> None:
    cluster = Cluster(strategy, wanted=wanted, gpus=[8], unreachable=True)
    rollout = cluster.settle()
    assert rollout.failed is not None
    assert "no router lists them" in rollout.failed.message
    assert (rollout.stable_revision, cluster.serving_of) == ("old", {"old": wanted})


def test_a_queue_that_never_admits_costs_nothing_and_fails_nothing() -> None:
    cluster = Cluster("Auto", wanted=2, gpus=[8], gate=True)
    rollout = cluster.settle()
    assert (rollout.failed, rollout.stable_revision) == (None, "old")
    assert cluster.least_serving == 2
    progressing = cluster.pool.status.condition("Progressing")
    assert progressing is not None
    assert "SchedulingGated" in progressing.message


@pytest.mark.parametrize("strategy", ["Surge", "Auto", "Replace"])
def test_an_ordinary_rollout_with_room_ends_and_costs_no_more_than_its_strategy_says(strategy: str) -> None:
    cluster = Cluster(strategy, wanted=3, gpus=[8])
    assert cluster.settle().stable_revision == "new"
    assert cluster.serving_of == {"new": 3}
    assert cluster.least_serving == (2 if strategy == "Replace" else 3)


def test_surge_without_room_is_rolled_back_at_its_deadline() -> None:
    cluster = Cluster("Surge", wanted=2, gpus=[1, 1])
    rollout = cluster.settle()
    assert rollout.failed is not None
    assert cluster.least_serving == 2
    assert cluster.serving_of == {"old": 2}
