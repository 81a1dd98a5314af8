"""What a schedule does to the gradients: nothing, for the same mini-batches and a policy that is new."""

import itertools
import math

import pytest
import torch
from support.schedule_job import GROUPS, MINIBATCH, STEPS
from support.torchrun import RanksDid

from rewardpool_train.pipeline.schedule import SCHEDULES

UPDATES = STEPS * GROUPS // MINIBATCH

KINDS = pytest.mark.parametrize("kind", ["weights", "gradients"])

Tensors = dict[str, torch.Tensor]
Noted = dict[str, Tensors]
Results = dict[int, dict[str, list[Noted]]]
"""After each update, by the number of ranks and by schedule."""


@pytest.fixture(scope="module")
def trained(ranks_did: dict[int, RanksDid]) -> Results:
    """What was noted."""
    return {ranks: did.results["schedules"] for ranks, did in ranks_did.items()}


def farthest(first: list[Noted], second: list[Noted], *, kind: str) -> float:
    """The largest difference after any update, as a share: the length of all differences over that of all values."""
    assert len(first) == len(second) == UPDATES
    return max(apart(one[kind], other[kind]) for one, other in zip(first, second, strict=True))


def apart(one: Tensors, other: Tensors) -> float:
    differences = sum((one[name] - other[name]).square().sum().item() for name in one)
    return math.sqrt(differences / sum(tensor.square().sum().item() for tensor in one.values()))


@KINDS
@pytest.mark.parametrize("ranks", [1, 2])
def test_mini_batches_as_they_are_complete_train_what_sync_trains(trained: Results, ranks: int, kind: str) -> None:
    assert farthest(trained[ranks]["sync"], trained[ranks]["minibatch"], kind=kind) < 1e-6


@KINDS
@pytest.mark.parametrize("ranks", [1, 2])
def test_one_step_ahead_it_does_not_matter_either_whether_the_whole_step_is_waited_for(
    trained: Results, ranks: int, kind: str
) -> None:
    assert farthest(trained[ranks]["one_step_off"], trained[ranks]["one_step_off_minibatch"], kind=kind) < 1e-6


@KINDS
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_two_ranks_train_what_one_does(trained: Results, schedule: str, kind: str) -> None:
    assert farthest(trained[1][schedule], trained[2][schedule], kind=kind) < 1e-4


@KINDS
def test_what_is_compared_moves(trained: Results, kind: str) -> None:
    assert min(apart(before[kind], after[kind]) for before, after in itertools.pairwise(trained[1]["sync"])) > 1e-3
    assert (
        farthest(trained[1]["sync"], trained[1]["one_step_off_minibatch"], kind=kind) > 1e-4
    )  # the decoupled loss is another one
