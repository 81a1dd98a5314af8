"""Which revision serves: the present one, or the last good one."""

from dataclasses import replace
from datetime import timedelta

import pytest
from support.decide_builders import NOW, a_pool, a_router, a_snapshot, a_worker

from rewardpool_api import RewardPoolStatus
from rewardpool_api.status import FailedRollout, RolloutStatus
from rewardpool_control.decide import decide
from rewardpool_control.snapshot import Download, Failure, WorkerSet

CRASH = Failure(reason="BadArguments", message="the engine refuses how it was started\nerror: --no-such-flag")
FAILED = FailedRollout(
    revision="new", reason="ProgressDeadlineExceeded", message="it crashed", time="2026-01-01T11:00:00Z"
)
OLD = tuple(a_worker(f"old-{number}", revision="old") for number in range(2))


def broken(age_seconds, revision="new", **fields):
    defaults = {"running": False, "answering": False, "failure": CRASH}
    return a_worker(f"{revision}-0", revision=revision, age_seconds=age_seconds, **{**defaults, **fields})


def remembering(revision="new", **rollout):
    return RewardPoolStatus(current_revision=revision, rollout=RolloutStatus(**{"target_revision": "new", **rollout}))


def a_case(*workers, status=None, sets=None, replicas=2, paused=False, listed=OLD, strategy="Surge", **spec):
    rollout = {"strategy": strategy, "progressDeadlineSeconds": 60, "paused": paused}
    pool = a_pool(replicas=replicas, rollout=rollout, status=status, **spec)
    made = None if sets is None else tuple(WorkerSet(revision=name, replicas=size) for name, size in sets.items())
    return a_snapshot(*workers, pool=pool, sets=made, routers=(a_router(workers=listed),))


def sizes(plan):
    return {worker_set.revision: worker_set.replicas for worker_set in plan.worker_sets}


def told(plan):
    return {event.reason for event in plan.events}


def reason(plan, kind="Progressing"):
    return plan.status.condition(kind).reason


def test_a_revision_is_good_when_all_wanted_workers_answer():
    plan = decide(a_snapshot(a_worker("one"), a_worker("two")))
    assert plan.status.rollout == RolloutStatus(target_revision="new", stable_revision="new")


def test_a_newer_good_revision_keeps_the_one_before_and_no_others():
    new = (a_worker("new-0"), a_worker("new-1"))
    status = remembering(stable_revision="old", previous_revision="older")
    plan = decide(a_case(*new, status=status, sets={"new": 2, "old": 0, "older": 0}, listed=new))
    assert (plan.status.rollout.stable_revision, plan.status.rollout.previous_revision) == ("new", "old")
    assert sizes(plan) == {"new": 2, "old": 0}
    assert "RolloutCompleted" in told(plan)


def test_a_pool_that_wants_more_than_fits_has_a_good_revision_too():
    plan = decide(
        a_case(
            a_worker("new-0"),
            status=remembering(stable_revision="old"),
            sets={"new": 9, "old": 0},
            replicas=9,
            listed=(a_worker("new-0"),),
        )
    )
    assert plan.status.rollout.stable_revision == "new"


@pytest.mark.parametrize("spec", [{"replicas": 0}, {"suspend": True}])
def test_nothing_is_known_of_a_revision_while_none_is_wanted(spec):
    plan = decide(a_case(status=remembering(stable_revision="old"), sets={"new": 0, "old": 0}, listed=(), **spec))
    assert plan.status.rollout.stable_revision == "old"
    assert sizes(plan) == {"new": 0, "old": 0}


def test_a_silent_revision_is_rolled_back_with_the_engines_last_lines():
    plan = decide(a_case(OLD[0], broken(61), status=remembering(revision="old", stable_revision="old"), listed=OLD[:1]))
    assert plan.status.rollout.failed.reason == "ProgressDeadlineExceeded"
    assert plan.stop == ("new-0",)
    assert sizes(plan) == {"new": 0, "old": 2}
    assert (reason(plan), reason(plan, "Degraded")) == ("RolledBack", "RolledBack")
    assert "--no-such-flag" in plan.status.condition("Degraded").message
    assert "RolledBack" in told(plan)


