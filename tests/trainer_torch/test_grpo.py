"""The loss against plain-Python formulas on a few numbers."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from rewardpool_train.actor.grpo import TokenLosses, rollout_weights, token_losses
from rewardpool_train.objective import Objective

GRPO = Objective()


def losses_of(
    log_probs: Sequence[Sequence[float]],
    advantages: Sequence[float],
    *,
    proximal: Sequence[Sequence[float]] | None = None,
    behaviour: Sequence[Sequence[float]] | None = None,
    reference: Sequence[Sequence[float]] | None = None,
    mask: Sequence[Sequence[bool]] | None = None,
    objective: Objective = GRPO,
) -> TokenLosses:
    """Losses of tokens whose log-probabilities were 0 before, unless they are given."""
    now = torch.tensor(log_probs)
    zeros = torch.zeros_like(now)
    return token_losses(
        log_probs=now,
        proximal=zeros if proximal is None else torch.tensor(proximal),
        behaviour=zeros if behaviour is None else torch.tensor(behaviour),
        advantages=torch.tensor(advantages),
        mask=torch.ones_like(now, dtype=torch.bool) if mask is None else torch.tensor(mask),
        objective=objective,
        reference=None if reference is None else torch.tensor(reference),
    )


def weights_of(lengths: list[int], scored: list[bool], **choices: Any) -> list[float]:
    known = [length for length, has_score in zip(lengths, scored, strict=True) if has_score]
    weights: list[float] = rollout_weights(
        torch.tensor(lengths),
        torch.tensor(scored),
        rollouts=len(known),
        tokens=sum(known),
        objective=Objective(**choices),
    ).tolist()
    return weights


@pytest.mark.parametrize(
    ("advantage", "ratio", "gain"),
    [
        (2.0, 1.0, 2.0),
        (2.0, 1.1, 2.2),
        (2.0, 1.5, 2.4),  # a good token is pushed up no further than 1.2
        (2.0, 0.5, 1.0),  # and is pushed back however far it has fallen
        (-2.0, 0.5, -1.6),  # a bad token is pushed down no further than 0.8
        (-2.0, 1.5, -3.0),
    ],
)
def test_the_gain_of_a_token_is_the_clipped_one(advantage: float, ratio: float, gain: float) -> None:
    assert losses_of([[math.log(ratio)]], [advantage]).losses.tolist() == [pytest.approx([-gain])]


def test_a_higher_upper_clip_lets_unlikely_tokens_rise_further() -> None:
    higher = dataclasses.replace(GRPO, clip_high=0.28)
    assert losses_of([[math.log(1.5)]], [1.0], objective=higher).losses.item() == pytest.approx(-1.28)
    assert losses_of([[math.log(0.5)]], [-1.0], objective=higher).losses.item() == pytest.approx(0.8)


def test_the_gradient_is_that_of_a_hand_computation() -> None:
    # d/dx of -exp(x) * A is -ratio * A; a clipped token has none.
    log_probs = torch.log(torch.tensor([[1.1, 1.5], [0.9, 0.5]])).requires_grad_()
    zeros, mask = torch.zeros(2, 2), torch.ones(2, 2, dtype=torch.bool)
    each = token_losses(
        log_probs=log_probs,
        proximal=zeros,
        behaviour=zeros,
        advantages=torch.tensor([2.0, -1.0]),
        mask=mask,
        objective=GRPO,
    )
    each.losses.sum().backward()
    assert log_probs.grad is not None
    assert log_probs.grad.flatten().tolist() == pytest.approx([-1.1 * 2, 0.0, 0.9 * 1, 0.0])
    assert each.clipped.tolist() == [[False, True], [False, True]]


def test_what_stands_outside_the_responses_has_no_influence() -> None:
    each = losses_of([[0.1, 9.0]], [1.0], mask=[[True, False]], reference=[[0.1, -9.0]])
    assert each.losses.tolist() == [pytest.approx([-math.exp(0.1), 0.0])]
    assert each.approx_kl[0, 1].item() == 0.0
    assert not each.clipped[0, 1]


def test_the_divergence_from_the_reference_is_the_papers_estimate() -> None:
    each = losses_of([[0.0]], [0.0], reference=[[math.log(0.5)]], objective=dataclasses.replace(GRPO, kl=0.1))
    assert each.losses.item() == pytest.approx(0.1 * (0.5 - math.log(0.5) - 1))


@pytest.mark.parametrize("gap", [100.0, -100.0])
def test_a_rollout_of_no_weight_far_from_the_reference_leaves_the_loss_a_number(gap: float) -> None:
    """What a rank adds that has fewer passes to make than another one."""
    log_probs = torch.tensor([[0.0]], requires_grad=True)
    zeros = torch.zeros(1, 1)
    each = token_losses(
        log_probs=log_probs,
        proximal=zeros - gap,
        behaviour=zeros - gap,
        advantages=zeros,
        mask=torch.tensor([[True]]),
        objective=Objective(kl=0.1),
        reference=zeros + gap,
    )
    loss = (each.losses.sum(dim=1) * rollout_weights_of_nothing()).sum()
    loss.backward()
    assert loss.item() == 0.0
    assert log_probs.grad is not None
    assert log_probs.grad.item() == 0.0
    assert torch.isfinite(each.approx_kl).all()


def rollout_weights_of_nothing() -> torch.Tensor:
    return rollout_weights(torch.tensor([1]), torch.tensor([False]), rollouts=1, tokens=1, objective=Objective(kl=0.1))


def test_the_divergence_from_the_reference_can_be_clamped() -> None:
    clamped = dataclasses.replace(GRPO, kl=0.1, kl_clamp=10.0)
    assert losses_of([[0.0, 0.0]], [0.0], reference=[[5.0, 1.0]], objective=clamped).losses.tolist() == [
        pytest.approx([1.0, 0.1 * (math.e - 2)])
    ]


@pytest.mark.parametrize(
    ("advantage", "ratio", "gain"),
    [
        (-2.0, 9.0, -6.0),  # a bad token that became likelier loses no more than three advantages
        (-2.0, 2.5, -5.0),
        (-2.0, 0.5, -1.6),
        (2.0, 9.0, 2.4),
    ],
)
def test_what_a_bad_token_loses_can_be_limited(advantage: float, ratio: float, gain: float) -> None:
    each = losses_of([[math.log(ratio)]], [advantage], objective=dataclasses.replace(GRPO, dual_clip=3.0))
    assert each.losses.item() == pytest.approx(-gain)
    assert each.clipped.item() == (gain != pytest.approx(advantage * ratio))


def test_a_stale_tokens_clip_is_about_the_step_and_its_weight_about_the_sampler() -> None:
    now, proximal, behaviour, advantage = -1.0, -1.1, -1.7, 2.0
    gain = math.exp(proximal - behaviour) * min(math.exp(now - proximal) * advantage, 1.2 * advantage)
    each = losses_of([[now]], [advantage], proximal=[[proximal]], behaviour=[[behaviour]])
    assert each.losses.item() == pytest.approx(-gain)
    assert not each.clipped.item()  # against the sampler alone, exp(0.7) would have been


@pytest.mark.parametrize("ratio", ["token", "sequence"])
def test_decoupled_ppo_on_fresh_rollouts_is_ppo(ratio: Any) -> None:
    then, objective = [[-0.5, -2.0], [-1.0, -0.1]], Objective(ratio=ratio)
    now = [[-0.4, -1.0], [-1.6, -0.2]]
    decoupled = losses_of(now, [1.0, -2.0], proximal=then, behaviour=then, objective=objective)
    moved = [[new - old for new, old in zip(*rows, strict=True)] for rows in zip(now, then, strict=True)]
    assert torch.allclose(decoupled.losses, losses_of(moved, [1.0, -2.0], objective=objective).losses)
    assert not decoupled.capped.any()


def test_the_importance_weight_is_capped() -> None:
    capped = dataclasses.replace(GRPO, importance_cap=2.0)
    each = losses_of([[0.0, 0.0]], [1.0], behaviour=[[-3.0, -0.5]], objective=capped)
    assert each.losses.tolist() == [pytest.approx([-2.0, -math.exp(0.5)])]
    assert each.capped.tolist() == [[True, False]]


def test_the_importance_weight_has_no_gradient() -> None:
    """The proximal policy is a number: only the trained one is differentiated."""
    log_probs = torch.tensor([[-1.0]], requires_grad=True)
    each = token_losses(
        log_probs=log_probs,
        proximal=torch.tensor([[-1.0]]),
        behaviour=torch.tensor([[-1.5]]),
        advantages=torch.tensor([1.0]),
        mask=torch.tensor([[True]]),
        objective=GRPO,
    )
    each.losses.sum().backward()
    assert log_probs.grad is not None
    assert log_probs.grad.item() == pytest.approx(-math.exp(0.5))


def test_the_sequence_ratio_is_the_geometric_mean_over_the_response() -> None:
    objective = Objective(ratio="sequence", clip_low=0.05, clip_high=0.05)
    each = losses_of(
        [[0.3, -0.1, 7.0], [0.01, 0.0, -0.01]],
        [1.0, 3.0],
        mask=[[True, True, False], [True, True, True]],
        objective=objective,
    )
    # exp((0.3 - 0.1) / 2) is over the limit of 1.05, exp(0) is not.
    assert each.losses.tolist() == [pytest.approx([-1.05, -1.05, 0.0]), pytest.approx([-3.0] * 3)]
    assert each.clipped.tolist() == [[True, True, False], [False] * 3]


def test_both_ratios_are_the_same_for_a_response_of_one_token() -> None:
    log_probs, advantages = [[0.3], [-0.3], [0.1]], [1.0, -1.0, 2.0]
    by_token, by_sequence = (
        losses_of(log_probs, advantages, objective=Objective(ratio=ratio)).losses for ratio in ("token", "sequence")
    )
    assert torch.equal(by_token, by_sequence)


def test_grpo_weighs_every_rollout_the_same() -> None:
    assert weights_of([2, 4], [True, True]) == pytest.approx([1 / 4, 1 / 8])


def test_dapo_weighs_every_token_the_same() -> None:
    assert weights_of([2, 4], [True, True], loss_agg_mode="token-mean") == pytest.approx([1 / 6, 1 / 6])


def test_dr_grpo_divides_by_a_constant() -> None:
    weights = weights_of([2, 4], [True, True], loss_agg_mode="seq-mean-token-sum-norm", fixed_length=10)
    assert weights == pytest.approx([1 / 20, 1 / 20])


@pytest.mark.parametrize("loss_agg_mode", ["seq-mean-token-mean", "token-mean", "seq-mean-token-sum-norm"])
def test_a_rollout_without_a_score_weighs_nothing_and_is_not_counted(loss_agg_mode: Any) -> None:
    without = weights_of([3, 9, 5], [True, False, True], loss_agg_mode=loss_agg_mode, fixed_length=9)
    assert without[1] == 0.0
    assert [without[0], without[2]] == weights_of([3, 5], [True, True], loss_agg_mode=loss_agg_mode, fixed_length=9)


def test_all_aggregations_are_the_same_where_every_response_has_the_full_length() -> None:
    assert (
        weights_of([4, 4, 4], [True] * 3)
        == weights_of([4, 4, 4], [True] * 3, loss_agg_mode="token-mean")
        == weights_of([4, 4, 4], [True] * 3, loss_agg_mode="seq-mean-token-sum-norm", fixed_length=4)
    )


def test_the_drift_is_zero_where_the_sampler_is_the_trained_policy() -> None:
    assert losses_of([[0.0, 0.0]], [1.0]).approx_kl.tolist() == [[0.0, 0.0]]
    assert losses_of([[0.2]], [1.0]).approx_kl.item() == pytest.approx(math.exp(0.2) - 0.2 - 1, rel=1e-5)


def expected(sampler: torch.Tensor, per_token: torch.Tensor) -> torch.Tensor:
    """The mean over tokens that the sampler draws, exact: every token of the vocabulary once, by its probability."""
    return (sampler.exp() * per_token.squeeze(1)).sum()


def policies(*seeds: int) -> list[torch.Tensor]:
    """Log-probabilities over a vocabulary of five tokens."""
    return [torch.randn(5, generator=torch.Generator().manual_seed(seed)).log_softmax(0) for seed in seeds]


@pytest.mark.parametrize("fresh", [True, False])
@pytest.mark.parametrize("ratio", ["token", "sequence"])
def test_the_penalty_and_its_gradient_are_those_of_the_divergence_whoever_sampled(fresh: bool, ratio: Any) -> None:
    start, reference, proximal, behaviour = policies(0, 1, 2, 3)
    if fresh:
        proximal = behaviour = start
    logits = start.clone().requires_grad_()
    now = logits.log_softmax(0)
    each = token_losses(
        log_probs=now.unsqueeze(1),
        proximal=proximal.unsqueeze(1),
        behaviour=behaviour.unsqueeze(1),
        advantages=torch.zeros(5),
        mask=torch.ones(5, 1, dtype=torch.bool),
        objective=Objective(kl=1.0, ratio=ratio, importance_cap=1e6),
        reference=reference.unsqueeze(1),
    )
    penalty, divergence = expected(behaviour, each.losses), (now.exp() * (now - reference)).sum()
    assert penalty.item() == pytest.approx(divergence.item(), rel=1e-5)
    [found] = torch.autograd.grad(penalty, logits, retain_graph=True)
    [exact] = torch.autograd.grad(divergence, logits)
    assert found.tolist() == pytest.approx(exact.tolist(), abs=1e-5)


def test_the_drift_is_the_divergence_of_the_sampler_from_the_trained_policy() -> None:
    now, behaviour = policies(0, 3)
    rows = now.unsqueeze(1)
    each = token_losses(
        log_probs=rows,
        proximal=rows,
        behaviour=behaviour.unsqueeze(1),
        advantages=torch.zeros(5),
        mask=torch.ones(5, 1, dtype=torch.bool),
        objective=GRPO,
    )
    divergence = (behaviour.exp() * (behaviour - now)).sum()
    assert expected(behaviour, each.approx_kl).item() == pytest.approx(divergence.item(), rel=1e-5)


def test_a_stale_tokens_penalty_weighs_no_more_than_the_cap() -> None:
    kl = dataclasses.replace(GRPO, kl=0.1, importance_cap=2.0)
    each = losses_of([[0.0]], [0.0], behaviour=[[-3.0]], reference=[[math.log(0.5)]], objective=kl)
    assert each.losses.item() == pytest.approx(0.1 * 2.0 * (0.5 - math.log(0.5) - 1))
