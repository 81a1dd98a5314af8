"""One line of metrics.jsonl: what a step came to, over all ranks."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rewardpool.rewards.score_noise import ScoreDtype
from rewardpool_train.actor.data import Prompt, Rollout
from rewardpool_train.actor.fsdp import UpdateStats
from rewardpool_train.actor.ranks import Ranks
from rewardpool_train.advantages import LEAST_MEMBERS, has_members, is_informative
from rewardpool_train.pipeline.parts import RatedGroup
from rewardpool_train.pipeline.times import StepTimes


@dataclass(frozen=True, kw_only=True)
class StepRecord:
    """One line of metrics.jsonl; everything is over all ranks, and about the groups that the step was trained on.

    Only `dropped_…` is about others: those that were replaced, because they taught nothing.

    Attributes:
        step: From 1.
        reward_mean: Of the scores, NaN where there is none.
        reward_std: Their standard deviation.
        scored: Samples with a score, a penalty included.
        unscored: Samples without one, which were left out of their groups.
        zero_variance_groups: Groups whose scores are all equal, or that have none.
        sampling_rounds: In which other groups were rolled out in the place of such as teach nothing.
        short_groups: Groups with fewer scores than `rollout.min_members`: those that were replaced, and those that the
            update was made without, because no round was left.
        dropped_groups: That were replaced.
        dropped_samples: Their responses.
        dropped_tokens: Of these.
        components: Mean of each part's raw scores, before clip and weight, by its name; NaN where there is none.
        response_tokens_mean: Length of the responses.
        staleness_mean: How many updates the policy was older when it began a group than when it was trained on it.
        loss: Mean over the step's updates, NaN where there was none.
        clip_fraction: Share of tokens where the clip took hold, likewise.
        is_cap_fraction: Share of tokens whose importance weight was cut, likewise.
        approx_kl: Divergence from the policy that sampled, in nats per token, likewise.
        grad_norm: Length of the gradient, likewise.
        skipped_updates: Whose gradient was no finite number, so that they changed nothing; not in these means.
        step_seconds: From the end of the step before. What the three below do not cover is ranks waiting for each
            other's rollouts; where rollout and training are apart, they overlap.
        rollout_seconds: Sampling, on the slowest rank; of a later step, where rollouts are ahead.
        reward_exposed_seconds: The slowest rank had nothing to do but wait for scores; where rollout and training are
            apart, for rollouts too.
        update_seconds: Forward, backward, optimiser, and giving the weights to the rollout side.
    """

    step: int
    reward_mean: float
    reward_std: float
    scored: int
    unscored: int
    zero_variance_groups: int
    sampling_rounds: int
    short_groups: int
    dropped_groups: int
    dropped_samples: int
    dropped_tokens: int
    components: Mapping[str, float]
    response_tokens_mean: float
    staleness_mean: float
    loss: float
    clip_fraction: float
    is_cap_fraction: float
    approx_kl: float
    grad_norm: float
    skipped_updates: int
    step_seconds: float
    rollout_seconds: float
    reward_exposed_seconds: float
    update_seconds: float


@dataclass(kw_only=True)
class StepFigures:
    """What this rank knows of a step; filled as it goes on.

    Attributes:
        groups: Trained on.
        dropped: Replaced by others.
        sampling_rounds: Of dynamic sampling; the same on all ranks.
        components: Raw scores of their rollouts by part, as far as they are known.
        staleness: Of each, in versions.
        updates: That were made; none for a mini-batch without any score.
        rollout_seconds: Sampling.
        exposed_seconds: Waiting for scores, on the slowest rank.
        update_seconds: Training and publishing.
    """

    groups: list[RatedGroup[Prompt, Rollout]] = field(default_factory=list)
    dropped: list[RatedGroup[Prompt, Rollout]] = field(default_factory=list)
    sampling_rounds: int = 0
    components: list[Mapping[str, float | None]] = field(default_factory=list)
    staleness: list[int] = field(default_factory=list)
    updates: list[UpdateStats] = field(default_factory=list)
    rollout_seconds: float = 0.0
    exposed_seconds: float = 0.0
    update_seconds: float = 0.0

    def record(
        self,
        times: StepTimes,
        ranks: Ranks,
        *,
        parts: Sequence[str],
        min_members: int = LEAST_MEMBERS,
        score_dtype: ScoreDtype = "float32",
    ) -> StepRecord:
        """Return the record; all ranks call this together, with the names of the reward's parts in the same order."""
        scores = [score for group in self.groups for score in group.scores if score is not None]
        lengths, dropped = _response_lengths(self.groups), _response_lengths(self.dropped)
        count, total, squares, tokens, samples, staleness, groups, *others = ranks.sum(
            len(scores),
            math.fsum(scores),
            math.fsum(score**2 for score in scores),
            sum(lengths),
            len(lengths),
            sum(self.staleness),
            len(self.groups),
            sum(not is_informative(group.scores, dtype=score_dtype) for group in self.groups),
            sum(not has_members(group.scores, min_members) for group in [*self.groups, *self.dropped]),
            len(self.dropped),
            len(dropped),
            sum(dropped),
        )
        zero_variance_groups, short_groups, dropped_groups, dropped_samples, dropped_tokens = map(int, others)
        rollout_seconds, update_seconds = ranks.max(self.rollout_seconds, self.update_seconds)
        mean = total / count if count else math.nan
        updates = [update for update in self.updates if not update.skipped]
        return StepRecord(
            step=times.step + 1,
            reward_mean=mean,
            reward_std=math.sqrt(max(0.0, squares / count - mean**2)) if count else math.nan,
            scored=int(count),
            unscored=int(samples - count),
            zero_variance_groups=zero_variance_groups,
            sampling_rounds=self.sampling_rounds,
            short_groups=short_groups,
            dropped_groups=dropped_groups,
            dropped_samples=dropped_samples,
            dropped_tokens=dropped_tokens,
            components={part: self._mean_of(part, ranks) for part in parts},
            response_tokens_mean=tokens / samples,
            staleness_mean=staleness / groups,
            loss=_mean([update.loss for update in updates]),
            clip_fraction=_mean([update.clip_fraction for update in updates]),
            is_cap_fraction=_mean([update.is_cap_fraction for update in updates]),
            approx_kl=_mean([update.approx_kl for update in updates]),
            grad_norm=_mean([update.grad_norm for update in updates]),
            skipped_updates=len(self.updates) - len(updates),
            step_seconds=times.total_seconds,
            rollout_seconds=rollout_seconds,
            reward_exposed_seconds=self.exposed_seconds,
            update_seconds=update_seconds,
        )

    def _mean_of(self, part: str, ranks: Ranks) -> float:
        known = [score for components in self.components if (score := components.get(part)) is not None]
        total, count = ranks.sum(math.fsum(known), len(known))
        return total / count if count else math.nan


def _response_lengths(groups: Sequence[RatedGroup[Prompt, Rollout]]) -> list[int]:
    return [len(rollout.response_ids) for group in groups for rollout in group.rollouts]


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else math.nan
