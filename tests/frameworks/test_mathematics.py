"""The trainer's formulas beside those of verl and TRL, which are run on the same numbers.

`-s` shows the largest differences.
"""

import math
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import datasets
import numpy as np
import pytest
import torch
import trl
from support import tiny_policy
from verl.trainer.ppo.core_algos import compute_grpo_outcome_advantage, get_policy_loss_fn, kl_penalty
from verl.workers.config import ActorConfig

from rewardpool_train.actor.grpo import divergence, rollout_weights, token_losses
from rewardpool_train.advantages import AdvantageScale, group_advantages
from rewardpool_train.objective import Objective

ROWS, WIDTH = 32, 24
VERLS: dict[str, Any] = {"importance_cap": 2.0, "dual_clip": 3.0}
"""What verl does by default and the trainer where it is asked to."""

_differences: dict[str, float] = {}


@pytest.fixture(scope="module", autouse=True)
def shown() -> Iterator[None]:
    yield
    for name, difference in _differences.items():
        print(f"\n{name}: {difference:.1e}", end="")


def note(name: str, ours: torch.Tensor, theirs: torch.Tensor) -> float:
    """Note the largest relative difference, and return it."""
    difference = ((ours - theirs).abs() / theirs.abs().clamp(min=1e-6)).max().item()
    _differences[name] = max(difference, _differences.get(name, 0.0))
    return difference


