"""What `explain` says of a pool's size: for every limit, and of what the policies go by."""

from datetime import UTC, datetime, timedelta

import pytest

from rewardpool_api import RewardPool
from rewardpool_api.times import rfc3339
from rewardpool_cli.explain import Evidence, explain

NOW = datetime(2026, 1, 1, 12, 10, tzinfo=UTC)
QUEUE_DEPTH = {"type": "QueueDepth", "queueDepth": {"targetPerReplica": 10}}
DRAIN_TIME = {"type": "DrainTime", "drainTime": {"targetSeconds": 10}}
DEMAND = {"type": "Demand", "demand": {}}
SHARED = {"name": "gpus", "maxReplicas": 4, "priority": 2}
STEP = {"step": {"replicas": 2, "percent": 50, "periodSeconds": 30}}


def at(seconds):
    return rfc3339(NOW + timedelta(seconds=seconds))


def condition(reason, message="", *, status="True"):
    time = "2026-01-01T12:00:00Z"
    return {"type": "ScalingActive", "status": status, "reason": reason, "message": message, "lastTransitionTime": time}


def a_pool(*policies, scaling=None, replicas=None, autoscaling=None, suspend=False, **status):
    """A pool of 0 to 8 replicas by these policies (QueueDepth by default), with what was decided last."""
    bounds = {"minReplicas": 0, "maxReplicas": 8, "policies": list(policies or [QUEUE_DEPTH]), **(autoscaling or {})}
    spec = {"model": {"source": "hf://org/model"}, "replicas": replicas, "suspend": suspend, "autoscaling": bounds}
    decided = {"desired": 1, "reason": "because", **(scaling or {})}
    status = {"observedGeneration": 1, "scaling": decided, **status}
    metadata = {"name": "rm", "namespace": "rl", "generation": 1}
    return RewardPool.model_validate({"metadata": metadata, "spec": spec, "status": status})


def external(asked, **given):
    return a_pool(replicas=asked, autoscaling={"policies": None, "policy": {"type": "External"}}, **given)


def explained(pool, cause, **fields):
    (found,) = [item for item in explain(Evidence(now=NOW, pool=pool, **fields)) if item.cause == cause]
    return found


def decided(desired, asked, limit=None, **fields):
    return {"desired": desired, "recommendedReplicas": asked, "limit": limit, **fields}


@pytest.mark.parametrize(
    ("pool", "cause", "kind", "words"),
    [
        (
            a_pool(scaling=decided(3, 3), conditions=[condition("MetricsUnavailable", "router r0", status="False")]),
            "MetricsUnavailable",
            "problem",
            "The size, 3, may grow and not shrink",
        ),
        (a_pool(scaling=decided(0, 0)), "AtZero", "note", "the first request brings it back"),
        (a_pool(scaling=decided(2, 2)), "Size", "note", "2 replicas are wanted, as policy QueueDepth"),
        (
            a_pool(QUEUE_DEPTH, DEMAND, scaling=decided(2, 2)),
            "Size",
            "note",
            "2 replicas are wanted, the most that one of policies QueueDepth and Demand wants",
        ),
        (
            a_pool(scaling=decided(8, 12, "MaxReplicas")),
            "AtMost",
            "problem",
            "12 replicas are asked for, and spec.autoscaling.maxReplicas is 8",
        ),
        (
            a_pool(scaling=decided(8, 8, "MaxReplicas")),
            "Size",
            "note",
            "8 are asked for, and spec.autoscaling.maxReplicas is 8",
        ),
        (
            a_pool(scaling=decided(2, 0, "MinReplicas"), autoscaling={"minReplicas": 2}),
            "Size",
            "note",
            "2 replicas are kept, though 0 would do: spec.autoscaling.minReplicas is 2",
        ),
        (
            a_pool(scaling=decided(4, 8, "Step"), autoscaling={"scaleUp": STEP}),
            "Step",
            "waiting",
            "on the way to the 8 that are asked for: spec.autoscaling.scaleUp.step lets 2 replicas or 50 % change"
            " within 30 s",
        ),
        (
            a_pool(scaling=decided(4, 1, "Step"), autoscaling={"scaleDown": STEP}),
            "Step",
            "waiting",
            "spec.autoscaling.scaleDown.step",
        ),
        (
            a_pool(scaling=decided(4, 5, "Tolerance")),
            "Size",
            "note",
            "4 replicas are kept, though 5 are asked for: a difference of 10 % is not worth a change",
        ),
        (
            a_pool(
                scaling=decided(
                    4, 2, "Window", window=[{"time": at(-40), "replicas": 4}, {"time": at(-10), "replicas": 2}]
                )
            ),
            "HeldForAWhile",
            "note",
            "4 replicas are kept, though 2 would do now: the pool shrinks to the most that was asked for within 120 s,"
            " for 80 s more",
        ),
        (
            a_pool(scaling=decided(1, 0, "CooldownSeconds", idleSince=at(-100))),
            "HeldForAWhile",
            "note",
            "1 replica is kept for 8 min more, though nobody has asked anything for 100 s",
        ),
        (
            a_pool(scaling=decided(4, 4, "Unschedulable")),
            "Size",
            "note",
            "one that fits nowhere is neither asked for again nor waited for",
        ),
        (
            a_pool(scaling=decided(1, 6, "Budget"), autoscaling={"budget": SHARED}, load={"inFlight": 50}),
            "Budget",
            "problem",
            "The pool has 1 replica of the 6 that are asked for: budget gpus",
        ),
        (
            a_pool(scaling=decided(0, 2, "Budget"), autoscaling={"budget": SHARED}),
            "Budget",
            "note",
            "The pool has 0 replicas of the 2",
        ),
        (external(0, scaling=decided(0, None)), "AtZero", "note", "policy External, so HPA, KEDA or a person"),
        (external(None, scaling=decided(1, None)), "Size", "problem", "nobody wrote spec.replicas"),
        (external(9, scaling=decided(4, None)), "Size", "note", "it says 9, and the bounds are 0 to 8"),
        (
            external(9, scaling=decided(2, 9, "Budget")),
            "Budget",
            "note",
            "The pool has 2 replicas of the 9 that are asked for",
        ),
    ],
)
def test_the_size_is_explained_by_what_limits_it(pool, cause, kind, words):
    found = explained(pool, cause)
    assert words in found.what
    assert found.kind == kind


