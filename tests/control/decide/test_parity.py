"""A new revision scores the golden set before it takes traffic."""

from dataclasses import replace

import pytest
from support.decide_builders import NOW, a_pool, a_router, a_snapshot, a_worker

from rewardpool_api import RewardPoolStatus
from rewardpool_api.status import RolloutStatus
from rewardpool_control.decide import decide
from rewardpool_control.golden_set import GoldenProblem, GoldenScores, parse_golden_set
from rewardpool_control.plan import Measure
from rewardpool_control.snapshot import WorkerSet

PARITY = {"goldenSetRef": {"name": "golden"}, "maxAbsDiff": 0.05}
GOLDEN = parse_golden_set('{"text": "two plus two is four"}\n{"text": "two plus two is five"}')
EXPECTING = parse_golden_set('{"text": "two plus two is four", "score": 1}\n{"text": "two plus two is five"}')
OLD, NEW = a_worker("old-0", revision="old"), a_worker("new-0", age_seconds=5)


def scored(*scores, golden=GOLDEN, refusal=None):
    return GoldenScores(digest=golden.digest, scores=scores, refusal=refusal)


def a_rollout(*workers, golden=GOLDEN, old=None, new=None, status=None, **rollout):
    """One replica of `old`, which is good, and the revision `new` that was asked for."""
    memory = RewardPoolStatus(
        current_revision="new", rollout=RolloutStatus(target_revision="new", stable_revision="old")
    )
    pool = a_pool(replicas=1, rollout={"parity": PARITY, **rollout}, status=status or memory)
    sets = (
        WorkerSet(revision="old", replicas=1, created=NOW, golden=old),
        WorkerSet(revision="new", replicas=1, created=NOW, golden=new),
    )
    return replace(a_snapshot(*workers, pool=pool, sets=sets, routers=(a_router(workers=(OLD,)),)), golden=golden)


def reason(plan, kind="Progressing"):
    return plan.status.condition(kind).reason


def test_the_good_revision_scores_the_set_before_anything_of_it_leaves():
    plan = decide(a_rollout(OLD, strategy="Replace"))
    assert plan.measure == (Measure(revision="old", worker_url="http://old-0:8000"),)
    assert (plan.drain, reason(plan)) == ((), "CheckingParity")


def test_a_new_worker_scores_the_set_and_is_in_no_router_before_that():
    plan = decide(a_rollout(OLD, NEW, old=scored(1.0, -1.0)))
    assert plan.measure == (Measure(revision="new", worker_url="http://new-0:8000"),)
    assert (plan.joins, plan.drain, reason(plan)) == ((), (), "CheckingParity")


def test_a_revision_that_scores_alike_joins():
    plan = decide(a_rollout(OLD, NEW, old=scored(1.0, -1.0), new=scored(1.01, -1.02)))
    assert [join.worker_url for join in plan.joins] == ["http://new-0:8000"]
    assert (plan.measure, plan.status.rollout.parity.outcome) == ((), "Passed")
    assert "ParityPassed" in {event.reason for event in plan.events}


def test_a_difference_rolls_back_with_the_numbers():
    plan = decide(a_rollout(OLD, NEW, old=scored(1.0, -1.0), new=scored(1.01, -0.5)))
    assert (plan.joins, plan.status.rollout.failed.reason) == ((), "ParityExceeded")
    assert {worker_set.revision: worker_set.replicas for worker_set in plan.worker_sets} == {"new": 0, "old": 1}
    degraded = plan.status.condition("Degraded")
    assert (degraded.status, degraded.reason, reason(plan)) == ("True", "ParityExceeded", "RolledBack")
    for words in ("1 of 2", "0.5", "line 2", "two plus two is five", "-0.5 against -1 of revision old"):
        assert words in degraded.message
    told = {event.reason: event.message for event in plan.events if event.type == "Warning"}
    assert {"ParityExceeded", "RolledBack"} <= told.keys()
    assert "line 2" in told["RolledBack"]


def test_a_sample_without_a_score_is_a_difference():
    new = scored(1.0, None, refusal="sample_too_long: 9 tokens, the limit is 8")
    plan = decide(a_rollout(OLD, NEW, old=scored(1.0, -1.0), new=new))
    assert plan.status.rollout.failed.reason == "ParityExceeded"
    assert "sample_too_long" in plan.status.condition("Degraded").message


