"""Objective of an update: GRPO and its common variants as a set of independent choices. Plain data, no torch.

A named variant is a preset of these choices, so each choice can also be made alone. `grpo` implements the formulas, and
docs/actor.md explains them.

| choice | decides | from |
|---|---|---|
| `only_informative` | whether groups whose scores are all equal count | DAPO, arXiv:2503.14476 |
| `advantage_scale` | divisor of a score's distance from its group's mean | GRPO, arXiv:2402.03300; Dr. GRPO |
| `ratio` | clipped ratio: of each token, or of the whole response | GSPO, arXiv:2507.18071 |
| `loss_agg_mode` | weight of a token | GRPO; DAPO; Dr. GRPO, arXiv:2503.20783 |
| `clip_low`, `clip_high` | limits of the ratio | PPO, arXiv:1707.06347; DAPO's clip-higher |
| `importance_cap` | maximum weight of a stale token | decoupled PPO, arXiv:2110.00641; AReaL, arXiv:2505.24298 |
| `dual_clip` | maximum loss of a bad response's token | dual-clip PPO, arXiv:1912.09729 |
| `kl` | weight of the divergence from the reference | GRPO |
| `kl_clamp` | maximum divergence of a token | verl, OpenRLHF |
"""

from dataclasses import dataclass
from typing import Any, Literal

from rewardpool_train.advantages import AdvantageScale

LossAggMode = Literal["seq-mean-token-mean", "token-mean", "seq-mean-token-sum-norm"]
Ratio = Literal["token", "sequence"]
Algorithm = Literal["grpo", "dr_grpo", "dapo", "gspo"]


@dataclass(frozen=True, kw_only=True)
class Objective:
    """Choices of one job; the defaults are GRPO's, without a reference policy.

    Attributes:
        only_informative: Leave groups whose scores are all equal out of the mini-batch (DAPO).
        advantage_scale: `group_std` divides by the standard deviation of the group's scores, `group_sample_std` by that
            of a sample; `none` does not divide, so that groups with almost equal scores are not amplified (Dr. GRPO).
        ratio: `token` clips every token by itself; `sequence` clips the geometric mean over the response (GSPO).
        loss_agg_mode: verl's names. `seq-mean-token-mean` averages over each response's tokens, then over responses, so
            that a token of a long response weighs less (GRPO); `token-mean` averages over all tokens of the mini-batch,
            on all ranks (DAPO); `seq-mean-token-sum-norm` divides the sum of tokens by responses times `fixed_length`
            (Dr. GRPO).
        fixed_length: Length limit of responses, in tokens. Only used by `seq-mean-token-sum-norm`.
        clip_low: How far the ratio may fall below 1 before its gradient is cut.
        clip_high: How far it may rise above 1.
        dual_clip: Maximum loss of a token of a bad response that has become likelier, in units of its advantage, as it
            has no upper clip; None for no limit.
        importance_cap: Maximum importance weight of a token.
        kl: Weight of the divergence from the reference policy; 0 needs no reference.
        kl_clamp: Maximum divergence of a token, in nats; None for no limit.
        distillation: Weight of the divergence from a teacher over its most likely tokens; 0 needs no answers of it.
    """

    only_informative: bool = False
    advantage_scale: AdvantageScale = "group_std"
    ratio: Ratio = "token"
    loss_agg_mode: LossAggMode = "seq-mean-token-mean"
    fixed_length: int = 1
    clip_low: float = 0.2
    clip_high: float = 0.2
    dual_clip: float | None = None
    importance_cap: float = 5.0
    kl: float = 0.0
    kl_clamp: float | None = None
    distillation: float = 0.0


# Defaults of `update_config.UpdateConfig` by algorithm; the rest is GRPO's. The numbers are those of the papers'
# experiments. DAPO's paper has no limit of its rounds; verl's scripts for it allow 9 after the first.
PRESETS: dict[Algorithm, dict[str, Any]] = {
    "grpo": {},
    "dr_grpo": {"advantage_scale": "none", "loss_agg_mode": "seq-mean-token-sum-norm"},
    "dapo": {"loss_agg_mode": "token-mean", "clip_high": 0.28, "only_informative": True, "dynamic_sampling_rounds": 9},
    "gspo": {"ratio": "sequence", "clip_low": 3e-4, "clip_high": 4e-4},
}