def test_a_pool_that_is_fixed_at_zero_can_be_scaled():
    pool = a_pool(scaling={"desired": 0})
    pool = pool.model_copy(update={"spec": pool.spec.model_copy(update={"autoscaling": None})})
    found = explained(pool, "AtZero")
    assert (found.kind, found.next[0]) == ("problem", "rewardpool scale rl/rm 1")


def test_nothing_is_said_of_the_size_of_a_suspended_pool():
    assert [item.cause for item in explain(Evidence(now=NOW, pool=a_pool(suspend=True)))] == ["Suspended"]


@pytest.mark.parametrize(
    ("pool", "cause", "step"),
    [
        (a_pool(scaling=decided(8, 12, "MaxReplicas")), "AtMost", '{"spec":{"autoscaling":{"maxReplicas":12}}}'),
        (
            a_pool(scaling=decided(8, 99_999, "MaxReplicas")),
            "AtMost",
            '{"spec":{"autoscaling":{"maxReplicas":10000}}}',
        ),
        (
            a_pool(scaling=decided(1, 6, "Budget"), autoscaling={"budget": SHARED}),
            "Budget",
            '{"spec":{"autoscaling":{"budget":{"priority":3}}}}',
        ),
        (
            a_pool(scaling=decided(1, 6, "Budget"), autoscaling={"budget": SHARED}),
            "Budget",
            '{"spec":{"autoscaling":{"minReplicas":2}}}',
        ),
        (
            a_pool(scaling=decided(3, 1, "MinReplicas"), autoscaling={"minReplicas": 3}),
            "Size",
            '{"spec":{"autoscaling":{"minReplicas":1}}}',
        ),
    ],
)
def test_a_command_changes_what_limits_it(pool, cause, step):
    assert any(f"--type merge -p '{step}'" in line for line in explained(pool, cause).next)


@pytest.mark.parametrize("recommended", [0, 7, 8])
def test_no_maximum_is_advised_that_is_no_larger_than_the_present_one(recommended):
    assert explained(a_pool(scaling=decided(8, recommended, "MaxReplicas")), "Size").next == ()


def test_a_pool_that_has_all_of_its_budget_can_only_have_a_larger_one():
    pool = a_pool(scaling=decided(4, 6, "Budget"), autoscaling={"budget": SHARED})
    (step,) = explained(pool, "Budget").next
    assert step.startswith("raise spec.autoscaling.budget.maxReplicas")


@pytest.mark.parametrize("is_fixed", [True, False])
def test_a_pool_under_a_budget_over_namespaces_is_told_whose_it_is(is_fixed):
    pool = a_pool(scaling=decided(4, 6, "Budget"))
    if is_fixed:
        pool = pool.model_copy(update={"spec": pool.spec.model_copy(update={"autoscaling": None})})
    found = explained(pool, "Budget")
    assert found.what.endswith("a budget over namespaces leaves it no more")
    assert found.next == ("ask whoever installed the operator: it is the chart's value budgets",)


def test_on_one_machine_the_manifest_is_to_be_changed():
    (step,) = explained(a_pool(scaling=decided(8, 12, "MaxReplicas")), "AtMost", is_local=True).next
    assert step == 'merge {"spec":{"autoscaling":{"maxReplicas":12}}} into the manifest, then rewardpool up -f MANIFEST'


