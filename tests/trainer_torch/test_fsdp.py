import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from support import tiny_policy, update_job

from rewardpool.actor.grpo import response_log_probs, rollout_losses, token_batch

TESTS = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def updated(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Any]:
    """What update_job saved, by the number of ranks; both runs under torchrun, over gloo."""
    folder = tmp_path_factory.mktemp("updates")
    results = {}
    for ranks in (1, 2):
        file = folder / f"{ranks}.pt"
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
        run = subprocess.run(
            [*torchrun, "-m", "support.update_job", file],
            env={**os.environ, "PYTHONPATH": str(TESTS)},
            capture_output=True,
            text=True,
            timeout=180,
        )
        assert run.returncode == 0, run.stderr
        results[ranks] = torch.load(file, weights_only=False)
    return results


def close(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    assert first.keys() == second.keys()
    return all(torch.allclose(first[name], second[name], atol=1e-6, rtol=1e-4) for name in first)


def test_two_ranks_get_the_gradient_of_one(updated: dict[int, Any]) -> None:
    assert close(updated[1]["gradients"], updated[2]["gradients"])


def test_the_sharded_gradient_is_that_of_the_plain_model(updated: dict[int, Any]) -> None:
    policy, reference = tiny_policy.make_policy(seed=0), tiny_policy.make_policy(seed=7)
    scored = [rated for rated in update_job.rated_rollouts() if rated.advantage is not None]
    for rated in scored:
        batch = token_batch([rated.rollout], pad_id=tiny_policy.PAD, device=torch.device("cpu"))
        with torch.no_grad():
            reference_log_probs = response_log_probs(reference, batch, temperature=1.0)
        losses, _ = rollout_losses(
            response_log_probs(policy, batch, temperature=1.0),
            rated.behaviour.unsqueeze(0),
            torch.tensor([rated.advantage]),
            batch.response_mask,
            clip=update_job.OBJECTIVE.clip,
            reference=reference_log_probs,
            kl=update_job.OBJECTIVE.kl,
        )
        (losses.sum() / len(scored)).backward()
    plain = {name: weight.grad for name, weight in policy.named_parameters() if weight.grad is not None}
    assert close(plain, updated[2]["gradients"])


def test_the_rollout_copy_gets_the_updated_weights(updated: dict[int, Any]) -> None:
    before = dict(tiny_policy.make_policy(seed=0).named_parameters())
    assert close(updated[1]["weights"], updated[2]["weights"])
    moved = [(updated[2]["weights"][name] - before[name]).abs().max().item() for name in before]
    assert max(moved) == pytest.approx(1e-2, rel=1e-2)  # AdamW's first step is the learning rate


def test_the_figures_are_over_all_ranks(updated: dict[int, Any]) -> None:
    one, two = updated[1]["stats"], updated[2]["stats"]
    assert (two.loss, two.clipped, two.grad_norm) == pytest.approx((one.loss, one.clipped, one.grad_norm), rel=1e-4)


def test_a_mini_batch_without_any_score_takes_no_step(updated: dict[int, Any]) -> None:
    assert updated[2]["nothing"] is None
