"""The loss of GRPO (Shao et al. 2024, DeepSeekMath, arXiv:2402.03300) and of its common variants, token by token.

`token_losses` has the loss of a token, `rollout_weights` the weights of their sum. For token t of rollout i, with
advantage A_i (A_it, one per token, if steps have rewards), there are three policies:

    pi            the trained policy; gradients only flow through it
    pi_prox       the proximal policy: the trained one when its step began, before the step's first update
    pi_behave     the policy that sampled the token; older than pi_prox if rollouts are stale

    rho = pi(o_t) / pi_prox(o_t)              the clipped ratio: how far this step's updates have moved the token
    w   = min(pi_prox(o_t) / pi_behave(o_t), importance_cap)

    loss_t = -w * min(rho * A_i, clip(rho, 1 - clip_low, 1 + clip_high) * A_i)
             + kl * w * rho * KL_t + distillation * D_t

`w` corrects for the policy that sampled; the clip only limits the step. Separating the two is decoupled PPO (Hilton et
al. 2021, arXiv:2110.00641, section 3; for language models AReaL, arXiv:2505.24298, equation 5). On fresh rollouts
pi_prox is pi_behave, w is 1, and this is PPO's clip (Schulman et al. 2017, arXiv:1707.06347). The cap is truncated
importance sampling: without it, a few tokens that were unlikely then and are likely now dominate the gradient.

KL_t to a reference policy is k3, pi_ref/pi - log(pi_ref/pi) - 1, of GRPO's equation 4: never negative, and unbiased
for tokens that pi itself sampled. These were sampled by pi_behave, so each weighs w * rho = pi / pi_behave, with a
gradient through rho. Then the term is an unbiased estimate of the divergence at each token, and so is its gradient,
which that of k3 alone is not even on fresh rollouts (DeepSeek-V3.2, arXiv:2512.02556, equation 7). It is unbiased up to
the cap, and given the tokens before, whose probability it does not correct, as w does not.

Two limits are optional. `dual_clip` bounds the loss of a token of a bad response that has become likelier anyway, to
c * A_i (dual-clip PPO, Ye et al. 2020, arXiv:1912.09729, equation 5); `kl_clamp` bounds KL_t.

D_t is the divergence from a teacher over its most likely tokens (`top_divergence`): no estimate from the sampled token,
and so without w. A teacher's log-probability of the sampled token alone is part of A_it (`learner`).

Ratios are clamped to exp(-20) and exp(20), with no gradient beyond: in float32 exp(89) is infinite, and a rollout of
weight 0 would then make the whole loss NaN.

With the sequence ratio of GSPO (Zheng et al. 2025, arXiv:2507.18071, equation 7) both ratios are geometric means over
the rollout's tokens, the same for each of them. The weight of KL_t stays that of each token.

Shapes: B rollouts, R columns of right-padded response.
"""

from dataclasses import dataclass

import torch

from rewardpool_train.objective import Objective, Ratio

LEAST_REST = 1e-6  # probability of all tokens beside the k likeliest; float32 rounds sums to 1 by 1e-7
MAX_GAP = 20.0  # largest difference of two log-probabilities, in nats; exp(20) is 5e8


@dataclass(frozen=True, kw_only=True)
class TokenLosses:
    """Losses of tokens, with their statistics; all of shape (B, R), and 0 or False outside the responses.

    Attributes:
        losses: float32, with gradients.
        clipped: bool, True where a clip is active, so the token only has the gradient of the divergence.
        capped: bool, True where the importance weight was capped.
        approx_kl: float32, the estimate k3 of the divergence of pi_behave from pi: how far off-policy the token is. It
            is unbiased in this direction, because pi_behave sampled the token.
    """

    losses: torch.Tensor
    clipped: torch.Tensor
    capped: torch.Tensor
    approx_kl: torch.Tensor


