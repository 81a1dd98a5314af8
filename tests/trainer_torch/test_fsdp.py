import dataclasses
import math
from typing import Any

import pytest
import torch
from support import tiny_policy, update_job
from support.torchrun import RanksDid

from rewardpool.errors import ConfigError
from rewardpool_train.actor.fsdp import recompute_activations
from rewardpool_train.actor.grpo import token_losses
from rewardpool_train.actor.tokens import compute_log_probs
from rewardpool_train.objective import Objective


@pytest.fixture(scope="module")
def updated(ranks_did: dict[int, RanksDid]) -> dict[int, Any]:
    """What came of each update, by the number of ranks."""
    return {ranks: did.results["updates"] for ranks, did in ranks_did.items()}


def close(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor], rtol: float = 1e-4) -> bool:
    assert first.keys() == second.keys()
    return all(torch.allclose(first[name], second[name], atol=1e-6, rtol=rtol) for name in first)


def plain_gradients(objective: Objective) -> dict[str, torch.Tensor]:
    """Gradients of the unsharded model, one rollout at a time, with the aggregations' formulas written out."""
    policy, reference = tiny_policy.make_policy(seed=0), tiny_policy.make_policy(seed=7)
    scored = [rated for rated in update_job.rated_rollouts() if rated.advantage is not None]
    tokens = sum(len(rated.rollout.response_ids) for rated in scored)
    for rated in scored:
        length = len(rated.rollout.response_ids)
        [reference_log_probs] = compute_log_probs(reference, [rated.rollout], forward=update_job.FORWARD)
        each = token_losses(
            log_probs=update_job.FORWARD.log_probs(policy, [rated.rollout]),
            proximal=rated.proximal.unsqueeze(0),
            behaviour=rated.behaviour.unsqueeze(0),
            advantages=torch.tensor([rated.advantage]),
            mask=torch.ones(1, length, dtype=torch.bool),
            objective=objective,
            reference=reference_log_probs.unsqueeze(0),
        )
        divisor = {
            "seq-mean-token-mean": length * len(scored),
            "token-mean": tokens,
            "seq-mean-token-sum-norm": objective.fixed_length * len(scored),
        }
        (each.losses.sum() / divisor[objective.loss_agg_mode]).backward()
    return {name: weight.grad for name, weight in policy.named_parameters() if weight.grad is not None}


@pytest.mark.parametrize("way", update_job.WAYS)
def test_two_ranks_get_the_gradient_of_one(updated: dict[int, Any], way: str) -> None:
    tolerance = 0.1 if way == "bfloat16" else 1e-4  # whom a rollout is padded with moves bfloat16's last bits
    one, two = updated[1][way]["gradients"], updated[2][way]["gradients"]
    length = math.sqrt(sum((gradient**2).sum().item() for gradient in one.values()))
    apart = math.sqrt(sum(((one[name] - two[name]) ** 2).sum().item() for name in one))
    assert apart < tolerance * length


@pytest.mark.parametrize("way", ["plain", "token", "fixed_length", "sequence"])
def test_the_sharded_gradient_is_that_of_the_plain_model(updated: dict[int, Any], way: str) -> None:
    objective = update_job.WAYS[way].get("objective", update_job.OBJECTIVE)
    assert close(plain_gradients(objective), updated[2][way]["gradients"])


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("way", ["whole", "packed", "recomputed"])
def test_how_rollouts_go_through_the_model_does_not_change_the_gradient(
    updated: dict[int, Any], way: str, ranks: int
) -> None:
    assert close(updated[ranks]["plain"]["gradients"], updated[ranks][way]["gradients"])


def test_a_rank_without_rollouts_keeps_up_with_one_that_has_them_all(updated: dict[int, Any]) -> None:
    assert close(updated[1]["plain"]["gradients"], updated[2]["uneven"]["gradients"])


def test_bfloat16_layers_get_a_gradient_near_that_of_float32(updated: dict[int, Any]) -> None:
    exact, coarse = updated[1]["plain"]["gradients"], updated[1]["bfloat16"]["gradients"]
    assert {gradient.dtype for gradient in coarse.values()} == {torch.float32}
    first, second = (torch.cat([g.flatten() for g in gradients.values()]) for gradients in (exact, coarse))
    assert torch.nn.functional.cosine_similarity(first, second, dim=0).item() > 0.99


def test_the_log_probs_of_now_are_those_of_the_plain_model(updated: dict[int, Any]) -> None:
    rollouts = [rated.rollout for rated in update_job.rated_rollouts()]
    plain = compute_log_probs(tiny_policy.make_policy(seed=0), rollouts, forward=update_job.FORWARD)
    for way in ("plain", "packed"):
        for expected, found in zip(plain, updated[1][way]["log_probs"], strict=True):
            assert torch.allclose(expected, found, atol=1e-5)


def test_the_rollout_copy_gets_the_updated_weights(updated: dict[int, Any]) -> None:
    before = dict(tiny_policy.make_policy(seed=0).named_parameters())
    one, two = updated[1]["plain"]["weights"], updated[2]["plain"]["weights"]
    assert close(one, two)
    moved = [(two[name] - before[name]).abs().max().item() for name in before]
    assert max(moved) == pytest.approx(1e-2, rel=1e-2)  # AdamW's first step is the learning rate


def test_the_figures_are_over_all_ranks(updated: dict[int, Any]) -> None:
    one, two = updated[1]["plain"]["stats"], updated[2]["plain"]["stats"]
    assert dataclasses.astuple(two) == pytest.approx(dataclasses.astuple(one), rel=1e-4)


def test_a_mini_batch_without_any_score_takes_no_step(updated: dict[int, Any]) -> None:
    assert updated[2]["plain"]["nothing"] is None


def test_a_policy_with_dropout_cannot_have_its_activations_recomputed(policy: Any) -> None:
    policy.config.attention_dropout = 0.1
    with pytest.raises(ConfigError, match=r"update\.activation_checkpointing.*attention_dropout"):
        recompute_activations(policy)
