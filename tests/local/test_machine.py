"""What one machine does with a manifest that is made for a cluster."""

from support.decide_builders import a_pool

from rewardpool_operator.local.machine import unheeded


def test_a_golden_set_is_said_not_to_be_compared_here():
    parity = {"goldenSetRef": {"name": "golden"}, "maxAbsDiff": 0.05}
    (line,) = unheeded(a_pool(rollout={"parity": parity}))
    assert line.startswith("spec.rollout.parity is not checked here")


def test_a_budget_is_said_to_be_shared_with_nobody_here():
    budget = {"name": "gpus", "maxReplicas": 4}
    (line,) = unheeded(a_pool(autoscaling={"maxReplicas": 8, "policy": {"type": "External"}, "budget": budget}))
    assert line.startswith("spec.autoscaling.budget is shared with nobody here")


def test_a_manifest_for_one_machine_means_all_it_says():
    assert unheeded(a_pool()) == ()