def test_pools_that_do_not_agree_on_their_budget_are_named():
    words = "maxReplicas of budget gpus is 4 by rm, 6 by other; 4 holds"
    pool = a_pool(autoscaling={"budget": SHARED}, conditions=[condition("BudgetDisagrees", words)])
    assert explained(pool, "BudgetDisagrees").said == words


LIVE = {"job": "grpo", "state": "Live", "phase": "Update", "samples": 512, "nextBurst": at(40), "replicas": 4}


def test_jobs_are_told_with_their_next_burst_and_what_is_asked_for_them():
    stalled = {"job": "ppo", "state": "Live", "phase": "Rollout", "replicas": 1, "stalled": True, "message": "cut"}
    found = explained(a_pool(DEMAND, demands=[LIVE, stalled]), "Jobs")
    assert found.what == "The pool goes by what 2 training jobs said of the next bursts"
    assert found.said.splitlines() == [
        "grpo: Update; 512 samples a burst; the next burst in 40 s, at 12:10:40 UTC; 4 replicas asked for on its"
        " behalf",
        "ppo: Rollout; 1 replica asked for on its behalf; its trainer does nothing but wait; cut",
    ]
    assert found.next == ()


def test_a_pool_that_does_not_heed_its_jobs_is_told_how_to():
    found = explained(a_pool(demands=[LIVE]), "Jobs")
    (step,) = found.next
    assert found.what == "Nothing is done for what 1 training job said of the next bursts"
    assert '{"type":"Demand","demand":{}}' in step


def test_an_announcement_that_makes_no_sense_is_a_problem():
    ignored = {"job": "demand-rm-x", "state": "Ignored", "message": "samples: it is negative"}
    found = explained(a_pool(DEMAND, demands=[ignored]), "DemandIgnored")
    assert (found.kind, found.said) == ("problem", "demand-rm-x: samples: it is negative")


def test_a_job_that_died_is_told():
    lapsed = {"job": "grpo", "state": "Lapsed"}
    assert explained(a_pool(DEMAND, demands=[lapsed]), "JobsGone").what.endswith("not renewed: grpo")


def test_the_beat_of_the_load_stands_in_for_jobs_that_say_nothing():
    beat = [{"begun": at(-seconds), "ended": at(4 - seconds), "replicas": 3} for seconds in (105, 75, 45, 15)]
    found = explained(a_pool(DEMAND, scaling=decided(3, 3, bursts=beat)), "NextBurst")
    assert "they come about every 30 s: the next one, worth 3 replicas, is expected in 15 s" in found.what


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        (DEMAND, "No training job announces a burst, and from the load none can be foreseen now: nothing is started"),
        ({"type": "Demand", "demand": {"learn": False}}, "No training job announces a burst: nothing is started"),
    ],
)
def test_a_pool_that_expects_nothing_says_so(policy, words):
    assert words in explained(a_pool(policy), "NextBurst").what


def test_what_was_measured_is_told_with_what_follows_from_it():
    rate = {"perReplica": 6.5, "inFlight": 8, "time": at(-30), "measured": [{"rate": 6.5, "inFlight": 8}]}
    starts = [{"worker": "w0", "seconds": 40.0}]
    found = explained(a_pool(DRAIN_TIME, scaling=decided(1, 1, serviceRate=rate, starts=starts)), "Measured")
    assert found.what == (
        "A busy replica answers 6.5 requests in a second by 1 measurement, the last one at 12:09:30 UTC, 30 s ago; the"
        " slowest of the last starts took 40 s, so replicas for a burst are asked for 52 s before it"
    )


def test_until_something_is_measured_it_is_told_what_counts_instead():
    given = {"serviceRate": {"initialPerReplica": 5}}
    assert "5 requests in a second are taken for it" in explained(a_pool(DEMAND, autoscaling=given), "Measured").what
    unknown = explained(a_pool(DEMAND), "Measured")
    assert "no start was seen yet, so replicas for a burst are asked for 77 s before it" in unknown.what
    assert "spec.autoscaling.serviceRate.initialPerReplica" in unknown.next[0]


def test_measurements_are_not_told_where_no_policy_uses_them():
    assert "Measured" not in [item.cause for item in explain(Evidence(now=NOW, pool=a_pool()))]


@pytest.mark.parametrize(
    ("waits_for", "words"),
    [
        (None, "The last request that found the pool at zero, at 12:09:20 UTC, 40 s ago, had its score after 4.0 s"),
        ("Download", "The first request has waited for its score for 4.0 s, and waits for Download"),
    ],
)
def test_what_the_first_request_at_zero_waited_for_is_told(waits_for, words):
    first = {"since": at(-40), "seconds": 4.0, "parts": {"pull": 1.5, "download": 2.5}, "waitsFor": waits_for}
    found = explained(a_pool(firstScore=first), "FirstScore")
    assert (found.what, found.said) == (words, "pull 1.5 s, download 2.5 s")
