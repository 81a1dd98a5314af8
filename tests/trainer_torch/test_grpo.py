import math
from typing import Any

import pytest
import torch
from support import tiny_policy

from rewardpool.actor.data import Rollout
from rewardpool.actor.grpo import response_log_probs, rollout_losses, token_batch
from rewardpool.actor.rollout import RolloutEngine

CPU = torch.device("cpu")


def rollout(prompt: list[int], response: list[int]) -> Rollout:
    return Rollout(group=0, member=0, prompt_ids=prompt, response_ids=response, ended=True)


def losses_of(ratios: list[list[float]], advantages: list[float], **options: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Losses where each token's probability has changed by a ratio since it was sampled."""
    log_probs = torch.log(torch.tensor(ratios))
    mask = torch.ones_like(log_probs, dtype=torch.bool)
    return rollout_losses(log_probs, torch.zeros_like(log_probs), torch.tensor(advantages), mask, clip=0.2, **options)


@pytest.mark.parametrize(
    ("advantage", "ratio", "objective"),
    [
        (2.0, 1.0, 2.0),
        (2.0, 1.1, 2.2),
        (2.0, 1.5, 2.4),  # a good token is pushed up no further than 1.2
        (2.0, 0.5, 1.0),  # and is pushed back however far it has fallen
        (-2.0, 0.5, -1.6),  # a bad token is pushed down no further than 0.8
        (-2.0, 1.5, -3.0),
    ],
)
def test_the_objective_of_a_token_is_the_clipped_one(advantage: float, ratio: float, objective: float) -> None:
    losses, _ = losses_of([[ratio]], [advantage])
    assert losses.tolist() == pytest.approx([-objective])


def test_a_rollouts_loss_is_the_mean_over_its_own_tokens() -> None:
    log_probs = torch.log(torch.tensor([[1.1, 1.0, 99.0]]))
    mask = torch.tensor([[True, True, False]])
    losses, clipped = rollout_losses(log_probs, torch.zeros(1, 3), torch.tensor([1.0]), mask, clip=0.2)
    assert losses.tolist() == pytest.approx([-(1.1 + 1.0) / 2])
    assert clipped.tolist() == [0.0]


def test_the_clipped_share_counts_tokens_whose_gradient_is_cut() -> None:
    _, clipped = losses_of([[1.5, 0.5], [1.5, 0.5]], [1.0, -1.0])
    assert clipped.tolist() == [0.5, 0.5]


def test_the_gradient_is_that_of_a_hand_computation() -> None:
    # One token of two rollouts: d/dx of -exp(x - b) * A is -ratio * A; the clipped one has none. Means over 2 tokens.
    log_probs = torch.log(torch.tensor([[1.1, 1.5], [0.9, 0.5]])).requires_grad_()
    mask = torch.ones(2, 2, dtype=torch.bool)
    losses, _ = rollout_losses(log_probs, torch.zeros(2, 2), torch.tensor([2.0, -1.0]), mask, clip=0.2)
    losses.sum().backward()
    assert log_probs.grad is not None
    assert log_probs.grad.flatten().tolist() == pytest.approx([-1.1 * 2 / 2, 0.0, 0.9 * 1 / 2, 0.0])


def test_the_divergence_from_the_reference_is_the_papers_estimate() -> None:
    reference = torch.log(torch.tensor([[0.5]]))
    losses, _ = losses_of([[1.0]], [0.0], reference=reference, kl=0.1)
    assert losses.tolist() == pytest.approx([0.1 * (0.5 - math.log(0.5) - 1)])


def test_log_probs_are_those_of_each_response_alone_whatever_it_is_padded_to(policy: Any) -> None:
    together = [rollout([1, 2, 3], [4, 5, tiny_policy.END]), rollout([6], [7, 8, 9, 1, tiny_policy.END])]
    with torch.no_grad():
        padded = response_log_probs(policy, token_batch(together, pad_id=tiny_policy.PAD, device=CPU), temperature=0.7)
        for row, single in zip(padded, together, strict=True):
            alone = response_log_probs(
                policy, token_batch([single], pad_id=tiny_policy.PAD, device=CPU), temperature=0.7
            )
            assert torch.allclose(row[: len(single.response_ids)], alone[0], atol=1e-5)


def test_log_probs_are_the_ones_that_were_sampled_from(policy: Any) -> None:
    """Sampling at temperature 0.01 takes the likeliest token; its probability at that temperature is 1."""
    engine = RolloutEngine(policy, tiny_policy.make_tokenizer(), max_new_tokens=6, temperature=0.01)
    [sampled] = engine.generate([[1, 2]], group_size=1, seed=0, on_end=lambda rollout: None)
    batch = token_batch([sampled], pad_id=tiny_policy.PAD, device=CPU)
    with torch.no_grad():
        log_probs = response_log_probs(policy, batch, temperature=0.01)
    assert log_probs[batch.response_mask].tolist() == pytest.approx([0.0] * len(sampled.response_ids), abs=1e-2)
