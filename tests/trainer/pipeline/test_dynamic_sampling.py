from dataclasses import dataclass
from typing import Any

import pytest

from rewardpool_train.pipeline.dynamic_sampling import DynamicSampling, Selection, needs_round, select
from rewardpool_train.pipeline.schedule import SCHEDULES, Order, Plan, ScheduleName

PLAN = Plan(steps=1, groups_per_step=4, groups_per_minibatch=2, group_size=2)


@dataclass
class Group:
    """A group as a look sees it."""

    index: int
    arrival: int | None
    informative: bool
    version: int = 0


def seen(words: str) -> list[Group]:
    """Groups in the order of their indices: `+2` is informative and complete as number 2, `-2` is not, `?` waits."""
    return [
        Group(index, None if word == "?" else int(word[1:]), word[0] != "-") for index, word in enumerate(words.split())
    ]


@pytest.mark.parametrize(
    ("schedule", "order", "groups", "found"),
    [
        # the whole step is waited for
        ("sync", "arrival", "+0 +1 +2 ?", None),
        ("sync", "arrival", "-0 -1 +2 ?", None),
        ("sync", "arrival", "+3 +1 +2 +0", Selection(chosen=[0, 1])),
        ("sync", "arrival", "+0 -1 +2 +3", Selection(chosen=[], useless=[1])),
        ("one_step_off", "arrival", "-0 -1", Selection(chosen=[], useless=[0, 1])),
        # as soon as there is a mini-batch
        ("minibatch", "arrival", "+1 ? ? +0", Selection(chosen=[3, 0])),
        ("minibatch", "arrival", "+1 -2 ? +0", Selection(chosen=[3, 0], useless=[1])),
        ("minibatch", "arrival", "-0 +1 -2 ?", None),
        ("one_step_off_minibatch", "arrival", "-0 +1 -2 -3", Selection(chosen=[], useless=[0, 2, 3])),
        # by prompt, whatever comes behind the mini-batch has no say
        ("minibatch", "prompt", "? +1 +0 +2", None),
        ("minibatch", "prompt", "-1 +2 -0 +3 ? -4", Selection(chosen=[1, 3], useless=[0, 2])),
        ("minibatch", "prompt", "+1 +0 -2 -3", Selection(chosen=[0, 1])),
        ("minibatch", "prompt", "-1 -0 -2 +3", Selection(chosen=[], useless=[0, 1, 2])),
    ],
)
def test_what_a_look_at_a_steps_groups_comes_to(
    schedule: ScheduleName, order: Order, groups: str, found: Selection | None
) -> None:
    assert select(seen(groups), SCHEDULES[schedule], PLAN, order=order) == found


@pytest.mark.parametrize(
    ("found", "missing"),
    [
        (Selection(chosen=[0, 1]), 0),
        (Selection(chosen=[0, 1], useless=[2]), 0),
        (Selection(chosen=[], useless=[0, 3]), 2),
    ],
)
def test_only_a_rank_without_a_mini_batch_misses_groups(found: Selection, missing: int) -> None:
    assert found.missing == missing


@pytest.mark.parametrize(
    ("missing", "done", "comes"), [(0, 0, False), (1, 0, True), (3, 1, True), (1, 2, False), (0, 2, False)]
)
def test_a_round_comes_while_some_rank_misses_groups_and_rounds_are_left(missing: int, done: int, comes: bool) -> None:
    assert needs_round(missing=missing, done=done, at_most=2) is comes


@pytest.mark.parametrize("rounds", [0, -1])
def test_a_job_that_samples_anew_has_rounds(rounds: int) -> None:
    with pytest.raises(ValueError, match="it must be at least 1"):
        DynamicSampling(rounds=rounds, is_informative=any_scores)


def any_scores(scores: Any) -> bool:
    return True