def test_an_expected_score_counts_more_than_that_of_the_good_revision():
    snapshot = a_rollout(OLD, NEW, golden=EXPECTING, old=scored(9.0, -1.0), new=scored(1.0, -1.0))
    assert decide(snapshot).status.rollout.parity.outcome == "Passed"


def test_the_first_revision_has_nothing_to_compare_with_and_says_so():
    pool = a_pool(replicas=1, rollout={"parity": PARITY})
    sets = (WorkerSet(revision="new", replicas=1, golden=scored(1.0, 2.0)),)
    plan = decide(replace(a_snapshot(NEW, pool=pool, sets=sets, routers=(a_router(),)), golden=GOLDEN))
    assert len(plan.joins) == 1
    assert "nothing to compare with" in plan.status.rollout.parity.message


def test_a_first_revision_that_scores_otherwise_than_expected_gets_no_traffic():
    pool = a_pool(replicas=1, rollout={"parity": PARITY})
    sets = (WorkerSet(revision="new", replicas=1, golden=scored(0.5, 2.0)),)
    plan = decide(replace(a_snapshot(NEW, pool=pool, sets=sets, routers=(a_router(),)), golden=EXPECTING))
    assert (plan.joins, plan.status.rollout.stable_revision) == ((), None)
    assert (reason(plan), reason(plan, "Degraded")) == ("ParityExceeded", "ParityExceeded")
    assert "expected" in plan.status.condition("Degraded").message


def test_a_golden_set_that_cannot_be_read_holds_the_rollout_and_the_good_revision_serves():
    problem = GoldenProblem(message="ConfigMap golden, entry golden.jsonl: line 3 is not JSON")
    plan = decide(a_rollout(OLD, golden=problem, strategy="Replace"))
    assert (plan.drain, reason(plan), reason(plan, "Degraded")) == ((), "GoldenSetUnusable", "GoldenSetUnusable")
    assert "line 3" in plan.status.condition("Progressing").message
    assert plan.status.condition("Serving").status == "True"


def test_a_good_revision_without_workers_and_scores_blocks_nobody():
    plan = decide(a_rollout(NEW, new=scored(1.0, 2.0)))
    assert plan.status.rollout.parity.outcome == "Passed"


def test_a_revision_that_passed_stays_in_the_routers_when_the_texts_change():
    first = decide(a_rollout(OLD, NEW, old=scored(1.0, -1.0), new=scored(1.0, -1.0)))
    other = parse_golden_set('{"text": "another"}')
    again = decide(a_rollout(OLD, NEW, golden=other, status=first.status, old=scored(1.0, -1.0), new=scored(1.0, -1.0)))
    assert [join.worker_url for join in again.joins] == ["http://new-0:8000"]


def test_a_larger_allowance_lets_the_failed_revision_go_on():
    failed = decide(a_rollout(OLD, NEW, old=scored(1.0, -1.0), new=scored(1.0, -0.5))).status
    wider = {**PARITY, "maxAbsDiff": 0.6}
    plan = decide(a_rollout(OLD, old=scored(1.0, -1.0), new=scored(1.0, -0.5), status=failed, parity=wider))
    assert (plan.status.rollout.failed, plan.status.rollout.target_revision) == (None, "new")


@pytest.mark.parametrize("golden", [GOLDEN, GoldenProblem(message="ConfigMap golden is not there")])
def test_a_failed_revision_does_not_come_back_by_itself(golden):
    failed = decide(a_rollout(OLD, NEW, old=scored(1.0, -1.0), new=scored(1.0, -0.5))).status
    plan = decide(a_rollout(OLD, golden=golden, old=scored(1.0, -1.0), new=scored(1.0, -0.5), status=failed))
    assert plan.status.rollout.failed == failed.rollout.failed
    assert plan.status.rollout.target_revision == "old"


def test_the_present_good_revision_is_measured_for_the_rollout_to_come():
    status = RewardPoolStatus(
        current_revision="new", rollout=RolloutStatus(target_revision="new", stable_revision="new")
    )
    pool = a_pool(replicas=1, rollout={"parity": PARITY}, status=status)
    plan = decide(replace(a_snapshot(NEW, pool=pool), golden=GOLDEN))
    assert plan.measure == (Measure(revision="new", worker_url="http://new-0:8000"),)
    assert (plan.leaves, plan.status.rollout.parity) == ((), None)


def test_where_there_are_no_config_maps_nothing_is_compared():
    plan = decide(a_rollout(OLD, NEW, golden=None))
    assert [join.worker_url for join in plan.joins] == ["http://new-0:8000"]
