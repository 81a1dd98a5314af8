"""The section `update` of a training job's config."""

from typing import Annotated, Any

from pydantic import Field, model_validator

from rewardpool.rewards.score_noise import ScoreDtype
from rewardpool_train.advantages import AdvantageScale
from rewardpool_train.config_part import ConfigPart, Count, Positive
from rewardpool_train.objective import PRESETS, Algorithm, LossAggMode, Objective, Ratio
from rewardpool_train.pipeline.schedule import Order


class UpdateConfig(ConfigPart):
    """How the policy is trained on a step's rollouts. docs/actor.md has the formulas and the papers."""

    groups_per_minibatch: Count = 4
    """Over all ranks. One optimiser step is taken per mini-batch, as soon as that many groups are scored."""
    learning_rate: Positive = 1e-6
    """Of AdamW."""
    algorithm: Algorithm = "grpo"
    """Sets the fields from here to `dynamic_sampling_rounds` to what the paper of that name uses, where they are not
    set."""
    advantage_scale: AdvantageScale = "group_std"
    """What a score's distance from its group's mean is divided by: the group's standard deviation, which is that of a
    population (`group_std`) or that of a sample, as in verl and TRL (`group_sample_std`), or nothing."""
    score_dtype: ScoreDtype | None = None
    """What the reward model computes in. Scores of a group that differ by no more than two steps of its numbers are
    taken for equal, and a step is added to their deviation where it is more than 1e-4. Default: the coarsest
    `spec.engine.dtype` of the reward's Discriminative pools, where they say one; float32 where none does."""
    ratio: Ratio = "token"
    """What is clipped: each token's change of probability, or that of the whole response (its geometric mean)."""
    loss_agg_mode: LossAggMode = "seq-mean-token-mean"
    """How tokens add up to a loss: the mean of each response, then of all responses; the mean of all tokens of the
    mini-batch; or their sum, divided by responses times `rollout.max_new_tokens`."""
    clip_low: Annotated[float, Field(gt=0, lt=1)] = 0.2
    """How far a probability may fall within a step before its gradient is cut, as a share."""
    clip_high: Annotated[float, Field(gt=0, lt=100)] = 0.2
    """How far it may rise, as a share."""
    only_informative: bool = False
    """Groups whose scores are all equal teach nothing. Whether they are left out of their mini-batch's mean, where they
    would make the others weigh less."""
    dynamic_sampling_rounds: Annotated[int, Field(ge=0, le=1000)] = 0
    """Rounds of a step, at most, in which such groups are replaced by groups of further prompts before they are trained
    on. What is left of them after the last round is trained on as it is. 0 replaces none; `fully_async` cannot."""
    dual_clip: Annotated[float, Field(gt=1, lt=1e6)] | None = None
    """A token of a bad response that has become likelier loses no more than this many advantages, as in verl, where it
    is 3. By default there is no such limit, as in TRL."""
    kl: Annotated[float, Field(ge=0)] = 0.0
    """Weight of the divergence from the policy that the job started with; 0 keeps no second model."""
    kl_clamp: Positive | None = None
    """A token's divergence counts as no more than this, in nats; verl's k3 has 10. By default there is no limit but
    exp(20)."""
    importance_cap: Positive = 5.0
    """A token that is likelier now than when a stale policy sampled it weighs more, but no more than this; verl's and
    TRL's are 2 and 3."""
    max_grad_norm: Positive = 1.0
    """Longer gradients are shortened to this."""
    max_skipped_updates: Annotated[int, Field(ge=0, le=1000)] = 3
    """Updates in a row, at most, that are skipped because their gradient has a NaN or is infinite, as one that a single
    odd rollout makes. One more ends the job."""
    micro_batch: Count = 64
    """Rollouts per forward and backward on one rank, where they are padded; a matter of memory, not of the result."""
    pack_tokens: Annotated[int, Field(ge=0, le=10_000_000)] = 0
    """Tokens per forward and backward on one rank, prompts and responses one behind the other in a row without
    padding. 0 pads `micro_batch` rollouts instead."""
    activation_checkpointing: bool = False
    """Trades a second forward pass for the memory of the layers' activations."""
    order: Order = "arrival"
    """Which scored groups are trained on first: `arrival` never waits longer than it must; `prompt` makes a run
    repeatable whatever the servers' timing."""

    @model_validator(mode="before")
    @classmethod
    def _apply_preset(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        return {**PRESETS.get(given.get("algorithm", "grpo"), {}), **given}

    def objective(self, *, fixed_length: int) -> Objective:
        """Return what an update aims at; `fixed_length` is the length limit of responses, in tokens."""
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
        )
