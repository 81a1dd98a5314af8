"""How a changed revision replaces the old one."""

from dataclasses import replace
from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st
from support.decide_builders import NOW, a_pool, a_router, a_snapshot, a_worker

from rewardpool_control.decide import decide
from rewardpool_control.snapshot import RegisteredWorker, WorkerSet

OLD = tuple(a_worker(f"old-{number}", revision="old") for number in range(2))


NO_GPU = "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."
GATED = "SchedulingGated: Scheduling is blocked due to non-empty scheduling gates"
TAINT = "0/1 nodes are available: 1 node(s) had untolerated taint {spot: true}."


def stuck_worker(words):
    return a_worker("new-0", age_seconds=5, answering=False, running=False, url=None, unschedulable=words)


def sizes(plan):
    return {worker_set.revision: worker_set.replicas for worker_set in plan.worker_sets}


def rolling(strategy, **spec):
    return a_pool(replicas=2, rollout={"strategy": strategy, "progressDeadlineSeconds": 60}, **spec)


def test_surge_starts_the_new_revision_beside_the_old():
    assert sizes(decide(a_snapshot(*OLD, pool=rolling("Surge")))) == {"new": 2, "old": 2}


def test_surge_lets_an_old_worker_go_for_each_new_one_that_answers():
    new = (a_worker("new-0"), a_worker("new-1", answering=False))
    plan = decide(a_snapshot(*OLD, *new, pool=rolling("Surge")))
    assert len(plan.drain) == 1
    assert plan.drain[0].startswith("old")


def test_replace_lets_an_old_worker_go_before_a_new_one_starts():
    plan = decide(a_snapshot(*OLD, pool=rolling("Replace")))
    assert sizes(plan) == {"new": 0, "old": 2}
    assert len(plan.drain) == 1


def test_auto_falls_back_to_replace_when_a_new_worker_fits_nowhere_and_says_so():
    stuck = stuck_worker(NO_GPU)
    plan = decide(a_snapshot(*OLD, stuck, pool=rolling("Auto"), routers=(a_router(workers=OLD),)))
    assert plan.stop == ("new-0",)
    progressing = plan.status.condition("Progressing")
    assert progressing.reason == "ReplacingForLackOfRoom"
    assert "Insufficient nvidia.com/gpu" in progressing.message
    assert any(event.type == "Warning" for event in plan.events)


QUOTA = 'pods "rm-worker-new-x" is forbidden: exceeded quota: gpus, requested: requests.nvidia.com/gpu=1'


def test_auto_falls_back_to_replace_when_a_quota_refuses_the_new_workers():
    sets = (WorkerSet(revision="old", replicas=2), WorkerSet(revision="new", replicas=2, refused=QUOTA))
    plan = decide(a_snapshot(*OLD, pool=rolling("Auto"), sets=sets, routers=(a_router(workers=OLD),)))
    progressing = plan.status.condition("Progressing")
    assert progressing.reason == "ReplacingForLackOfRoom"
    assert "exceeded quota: gpus" in progressing.message
    assert len(plan.drain) == 1
    assert sizes(plan) == {"new": 0, "old": 2}


def test_pods_that_are_refused_for_another_cause_are_no_want_of_room():
    sets = (
        WorkerSet(revision="old", replicas=2),
        WorkerSet(revision="new", replicas=2, refused='admission webhook "policy" denied the request'),
    )
    plan = decide(a_snapshot(*OLD, pool=rolling("Auto"), sets=sets, routers=(a_router(workers=OLD),)))
    assert plan.status.condition("Progressing").reason == "Surging"
    assert plan.drain == ()


def test_a_queue_never_costs_a_worker_that_serves():
    def reason(age_seconds):
        gated = replace(stuck_worker(GATED), created=NOW - timedelta(seconds=age_seconds))
        plan = decide(a_snapshot(*OLD, gated, pool=rolling("Auto"), routers=(a_router(workers=OLD),)))
        assert plan.drain == ()
        return plan.status.condition("Progressing").reason

    assert [reason(2), reason(20)] == ["Surging", "Unschedulable"]


def test_auto_goes_on_surging_when_an_old_workers_leaving_would_not_help_and_says_why():
    plan = decide(a_snapshot(*OLD, stuck_worker(TAINT), pool=rolling("Auto"), routers=(a_router(workers=OLD),)))
    assert (plan.stop, plan.drain) == ((), ())
    progressing = plan.status.condition("Progressing")
    assert progressing.reason == "Unschedulable"
    assert "untolerated taint" in progressing.message


def test_auto_stays_with_replace_once_there_was_no_room():
    stuck = stuck_worker(NO_GPU)
    first = decide(a_snapshot(*OLD, stuck, pool=rolling("Auto")))
    pool = rolling(
        "Auto",
    ).model_copy(update={"status": first.status})
    assert sizes(decide(a_snapshot(*OLD, pool=pool))) == {"new": 0, "old": 2}