MISSPELT = Failure(reason="FunctionNotFound", message="the module rewards has no function scroe")


def test_what_no_other_attempt_changes_is_rolled_back_at_once():
    worker = broken(1, failure=MISSPELT)
    plan = decide(a_case(OLD[0], worker, status=remembering(revision="old", stable_revision="old"), listed=OLD[:1]))
    assert plan.status.rollout.failed.reason == "FunctionNotFound"
    assert sizes(plan) == {"new": 0, "old": 2}
    assert "can start; FunctionNotFound: the module rewards" in plan.status.condition("Degraded").message


@pytest.mark.parametrize("failure", [MISSPELT, Failure(reason="NumbersVary", message="in a batch by 0.5; set --x")])
def test_a_first_revision_that_can_never_start_says_so_at_once(failure):
    plan = decide(a_case(broken(1, failure=failure), listed=()))
    progressing = plan.status.condition("Progressing")
    assert (progressing.status, reason(plan), reason(plan, "Degraded")) == ("False", *[failure.reason] * 2)
    assert failure.message in progressing.message


@pytest.mark.parametrize(("gpus", "told"), [(0, ("False", "NoAccelerator")), (1, ("True", "Scaling"))])
def test_a_worker_that_asks_for_no_gpu_and_finds_none_never_starts(gpus, told):
    case = a_case(broken(1, failure=Failure(reason="NoAccelerator", message="no GPU")), listed=())
    worker = case.pool.spec.worker.model_copy(update={"gpus": gpus})
    spec = case.pool.spec.model_copy(update={"worker": worker})
    plan = decide(replace(case, pool=case.pool.model_copy(update={"spec": spec})))
    assert (plan.status.condition("Progressing").status, reason(plan)) == told


def test_a_rollback_is_told_once():
    first = decide(a_case(OLD[0], broken(61), status=remembering(revision="old", stable_revision="old")))
    again = decide(a_case(*OLD, status=first.status, sets={"new": 0, "old": 2}))
    assert "RolledBack" not in told(again)
    assert again.status.rollout == first.status.rollout
    assert reason(again) == "RolledBack"


def test_a_rollback_survives_the_operator_and_time():
    plan = decide(
        a_case(
            *OLD,
            status=remembering(target_revision="old", stable_revision="old", failed=FAILED),
            sets={"new": 0, "old": 2},
        )
    )
    assert plan.status.rollout.failed == FAILED
    assert sizes(plan) == {"new": 0, "old": 2}


def test_the_fix_is_a_revision_of_its_own():
    failed = FAILED.model_copy(update={"revision": "broken"})
    status = remembering(revision="broken", target_revision="old", stable_revision="old", failed=failed)
    plan = decide(a_case(*OLD, status=status, sets={"broken": 0, "old": 2}))
    assert (plan.status.rollout.failed, plan.status.rollout.target_revision) == (None, "new")
    assert sizes(plan) == {"new": 2, "old": 2}


def test_a_rolled_back_pool_goes_on_scaling():
    status = remembering(target_revision="old", stable_revision="old", failed=FAILED)
    assert sizes(decide(a_case(*OLD, status=status, sets={"new": 0, "old": 2}, replicas=5))) == {"new": 0, "old": 5}


def test_without_a_good_revision_the_present_one_goes_on_trying():
    plan = decide(a_case(broken(61), replicas=1, listed=()))
    assert plan.status.rollout.failed is None
    assert (reason(plan), reason(plan, "Degraded")) == ("ProgressDeadlineExceeded", "BadArguments")
    assert sizes(plan) == {"new": 1}


