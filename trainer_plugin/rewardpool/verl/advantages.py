"""The advantage estimator `rewardpool_process_grpo`: GRPO with a reward for each step of a response.

algorithm.adv_estimator=rewardpool_process_grpo

verl's own `grpo` adds up what the tokens of a response have, so that the rewards of its steps would become one number,
and a sum where the pool declares another aggregate. This one is DeepSeekMath's process supervision (arXiv:2402.03300,
section 4.1.3): the rewards of all steps of a group are normalised together, and a token's advantage is the sum of those
of the steps that end in it or after it. Deviation and epsilon are those of verl's `grpo`; where each response has one
step, so are the advantages.
"""

from collections import defaultdict
from typing import Any

import torch
from verl.trainer.ppo.core_algos import register_adv_est

NAME = "rewardpool_process_grpo"
# Stands for a step's reward of 0 in the tensor of rewards, where 0 means that no step ends in a token.
LEAST_REWARD = 1e-30


@register_adv_est(NAME)  # type: ignore[untyped-decorator]  # verl is not where types are checked
def process_grpo_advantage(
    token_level_rewards: torch.Tensor,
    response_mask: torch.Tensor,
    index: Any,
    config: Any = None,
    epsilon: float = 1e-6,
    **_of_verl: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the advantages, and once more as returns; verl calls it.

    Args:
        token_level_rewards: Other than 0 where a step ends, float32 (B, R). A response without any such token has one
            reward of 0, as an agent loop with a reward of its own gives it: its rewards are plain numbers.
        response_mask: 1 at tokens of the policy's, (B, R).
        index: What the responses to one prompt have in common, (B,).
        config: `algorithm` of the trainer's config.
        epsilon: Is added to the deviation.
        _of_verl: Not used.

    Returns:
        Twice the same, float32 (B, R).
    """
    by_deviation = config is None or config.get("norm_adv_by_std_in_grpo", True)
    rows_of: dict[Any, list[int]] = defaultdict(list)
    for row, group in enumerate(index):
        rows_of[group].append(row)
    with torch.no_grad():
        normalised = torch.zeros_like(token_level_rewards)
        for rows in rows_of.values():
            rewards = token_level_rewards[rows]
            steps = (rewards != 0) | _outcomes_of_zero(rewards, response_mask[rows])
            values = rewards[steps]
            if steps.any(dim=-1).sum() > 1:  # else there is nothing to compare with, and verl takes rewards as they are
                values = values - values.mean()
                if by_deviation:
                    values = values / (rewards[steps].std() + epsilon)
            elif by_deviation:
                values = values / (1.0 + epsilon)
            normalised[rows] = torch.zeros_like(rewards).masked_scatter(steps, values)
        advantages = normalised.flip(-1).cumsum(-1).flip(-1) * response_mask
    return advantages, advantages


def _outcomes_of_zero(rewards: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return where responses that have no other reward end: bool (B, R)."""
    tokens = torch.arange(rewards.shape[-1], device=rewards.device)
    last = torch.where(mask.bool(), tokens, -1).amax(dim=-1, keepdim=True)
    return (tokens == last) & (rewards == 0).all(dim=-1, keepdim=True)
