"""The section `update` of a training job's config."""

from typing import Annotated, Any

from pydantic import Field, model_validator

from rewardpool._rewards.score_noise import ScoreDtype
from rewardpool_train.advantages import AdvantageScale
from rewardpool_train.config_part import ConfigPart, Count, Positive
from rewardpool_train.objective import PRESETS, Algorithm, LossAggMode, Objective, Ratio
from rewardpool_train.pipeline.schedule import Order


class UpdateConfig(ConfigPart):
    """Training of the policy on a step's rollouts. docs/actor.md has the formulas and the papers."""

    groups_per_minibatch: Count = 4
    """Groups per mini-batch, over all ranks. One optimiser step is taken per mini-batch, as soon as that many groups
    are scored."""
    learning_rate: Positive = 1e-6
    """Learning rate of AdamW."""
    algorithm: Algorithm = "grpo"
    """Defaults of the fields from here to `dynamic_sampling_rounds`: the values used in the paper of that name."""
    advantage_scale: AdvantageScale = "group_std"
    """Divisor of a score's distance from its group's mean: the group's standard deviation, either that of a population
    (`group_std`) or that of a sample, as in verl and TRL (`group_sample_std`); or `none`."""
    score_dtype: ScoreDtype | None = None
    """Dtype that the reward model computes in. Scores of a group that differ by at most two steps of its numbers count
    as equal, and a step is added to their deviation if it is more than 1e-4. Default: the coarsest `spec.engine.dtype`
    of the reward's Discriminative pools, or float32 if none is set."""
    ratio: Ratio = "token"
    """Ratio that is clipped: each token's change of probability, or that of the whole response (the geometric mean of
    its tokens)."""
    loss_agg_mode: LossAggMode = "seq-mean-token-mean"
    """Aggregation of token losses: the mean of each response, then of all responses; the mean of all tokens of the
    mini-batch; or their sum, divided by responses times `rollout.max_new_tokens`."""
    clip_low: Annotated[float, Field(gt=0, lt=1)] = 0.2
    """Maximum decrease of a probability within a step before its gradient is cut, as a fraction."""
    clip_high: Annotated[float, Field(gt=0, lt=100)] = 0.2
    """Maximum increase of a probability within a step before its gradient is cut, as a fraction."""
    only_informative: bool = False
    """Leave groups whose scores are all equal out of the mini-batch's mean, where they would reduce the weight of the
    others. They have no gradient."""
    dynamic_sampling_rounds: Annotated[int, Field(ge=0, le=1000)] = 0
    """Maximum number of rounds per step in which groups whose scores are all equal are replaced by groups of other
    prompts before training. Those that remain after the last round are trained on. 0 replaces none; `fully_async`
    requires 0."""
    dual_clip: Annotated[float, Field(gt=1, lt=1e6)] | None = None
    """Maximum loss of a token of a bad response that has become likelier, in advantages. verl's default is 3. Default:
    no limit, as in TRL."""
    kl: Annotated[float, Field(ge=0)] = 0.0
    """Weight of the divergence from the policy that the job started with; 0 keeps no reference model in memory."""
    kl_clamp: Positive | None = None
    """Maximum divergence of a token, in nats; verl's k3 has 10. Default: no limit but exp(20)."""
    importance_cap: Positive = 5.0
    """Maximum importance weight of a token that is likelier now than when a stale policy sampled it; verl's and TRL's
    are 2 and 3."""
    max_grad_norm: Positive = 1.0
    """Maximum norm of the gradient; longer gradients are scaled down to it."""
    max_skipped_updates: Annotated[int, Field(ge=0, le=1000)] = 3
    """Maximum number of consecutive updates that are skipped because their gradient is NaN or infinite, as a single odd
    rollout can make it. One more ends the job."""
    micro_batch: Count = 64
    """Rollouts per forward and backward pass on one rank, if they are padded. It changes memory use, not the result."""
    pack_tokens: Annotated[int, Field(ge=0, le=10_000_000)] = 0
    """Tokens per forward and backward pass on one rank, with prompts and responses packed into a row without padding. 0
    pads `micro_batch` rollouts instead."""
    activation_checkpointing: bool = False
    """Save the memory of the layers' activations at the cost of a second forward pass."""
    order: Order = "arrival"
    """Order in which scored groups are trained on: `arrival` waits no longer than necessary; `prompt` makes a run
    repeatable whatever the servers' timing."""

    @model_validator(mode="before")
    @classmethod
    def _apply_preset(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        return {**PRESETS.get(given.get("algorithm", "grpo"), {}), **given}

    def objective(self, *, fixed_length: int, distillation: float = 0.0) -> Objective:
        """Return the objective of an update; see `Objective` for what comes from other sections."""
        return Objective(
            only_informative=self.only_informative,
            advantage_scale=self.advantage_scale,
            ratio=self.ratio,
            loss_agg_mode=self.loss_agg_mode,
            fixed_length=fixed_length,
            clip_low=self.clip_low,
            clip_high=self.clip_high,
            dual_clip=self.dual_clip,
            importance_cap=self.importance_cap,
            kl=self.kl,
            kl_clamp=self.kl_clamp,
            distillation=distillation,
        )
