"""The loss of GRPO (Shao et al. 2024, DeepSeekMath, arXiv:2402.03300, equation 3), on one rollout after another.

For a rollout of tokens o_1..o_T with advantage A, and the ratio of its token's probability now to then,
rho_t = pi(o_t) / pi_behaviour(o_t):

    loss = -1/T * sum_t [ min(rho_t * A, clip(rho_t, 1 - e, 1 + e) * A) - beta * KL_t ]

The clip is PPO's (Schulman et al. 2017, arXiv:1707.06347). KL_t to a reference policy is estimated as in equation 4 of
the paper, pi_ref/pi - log(pi_ref/pi) - 1, which is unbiased and never negative; beta is 0 by default.

Shapes: B rollouts, P columns of left-padded prompt, R columns of right-padded response.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from rewardpool.actor.data import Rollout


@dataclass(frozen=True, kw_only=True)
class TokenBatch:
    """Rollouts as tensors.

    Attributes:
        input_ids: int64 (B, P + R).
        attention_mask: int64 (B, P + R), 1 at tokens and 0 at padding.
        position_ids: int64 (B, P + R), counted from each prompt's first token.
        response_mask: bool (B, R), True at response tokens.
    """

    input_ids: torch.Tensor
    attention_mask: torch.Tensor
    position_ids: torch.Tensor
    response_mask: torch.Tensor


def token_batch(rollouts: Sequence[Rollout], *, pad_id: int, device: torch.device) -> TokenBatch:
    """Return the rollouts padded so that every response starts in the same column."""
    prompt_width = max(len(rollout.prompt_ids) for rollout in rollouts)
    response_width = max(len(rollout.response_ids) for rollout in rollouts)
    ids = torch.full((len(rollouts), prompt_width + response_width), pad_id, dtype=torch.int64)
    mask = torch.zeros_like(ids)
    for row, rollout in enumerate(rollouts):
        first, last = prompt_width - len(rollout.prompt_ids), prompt_width + len(rollout.response_ids)
        ids[row, first:last] = torch.tensor([*rollout.prompt_ids, *rollout.response_ids])
        mask[row, first:last] = 1
    return TokenBatch(
        input_ids=ids.to(device),
        attention_mask=mask.to(device),
        position_ids=(mask.cumsum(dim=1) - 1).clamp(min=0).to(device),
        response_mask=mask[:, prompt_width:].bool().to(device),
    )


def response_log_probs(model: Any, batch: TokenBatch, *, temperature: float) -> torch.Tensor:
    """Return the log-probability of each response token as it was sampled, float32 (B, R); padding holds noise."""
    width = batch.response_mask.shape[1]
    logits = model(
        input_ids=batch.input_ids,
        attention_mask=batch.attention_mask,
        position_ids=batch.position_ids,
        use_cache=False,
        # The logits of a position are about the next token: those of the response start one column before it.
        logits_to_keep=width + 1,
    ).logits[:, :-1]
    log_probs = torch.log_softmax(logits.float() / temperature, dim=-1)
    targets = batch.input_ids[:, -width:].unsqueeze(-1)
    return log_probs.gather(dim=-1, index=targets).squeeze(-1)


def rollout_losses(
    log_probs: torch.Tensor,
    behaviour: torch.Tensor,
    advantages: torch.Tensor,
    mask: torch.Tensor,
    *,
    clip: float,
    reference: torch.Tensor | None = None,
    kl: float = 0.0,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the loss of each rollout, float32 (B,), and the share of its tokens where the clip took hold, (B,).

    Args:
        log_probs: Of the response tokens under the policy that is trained, float32 (B, R); gradients flow here.
        behaviour: The same under the policy that sampled them, float32 (B, R).
        advantages: float32 (B,).
        mask: bool (B, R), True at response tokens; what stands elsewhere has no influence.
        clip: e above.
        reference: The same under the reference policy, float32 (B, R); needed where `kl` is not 0.
        kl: beta above.
    """
    ratio = torch.exp((log_probs - behaviour).masked_fill(~mask, 0.0))
    advantage = advantages.unsqueeze(1)
    unclipped, clipped = ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage
    token_losses = -torch.minimum(unclipped, clipped)
    if reference is not None:
        gap = (reference - log_probs).masked_fill(~mask, 0.0)
        token_losses = token_losses + kl * (torch.exp(gap) - gap - 1)
    lengths = mask.sum(dim=1)
    losses = (token_losses * mask).sum(dim=1) / lengths
    clipped_share = ((clipped < unclipped) & mask).sum(dim=1) / lengths
    return losses, clipped_share
