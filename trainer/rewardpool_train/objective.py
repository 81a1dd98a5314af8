"""What an update aims at: GRPO and its common variants as one set of independent choices. Plain data, no torch.

A variant with a name is a few of these choices and nothing else, so each can also be made alone. `grpo` has the
formulas in code; docs/actor.md has them in writing.

| choice | decides | from |
|---|---|---|
| `only_informative` | whether groups whose scores are all equal count | DAPO, arXiv:2503.14476 |
| `advantage_scale` | what a score's distance from its group's mean is divided by | GRPO, arXiv:2402.03300; Dr. GRPO |
| `ratio` | what is clipped: each token's change of probability, or the whole response's | GSPO, arXiv:2507.18071 |
| `loss_agg_mode` | how much a token weighs | GRPO; DAPO; Dr. GRPO, arXiv:2503.20783 |
| `clip_low`, `clip_high` | how far the ratio may go | PPO, arXiv:1707.06347; DAPO's clip-higher |
| `importance_cap` | the most that a stale token weighs | decoupled PPO, arXiv:2110.00641; AReaL, arXiv:2505.24298 |
| `dual_clip` | the most that a bad response's token may lose | dual-clip PPO, arXiv:1912.09729 |
| `kl` | how strongly the policy is held to the reference | GRPO |
| `kl_clamp` | the most that a token's divergence counts | verl, OpenRLHF |
"""

from dataclasses import dataclass
from typing import Any, Literal

from rewardpool_train.advantages import AdvantageScale

LossAggMode = Literal["seq-mean-token-mean", "token-mean", "seq-mean-token-sum-norm"]
Ratio = Literal["token", "sequence"]
Algorithm = Literal["grpo", "dr_grpo", "dapo", "gspo"]


@dataclass(frozen=True, kw_only=True)
class Objective:
    """The choices of one job; the defaults are GRPO's, without a reference policy.

    Attributes:
        only_informative: Whether groups whose scores are all equal are left out of the mini-batch (DAPO).
        advantage_scale: `group_std` divides by the standard deviation of the group's scores, `group_sample_std` by that
            of a sample; `none` does not, so that a group that is almost of one mind is not blown up (Dr. GRPO).
        ratio: `token` clips every token by itself; `sequence` the geometric mean over the response (GSPO).
        loss_agg_mode: verl's names. `seq-mean-token-mean` averages over each response's tokens, then over responses, so
            that a token of a long response weighs less (GRPO); `token-mean` averages over all tokens of the mini-batch,
            on all ranks (DAPO); `seq-mean-token-sum-norm` divides the sum of tokens by responses times `fixed_length`
            (Dr. GRPO).
        fixed_length: In tokens; the length limit of responses. Used by `seq-mean-token-sum-norm` alone.
        clip_low: How far the ratio may fall below 1 before its gradient is cut.
        clip_high: How far it may rise above 1.
        dual_clip: The most that a token of a bad response that has become likelier loses, in units of its advantage, as
            it has no upper clip; None for no limit.
        importance_cap: The importance weight of a token is cut to this.
        kl: Weight of the divergence from the reference policy; 0 needs no reference.
        kl_clamp: A token's divergence counts as no more than this, in nats; None for no limit.
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


PRESETS: dict[Algorithm, dict[str, Any]] = {
    "grpo": {},
    "dr_grpo": {"advantage_scale": "none", "loss_agg_mode": "seq-mean-token-sum-norm"},
    "dapo": {"loss_agg_mode": "token-mean", "clip_high": 0.28, "only_informative": True, "dynamic_sampling_rounds": 9},
    "gspo": {"ratio": "sequence", "clip_low": 3e-4, "clip_high": 4e-4},
}
"""Fields of `update_config.UpdateConfig` that an algorithm sets where the config does not; the rest is GRPO's. The
numbers are those of the papers' experiments; DAPO's tells no bound of its rounds, and 9 after the first are what verl's
scripts for it allow."""