def test_a_good_revision_whose_deployment_was_deleted_cannot_come_back():
    status = remembering(stable_revision="old", silent_since="2026-01-01T11:00:00.000000Z")
    plan = decide(a_case(broken(61), status=status, sets={"new": 1}, replicas=1, listed=()))
    assert (plan.status.rollout.failed, plan.status.rollout.stable_revision) == (None, None)
    assert reason(plan) == "ProgressDeadlineExceeded"


def test_a_pool_that_was_at_zero_is_not_overdue_when_it_grows():
    status = remembering(stable_revision="old")
    day_old = WorkerSet(revision="new", replicas=1, created=NOW - timedelta(days=1))
    fresh = broken(5)
    pool = a_pool(replicas=1, rollout={"progressDeadlineSeconds": 60}, status=status)
    sets = (day_old, WorkerSet(revision="old", replicas=0))
    plan = decide(a_snapshot(fresh, pool=pool, sets=sets, routers=(a_router(),)))
    assert plan.status.rollout.failed is None


def test_a_worker_that_answered_and_crashed_has_its_time_again():
    plan = decide(a_case(*OLD, broken(3600), status=remembering(stable_revision="old")))
    assert plan.status.rollout.failed is None
    assert plan.status.rollout.silent_since == NOW


def test_the_clock_stands_still_while_the_model_is_downloaded():
    download = Download(phase="Downloading", begun=NOW - timedelta(hours=1))
    loading = broken(3600, failure=None, download=download)
    assert decide(a_case(*OLD, loading, status=remembering("old", stable_revision="old"))).status.rollout.failed is None
    loaded = broken(3600, failure=None, download=Download(phase="Done"))
    plan = decide(a_case(*OLD, loaded, status=remembering(stable_revision="old")))
    assert plan.status.rollout.silent_since == NOW


def test_a_good_revision_that_falls_silent_is_not_rolled_back():
    status = remembering(stable_revision="new", previous_revision="old", silent_since="2026-01-01T11:00:00.000000Z")
    plan = decide(a_case(broken(3600), status=status, sets={"new": 1, "old": 0}, replicas=1, listed=()))
    assert plan.status.rollout.failed is None
    assert sizes(plan) == {"new": 1, "old": 0}
    assert reason(plan) == "ProgressDeadlineExceeded"


def test_a_paused_pool_keeps_the_good_revision_and_scales_it():
    plan = decide(
        a_case(
            *OLD,
            status=remembering(revision="old", target_revision="old", stable_revision="old"),
            paused=True,
            replicas=3,
        )
    )
    assert sizes(plan) == {"new": 0, "old": 3}
    assert reason(plan) == "Paused"
    assert "revision new waits" in plan.status.condition("Progressing").message


def test_a_rollout_that_is_paused_half_way_goes_back_to_the_good_revision():
    new = a_worker("new-0")
    plan = decide(a_case(OLD[0], new, status=remembering(stable_revision="old"), paused=True))
    assert sizes(plan) == {"new": 1, "old": 2}
    assert plan.drain == ()


def test_an_unpaused_pool_goes_on():
    status = remembering(target_revision="old", stable_revision="old")
    assert sizes(decide(a_case(*OLD, status=status, sets={"new": 0, "old": 2}))) == {"new": 2, "old": 2}


def test_a_pool_that_was_made_paused_starts():
    assert sizes(decide(a_case(paused=True, listed=()))) == {"new": 2}


def test_a_pause_that_holds_nothing_back_says_so():
    plan = decide(a_case(a_worker("new-0"), replicas=1, paused=True, listed=(a_worker("new-0"),)))
    assert (reason(plan), plan.status.condition("Progressing").status) == ("Paused", "False")


NO_GPU = "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."
GATED = "SchedulingGated: Scheduling is blocked due to non-empty scheduling gates"