def test_a_deleted_pod_of_a_lost_node_keeps_no_rollout_going_whose_last_worker_has_no_room():
    lost = a_worker("old-9", revision="old", running=False, answering=False, deleting=True)
    new = (a_worker("new-1"), a_worker("new-2"))
    short = decide(a_snapshot(*OLD, *new, stuck_worker(NO_GPU), pool=rolling("Auto")))
    pool = rolling("Auto").model_copy(update={"status": short.status})
    pool = pool.model_copy(update={"spec": pool.spec.model_copy(update={"replicas": 3})})
    for workers in ((lost, *new), (lost, *new, stuck_worker(NO_GPU))):
        plan = decide(a_snapshot(*workers, pool=pool, routers=(a_router(workers=new),)))
        assert (sizes(plan)["new"], plan.stop) == (3, ())
        pool = pool.model_copy(update={"status": plan.status})


def test_a_new_revision_that_never_answers_takes_nothing_from_the_old_one():
    broken = tuple(a_worker(f"new-{number}", answering=False) for number in range(2))
    plan = decide(a_snapshot(*OLD, *broken, pool=rolling("Surge"), now=NOW + timedelta(seconds=61)))
    assert sizes(plan)["old"] == 2
    assert plan.drain == ()
    assert plan.status.condition("Progressing").reason == "ProgressDeadlineExceeded"
    assert plan.status.condition("Serving").status == "True"


def test_a_broken_revision_goes_before_a_good_one_so_it_never_blocks_the_fix():
    broken = tuple(a_worker(f"broken-{number}", revision="broken", answering=False) for number in range(2))
    plan = decide(a_snapshot(*OLD, *broken, pool=rolling("Surge"), routers=(a_router(workers=OLD),)))
    assert set(plan.stop) == {"broken-0", "broken-1"}
    assert sizes(plan) == {"new": 2, "old": 2}


class SimulatedFleet:
    """Carries out plans: what is started answers two passes later, what is stopped is gone at the next."""

    def __init__(self, strategy, replicas):
        self.pool = a_pool(replicas=replicas, rollout={"strategy": strategy})
        self.workers = {f"old-{number}": a_worker(f"old-{number}", revision="old") for number in range(replicas)}
        self.sets = {"old": replicas}
        self.listed = {worker.url for worker in self.workers.values()}
        self.now = NOW
        self.born = 0

    def one_pass(self):
        self.now += timedelta(seconds=1)
        entries = tuple(RegisteredWorker(id=url, url=url, in_flight=0) for url in sorted(self.listed))
        plan = decide(
            a_snapshot(
                *self.workers.values(),
                pool=self.pool,
                now=self.now,
                routers=(a_router(registered=entries),),
                sets=tuple(WorkerSet(revision=name, replicas=size, created=NOW) for name, size in self.sets.items()),
            )
        )
        self.pool = self.pool.model_copy(update={"status": plan.status})
        self.listed -= {leave.worker_url for leave in plan.leaves}
        for name in plan.drain:
            self.workers[name] = replace(self.workers[name], draining_since=self.now)
        for name in plan.stop:
            del self.workers[name]
        for name, worker in self.workers.items():
            if not worker.answering and self.now - worker.created >= timedelta(seconds=2):
                self.workers[name] = replace(worker, answering=True)
        self.sets = {worker_set.revision: worker_set.replicas for worker_set in plan.worker_sets}
        for revision, size in self.sets.items():
            missing = size - sum(worker.revision == revision for worker in self.workers.values())
            for _ in range(missing):
                self.born += 1
                name = f"{revision}-born-{self.born}"
                born = a_worker(name, revision=revision, answering=False)
                self.workers[name] = replace(born, created=self.now)
        self.listed |= {join.worker_url for join in plan.joins}

    @property
    def serving(self):
        return sum(worker.url in self.listed for worker in self.workers.values())


@settings(deadline=None, max_examples=40)
@given(replicas=st.integers(1, 5), strategy=st.sampled_from(["Surge", "Replace", "Auto"]))
def test_a_rollout_ends_with_the_new_revision_and_never_falls_below_its_floor(replicas, strategy):
    fleet = SimulatedFleet(strategy, replicas)
    floor = replicas if strategy != "Replace" else replicas - 1
    for _ in range(15 * replicas + 15):
        fleet.one_pass()
        assert fleet.serving >= floor
        if strategy == "Replace":
            assert len(fleet.workers) <= replicas
    assert {worker.revision for worker in fleet.workers.values()} == {"new"}
    assert len(fleet.workers) == fleet.serving == replicas
    assert fleet.pool.status.condition("Progressing").reason == "Stable"