def token_losses(
    *,
    log_probs: torch.Tensor,
    proximal: torch.Tensor,
    behaviour: torch.Tensor,
    advantages: torch.Tensor,
    mask: torch.Tensor,
    objective: Objective,
    reference: torch.Tensor | None = None,
    teacher_divergence: torch.Tensor | None = None,
) -> TokenLosses:
    """Return the loss of each response token.

    Args:
        log_probs: Log-probabilities of the response tokens under the trained policy, float32 (B, R), with gradients.
        proximal: Log-probabilities under pi_prox, float32 (B, R).
        behaviour: Log-probabilities under pi_behave, float32 (B, R).
        advantages: float32 (B,); or (B, R), one per token, if steps have rewards.
        mask: bool (B, R), True at response tokens; other values have no influence.
        reference: Log-probabilities under the reference policy, float32 (B, R); required if `objective.kl` is not 0.
        teacher_divergence: Divergence of each token from a teacher, see `top_divergence`; required if
            `objective.distillation` is not 0.
    """
    ratio = _ratio(log_probs - proximal, mask, objective.ratio)
    importance = _ratio(proximal - behaviour, mask, objective.ratio)
    advantage = advantages.unsqueeze(1) if advantages.dim() == 1 else advantages
    unclipped = ratio * advantage
    gain = torch.minimum(unclipped, ratio.clamp(1 - objective.clip_low, 1 + objective.clip_high) * advantage)
    clipped = gain < unclipped
    if objective.dual_clip is not None:
        least = torch.where(advantage < 0, objective.dual_clip * advantage, -torch.inf)
        clipped = clipped | (gain < least)
        gain = torch.maximum(gain, least)
    losses = -importance.clamp(max=objective.importance_cap) * gain
    if reference is not None:
        kl = divergence(log_probs, reference, mask).clamp(max=objective.kl_clamp or torch.inf)
        sampled = _ratio(proximal - behaviour, mask, "token").clamp(max=objective.importance_cap)
        moved = _ratio(log_probs - proximal, mask, "token")
        losses = losses + objective.kl * sampled * moved * kl
    if teacher_divergence is not None:
        losses = losses + objective.distillation * teacher_divergence
    return TokenLosses(
        losses=losses.masked_fill(~mask, 0.0),
        clipped=clipped & mask,
        capped=(importance > objective.importance_cap) & mask,
        approx_kl=divergence(behaviour, log_probs.detach(), mask),
    )


def _ratio(gap: torch.Tensor, mask: torch.Tensor, ratio: Ratio) -> torch.Tensor:
    gap = gap.masked_fill(~mask, 0.0)
    if ratio == "sequence":
        gap = (gap.sum(dim=1, keepdim=True) / mask.sum(dim=1, keepdim=True).clamp(min=1)).expand_as(gap)
    return torch.exp(gap.clamp(-MAX_GAP, MAX_GAP))


def divergence(log_probs: torch.Tensor, other: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return k3, the estimate of each token's divergence from another policy (Schulman 2020, "Approximating KL
    divergence"): unbiased for tokens sampled from `log_probs`, never negative, 0 outside the mask; float32 (B, R).
    """
    gap = (other - log_probs).masked_fill(~mask, 0.0).clamp(-MAX_GAP, MAX_GAP)
    return torch.exp(gap) - gap - 1


def top_divergence(log_probs: torch.Tensor, teacher: torch.Tensor) -> torch.Tensor:
    """Return the divergence of each token's distribution from a teacher's, with gradients; float32 (B, R).

    It is exact for k tokens and the remainder as one more, D = sum of pi * log(pi / pi_teacher), and so at most that of
    the whole distributions (data processing inequality).

    Args:
        log_probs: Log-probabilities of k different tokens under the trained policy, float32 (B, R, k).
        teacher: Those of the same tokens under the teacher, float32 (B, R, k).
    """
    # Rounding may leave a remainder of 0 or less.
    rest, teacher_rest = ((1 - one.exp().sum(dim=-1)).clamp(min=LEAST_REST) for one in (log_probs, teacher))
    within = (log_probs.exp() * (log_probs - teacher)).sum(dim=-1)
    return within + rest * (rest.log() - teacher_rest.log())


def rollout_weights(
    lengths: torch.Tensor, scored: torch.Tensor, *, rollouts: float, tokens: float, objective: Objective
) -> torch.Tensor:
    """Return the weight of each token of a rollout in the mini-batch's loss, float32 (B,).

    The weights refer to the mini-batch of all ranks, so the sum of weighted losses over micro-batches and ranks is the
    loss, however the rollouts are divided.

    Args:
        lengths: Response tokens of each rollout, (B,).
        scored: bool (B,); a rollout without a score weighs nothing.
        rollouts: N, the number of scored rollouts of the mini-batch on all ranks.
        tokens: T, the number of their response tokens.
        objective: Its loss_agg_mode: `seq-mean-token-mean` 1 / (N * length), `token-mean` 1 / T,
            `seq-mean-token-sum-norm` 1 / (N * fixed_length).
    """
    if objective.loss_agg_mode == "seq-mean-token-mean":
        weights = 1.0 / (rollouts * lengths.clamp(min=1).float())
    elif objective.loss_agg_mode == "token-mean":
        weights = torch.full_like(lengths, 1.0 / tokens, dtype=torch.float32)
    else:
        weights = torch.full_like(lengths, 1.0 / (rollouts * objective.fixed_length), dtype=torch.float32)
    return weights * scored