@pytest.mark.parametrize("strategy", ["Surge", "Auto"])
def test_a_revision_that_waits_for_a_queue_is_not_rolled_back(strategy):
    waiting = broken(100_000, failure=None, url=None, unschedulable=GATED)
    status = decide(
        a_case(*OLD, waiting, status=remembering(revision="old", stable_revision="old"), strategy=strategy)
    ).status
    assert (status.rollout.failed, status.rollout.silent_since) == (None, None)


def test_a_revision_that_has_no_room_beside_the_others_is_rolled_back_under_surge():
    waiting = broken(100, failure=None, url=None, unschedulable=NO_GPU)
    plan = decide(a_case(*OLD, waiting, status=remembering(revision="old", stable_revision="old")))
    assert NO_GPU in plan.status.rollout.failed.message
    assert sizes(plan) == {"new": 0, "old": 2}


def test_the_clock_runs_where_kubernetes_makes_no_pod():
    refused = WorkerSet(revision="new", replicas=2, refused='violates PodSecurity "restricted:latest"')
    status = remembering(stable_revision="old", silent_since="2026-01-01T11:00:00.000000Z")
    case = replace(a_case(*OLD, status=status), worker_sets=(refused, WorkerSet(revision="old", replicas=2)))
    plan = decide(case)
    assert "violates PodSecurity" in plan.status.rollout.failed.message
    assert sizes(plan) == {"new": 0, "old": 2}


def test_the_clock_does_not_run_while_a_worker_is_leaving():
    status = remembering(stable_revision="old", silent_since="2026-01-01T11:00:00.000000Z")
    leaving_old = replace(OLD[0], draining_since=NOW)
    plan = decide(a_case(leaving_old, OLD[1], status=status, sets={"new": 0, "old": 1}, strategy="Replace"))
    assert (plan.status.rollout.failed, plan.status.rollout.silent_since) == (None, None)


def test_a_revision_that_answers_and_that_no_router_lists_is_not_good_and_is_rolled_back():
    new = (a_worker("new-0"), a_worker("new-1"))
    before = remembering(stable_revision="old")
    status = decide(a_case(*OLD, *new, status=before)).status
    assert (status.rollout.stable_revision, status.rollout.silent_since) == ("old", NOW)
    late = replace(a_case(*OLD, *new, status=status), now=NOW + timedelta(seconds=61))
    plan = decide(late)
    assert plan.status.rollout.failed is not None
    assert "no router lists them" in plan.status.rollout.failed.message
    assert sizes(plan)["old"] == 2


def test_a_router_whose_list_is_unknown_fails_no_revision():
    new = (a_worker("new-0"), a_worker("new-1"))
    silent = (a_router(registered=None),)
    status = remembering(stable_revision="old", silent_since="2026-01-01T11:00:00.000000Z")
    plan = decide(replace(a_case(*OLD, *new, status=status), routers=silent))
    assert plan.status.rollout.failed is None


def test_the_clock_runs_for_a_worker_that_has_room():
    waiting = broken(100, failure=None, url=None, unschedulable=NO_GPU)
    crashing = replace(broken(100), name="new-1")
    plan = decide(a_case(*OLD, waiting, crashing, status=remembering(revision="old", stable_revision="old")))
    assert plan.status.rollout.failed is not None


def test_a_revision_that_fits_nowhere_though_all_others_left_asks_too_much_and_is_rolled_back():
    waiting = broken(100, failure=None, url=None, unschedulable=NO_GPU)
    sets = {"old": 0, "new": 1}
    plan = decide(
        a_case(waiting, replicas=1, sets=sets, listed=(), status=remembering(revision="old", stable_revision="old"))
    )
    assert NO_GPU in plan.status.rollout.failed.message


def test_a_revision_that_nobody_schedules_fails_with_the_schedulers_words():
    taint = "0/1 nodes are available: 1 node(s) had untolerated taint {spot: true}."
    stuck = broken(61, failure=None, url=None, unschedulable=taint)
    plan = decide(a_case(*OLD, stuck, status=remembering(revision="old", stable_revision="old")))
    assert "untolerated taint" in plan.status.rollout.failed.message
