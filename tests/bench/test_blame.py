"""The bench's own arithmetic: what is wasted, the oracle, and what the tiny policy is given."""

import random
from typing import Any

import pytest
from blame import bandit, broken_pools, oracle, survivors, waste
from blame.aims import missed


def test_failures_are_exactly_the_share_that_was_asked_for() -> None:
    failed = waste.failures(200, 0.05, random.Random(1))
    assert sum(map(sum, failed)) == 80


@pytest.mark.parametrize(("failing_members", "dropped", "trained"), [(0, 0, 8), (1, 8, 7), (4, 8, 4)])
def test_a_group_is_wasted_whole_only_where_it_is_dropped(failing_members: int, dropped: int, trained: int) -> None:
    group = [member < failing_members for member in range(waste.GROUP_SIZE)]
    failed = [group, *[[False] * waste.GROUP_SIZE] * (waste.GROUPS_PER_STEP - 1)]
    assert waste.dropped_groups(failed).wasted == dropped
    assert waste.trained_without(failed, 0.0, random.Random(1)).wasted == waste.GROUP_SIZE - trained


def test_a_group_with_too_few_scores_costs_all_of_its_rollouts_and_those_of_another() -> None:
    failed = [[True] * 5 + [False] * 3, *[[False] * 8] * (waste.GROUPS_PER_STEP - 1)]
    found = waste.trained_without(failed, 0.0, random.Random(1))
    assert (found.rollouts, found.wasted, found.rounds) == (8 * waste.GROUPS_PER_STEP + 8, 8, 1)


def test_the_oracle_agrees_with_the_papers_formula() -> None:
    assert oracle.advantages([0.0, 2.0], "none") == [-1.0, 1.0]
    assert oracle.advantages([0.0, 2.0], "group_std") == pytest.approx([-1 / 1.0001, 1 / 1.0001], rel=1e-12)
    assert oracle.advantages([0.0, 2.0], "group_sample_std") == pytest.approx(
        [-1 / (2**0.5 + 1e-4), 1 / (2**0.5 + 1e-4)], rel=1e-12
    )


def test_survivors_have_the_advantages_of_a_group_without_the_others() -> None:
    failed = waste.failures(40, 0.3, random.Random(1))
    assert max(survivors.largest_difference(failed, random.Random(2)).values()) < 1e-9
    assert survivors.largest_difference_of_mixtures(failed[:10], random.Random(2)) < 1e-9


async def test_a_policy_learns_to_provoke_time_outs_only_where_they_pay() -> None:
    found = {way: await bandit.learn(way, steps=100, seed=0) for way in bandit.WAYS}
    assert found["constant_0"].provokes_after > 0.75
    assert all(found[way].provokes_after < 0.2 for way in ("unscored", "unscored_with_penalty"))
    assert found["drop_groups"].wasted > 3 * found["unscored"].wasted


def test_what_is_missed_is_named() -> None:
    policy: dict[str, Any] = {"provokes_before": 0.25, "provokes_after_most": 0.01}
    found: dict[str, Any] = {
        "rollouts": {"leave_out": {"share": 0.05}},
        "largest_difference_from_oracle": {"none": 0.0},
        "bandit": {"unscored": policy, "unscored_with_penalty": policy},
        "broken_pools": {"500": {"wrong": 0, "raised": "BrokenPoolError"}},
    }
    assert missed(found) == []
    found["rollouts"]["leave_out"]["share"] = 0.06
    found["largest_difference_from_oracle"]["none"] = 1e-5
    found["bandit"]["unscored"] = {"provokes_before": 0.25, "provokes_after_most": 0.3}
    found["broken_pools"] = {"500": {"wrong": 0, "raised": ""}, "NaN": {"wrong": 1, "raised": "BrokenPoolError"}}
    assert len(missed(found)) == 5


@pytest.mark.parametrize("name", broken_pools.BROKEN)
async def test_a_broken_pool_raises_and_scores_nothing_though_failures_are_forgiven(name: str) -> None:
    wrong, raised = await broken_pools.scored_by(broken_pools.BROKEN[name])
    assert wrong == 0
    assert raised == ("WrongModelError" if name == "wrong model" else "BrokenPoolError")