class Case:
    """Tokens that have moved from almost nothing to beyond all clips, in responses of any length."""

    def __init__(self, seed: int) -> None:
        random = torch.Generator().manual_seed(seed)
        lengths = torch.randint(1, WIDTH + 1, (ROWS,), generator=random)
        self.mask = torch.arange(WIDTH) < lengths.unsqueeze(1)
        self.lengths = lengths
        self.before = -3 * torch.rand(ROWS, WIDTH, generator=random)
        # Of whole responses too, so that GSPO's clip takes hold in some and not in others.
        moved = 0.5 * torch.randn(ROWS, WIDTH, generator=random) ** 3 + 3e-4 * torch.randn(ROWS, 1, generator=random)
        self.now = self.before + moved * (torch.arange(ROWS) % 2).unsqueeze(1) + 3e-4 * (moved > 0)
        self.reference = self.before + torch.randn(ROWS, WIDTH, generator=random)
        self.advantages = torch.randn(ROWS, generator=random)

    def ours(self, objective: Objective, *, reference: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the loss and its gradient."""
        now = self.now.clone().requires_grad_()
        each = token_losses(
            log_probs=now,
            proximal=self.before,
            behaviour=self.before,
            advantages=self.advantages,
            mask=self.mask,
            objective=objective,
            reference=self.reference if reference else None,
        )
        weights = rollout_weights(
            self.lengths,
            torch.ones(ROWS, dtype=torch.bool),
            rollouts=ROWS,
            tokens=int(self.mask.sum()),
            objective=objective,
        )
        loss = (each.losses.sum(dim=1) * weights).sum()
        loss.backward()
        assert now.grad is not None
        return loss.detach(), now.grad

    def verls(self, objective: Objective, **config: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """Return verl's loss and its gradient."""
        now = self.now.clone().requires_grad_()
        actor = ActorConfig(
            strategy="fsdp",
            rollout_n=4,
            ppo_micro_batch_size_per_gpu=1,
            clip_ratio_low=objective.clip_low,
            clip_ratio_high=objective.clip_high,
            loss_scale_factor=WIDTH,
            **config,
        )
        actor.global_batch_info["loss_scale_factor"] = WIDTH
        loss, _ = get_policy_loss_fn("gspo" if objective.ratio == "sequence" else "vanilla")(
            old_log_prob=self.before,
            log_prob=now,
            advantages=self.advantages.unsqueeze(1).expand(ROWS, WIDTH),
            response_mask=self.mask.float(),
            loss_agg_mode=objective.loss_agg_mode,
            config=actor,
        )
        loss.backward()
        assert now.grad is not None
        return loss.detach(), now.grad

    def trls(self, objective: Objective, *, reference: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
        """Return TRL's loss and its gradient, by the method of its trainer."""
        now = self.now.clone().requires_grad_()
        names = {"seq-mean-token-mean": "grpo", "token-mean": "bnpo", "seq-mean-token-sum-norm": "dr_grpo"}
        trainer = SimpleNamespace(
            _get_per_token_logps_and_entropies=lambda *_, **__: (now, torch.zeros_like(now), None),
            _entropy_bonus_enabled=False,
            _metrics=defaultdict(lambda: defaultdict(list)),
            accelerator=SimpleNamespace(gather=lambda one: one, reduce=lambda one, reduction: one, num_processes=1),
            args=SimpleNamespace(delta=objective.dual_clip, use_bias_correction_kl=True),
            aux_loss_enabled=False,
            beta=objective.kl if reference else 0.0,
            current_gradient_accumulation_steps=1,
            epsilon_high=objective.clip_high,
            epsilon_low=objective.clip_low,
            importance_sampling_level=objective.ratio,
            loss_type=names[objective.loss_agg_mode],
            max_completion_length=WIDTH,
            model=SimpleNamespace(training=True),
            off_policy_mask_threshold=None,
            top_entropy_quantile=1.0,
            use_vllm=False,
        )
        ids, mask = torch.zeros(ROWS, WIDTH, dtype=torch.int64), self.mask.long()
        given = {
            "prompt_ids": ids,
            "prompt_mask": mask,
            "completion_ids": ids,
            "completion_mask": mask,
            "advantages": self.advantages,
            "old_per_token_logps": self.before,
            "ref_per_token_logps": self.reference,
        }
        loss = trl.GRPOTrainer._compute_loss(trainer, None, given)
        loss.backward()
        assert now.grad is not None
        return loss.detach(), now.grad


OBJECTIVES = {
    "GRPO": {},
    "Dr. GRPO": {"loss_agg_mode": "seq-mean-token-sum-norm", "fixed_length": WIDTH},
    "DAPO": {"loss_agg_mode": "token-mean", "clip_high": 0.28},
    "GSPO": {"ratio": "sequence", "clip_low": 3e-4, "clip_high": 4e-4},
}


@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.parametrize("seed", range(5))
def test_loss_and_gradient_are_verls(name: str, seed: int) -> None:
    case = Case(seed)
    objective = Objective(**OBJECTIVES[name], **(VERLS if name != "GSPO" else {}))  # verl's GSPO has no dual clip
    ours, theirs = case.ours(objective), case.verls(objective)
    assert note(f"{name}: loss, verl", ours[0], theirs[0]) < 1e-5
    assert note(f"{name}: gradient, verl", ours[1], theirs[1]) < 1e-5


@pytest.mark.parametrize(
    ("name", "reference"),
    # TRL weighs GSPO's divergence with the sequence's ratio, and the trainer with each token's.
    [*((name, False) for name in OBJECTIVES), *((name, True) for name in OBJECTIVES if name != "GSPO")],
)
@pytest.mark.parametrize("dual_clip", [None, 3.0])
def test_loss_and_gradient_are_trls(name: str, reference: bool, dual_clip: float | None) -> None:
    case = Case(0)
    objective = Objective(**OBJECTIVES[name], dual_clip=dual_clip, kl=0.04)
    ours, theirs = (of(objective, reference=reference) for of in (case.ours, case.trls))
    name += " with a divergence" if reference else ""
    assert note(f"{name}: loss, TRL", ours[0], theirs[0]) < 1e-5
    assert note(f"{name}: gradient, TRL", ours[1], theirs[1]) < 1e-5


def test_the_cases_are_clipped_in_every_way() -> None:
    """Else the tests above would compare less than they say."""
    case = Case(0)
    ratio = (case.now - case.before).exp()[case.mask]
    good = case.advantages.unsqueeze(1).expand(ROWS, WIDTH)[case.mask] > 0
    assert ((ratio > 1.28) & good).any()
    assert ((ratio < 0.8) & ~good).any()
    assert ((ratio > 3) & ~good).any()
    assert ((ratio > 0.8) & (ratio < 1.2)).any()


def test_k3_is_verls_where_it_is_clamped() -> None:
    now, reference = torch.zeros(1, 5), torch.tensor([[-30.0, -1.0, 0.5, 3.0, 100.0]])
    theirs = kl_penalty(now, reference, "low_var_kl")
    ours = divergence(now, reference, torch.ones(1, 5, dtype=torch.bool)).clamp(max=10.0)
    assert note("k3, verl", ours, theirs) < 1e-6


SPREADS = [10.0, 1.0, 1e-2, 1e-3]


@pytest.mark.parametrize("by_deviation", [True, False])
@pytest.mark.parametrize("spread", SPREADS)
def test_advantages_are_verls_but_for_the_epsilon(by_deviation: bool, spread: float) -> None:
    scores = spread * np.random.default_rng(0).standard_normal(8)
    rewards = torch.zeros(8, 3)
    rewards[:, 2] = torch.tensor(scores)
    theirs, _ = compute_grpo_outcome_advantage(
        rewards, torch.ones(8, 3), np.zeros(8), norm_adv_by_std_in_grpo=by_deviation
    )
    scale: AdvantageScale = "group_sample_std" if by_deviation else "none"
    ours = torch.tensor([one or 0.0 for one in group_advantages(scores.tolist(), scale=scale)])
    epsilon = 1e-4 / np.std(scores, ddof=1) if by_deviation else 0.0
    name = f"advantages of a spread of {spread:g}, verl, {'by deviation' if by_deviation else 'plain'}"
    assert note(name, ours, theirs[:, 0]) < epsilon + 1e-5


def lengths(completions: list[Any], **_: Any) -> list[float]:
    return [len(completion[0]["content"]) ** 2 / 7 for completion in completions]


def test_advantages_are_those_that_trls_trainer_computes(tmp_path: Path) -> None:
    data = datasets.Dataset.from_dict({"prompt": [[{"role": "user", "content": digit}] for digit in "12345678"]})
    arguments = trl.GRPOConfig(
        output_dir=str(tmp_path / "out"),
        max_steps=2,
        per_device_train_batch_size=16,
        num_generations=8,
        max_completion_length=24,
        report_to=[],
        save_strategy="no",
        use_cpu=True,
        bf16=False,
    )
    trainer = trl.GRPOTrainer(
        model=tiny_policy.make_policy(seed=0),
        reward_funcs=[lengths],
        args=arguments,
        train_dataset=data,
        processing_class=tiny_policy.make_tokenizer(),
    )
    trainer.train()
    rewards, theirs = list(trainer._logs["rewards"]["lengths"]), list(trainer._logs["advantages"])
    assert len(rewards) % 8 == 0
    assert len(set(rewards)) > 2
    ours = [
        advantage
        for start in range(0, len(rewards), 8)
        for advantage in group_advantages(rewards[start : start + 8], scale="group_sample_std")
    ]
    assert not any(advantage is None for advantage in ours)
    found = torch.tensor([one or 0.0 for one in ours])
    assert note("advantages, TRL", found, torch.tensor(theirs)) < 1e-5


def test_the_default_deviation_makes_advantages_of_eight_larger_than_theirs_by_seven_percent() -> None:
    scores = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0]
    by_population, by_sample = (group_advantages(scores, scale=scale) for scale in ("group_std", "group_sample_std"))
    assert by_population[0] is not None
    assert by_sample[0] is not None
    assert by_population[0] / by_sample[0] == pytest.approx(math.sqrt(8 / 7), rel=1e-4)
