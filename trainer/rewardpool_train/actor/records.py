"""A line of metrics.jsonl: the figures of a step, over all ranks."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rewardpool._rewards.score_noise import ScoreDtype
from rewardpool._score_waits import ScoreWait
from rewardpool_train.actor.data import Prompt, Trajectory
from rewardpool_train.actor.fsdp import UpdateStats
from rewardpool_train.actor.ranks import Ranks
from rewardpool_train.advantages import LEAST_MEMBERS, has_members, is_informative
from rewardpool_train.pipeline.parts import RatedGroup
from rewardpool_train.pipeline.times import StepTimes


@dataclass(frozen=True, kw_only=True)
class StepRecord:
    """A line of metrics.jsonl: figures over all ranks, of the groups that the step was trained on.

    Only the fields `dropped_…` describe other groups: those that were replaced because they had no gradient.

    Attributes:
        step: From 1.
        reward_mean: Mean of the scores; NaN without any.
        scored: Samples with a score, including penalties.
        unscored: Samples without a score, which were left out of their groups.
        zero_variance_groups: Groups whose scores are all equal, or that have none.
        sampling_rounds: Rounds in which groups without a gradient were replaced.
        short_groups: Groups with fewer scores than `rollout.min_members`: those that were replaced, and those left out
            of the update because no round was left.
        dropped_groups: Groups that were replaced.
        dropped_samples: Responses of these groups.
        dropped_tokens: Tokens of these responses.
        components: Mean of each part's raw scores, before clip and weight, by its name; NaN without any.
        staleness_mean: Mean number of updates between the begin of a group and its training.
        loss: Mean over the step's updates; NaN without any.
        clip_fraction: Share of clipped tokens, likewise.
        is_cap_fraction: Share of tokens whose importance weight was capped, likewise.
        approx_kl: Divergence from the policy that sampled, in nats per token, likewise.
        teacher_kl: Divergence from the policy to its teacher, in nats per token: the mean of log pi - log pi_teacher
            over the sampled tokens; NaN without a teacher.
        grad_norm: Norm of the gradient, likewise.
        skipped_updates: Updates that were skipped because their gradient was not finite; not included in these means.
        step_seconds: Time since the end of the previous step. It exceeds the sum of the three below by the ranks' wait
            for each other's rollouts; under `fully_async`, the three overlap.
        rollout_seconds: Sampling, on the slowest rank; that of a later step, if rollouts are ahead.
        reward_exposed_seconds: Time in which the slowest rank only waited for scores; under `fully_async`, for rollouts
            too.
        update_seconds: Forward, backward, optimiser, and the transfer of weights to the rollout engine.
        score_wait: Share of the step in which the trainer waited for nothing but scores, and its parts; of the rank
            with the largest share.
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
    teacher_kl: float
    grad_norm: float
    skipped_updates: int
    step_seconds: float
    rollout_seconds: float
    reward_exposed_seconds: float
    update_seconds: float
    score_wait: ScoreWait


@dataclass(kw_only=True)
class StepFigures:
    """Figures of a step on this rank, added up during the step.

    Attributes:
        sampling_rounds: Rounds of dynamic sampling; the same on all ranks.
        components: Known raw scores of the groups' rollouts, by part.
        staleness: Staleness of each group, in versions.
        updates: Updates; none for a mini-batch without any score.
        teacher_gaps: Sum of log pi_teacher - log pi over each response's tokens, and their number.
        exposed_seconds: Time of waiting for scores, on the slowest rank.
        update_seconds: Time of training and publishing.
        score_wait: Waiting for scores, on this rank.
    """

    groups: list[RatedGroup[Prompt, Trajectory]] = field(default_factory=list)
    dropped: list[RatedGroup[Prompt, Trajectory]] = field(default_factory=list)
    sampling_rounds: int = 0
    components: list[Mapping[str, float | None]] = field(default_factory=list)
    staleness: list[int] = field(default_factory=list)
    updates: list[UpdateStats] = field(default_factory=list)
    teacher_gaps: list[tuple[float, int]] = field(default_factory=list)
    rollout_seconds: float = 0.0
    exposed_seconds: float = 0.0
    update_seconds: float = 0.0
    score_wait: ScoreWait = field(default_factory=ScoreWait)

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
        gap, taught = ranks.sum(math.fsum(gap for gap, _ in self.teacher_gaps), sum(n for _, n in self.teacher_gaps))
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
            teacher_kl=-gap / taught if taught else math.nan,
            grad_norm=_mean([update.grad_norm for update in updates]),
            skipped_updates=len(self.updates) - len(updates),
            step_seconds=times.total_seconds,
            rollout_seconds=rollout_seconds,
            reward_exposed_seconds=self.exposed_seconds,
            update_seconds=update_seconds,
            score_wait=max(ranks.all_gather(self.score_wait), key=lambda one: one.share),
        )

    def _mean_of(self, part: str, ranks: Ranks) -> float:
        known = [score for components in self.components if (score := components.get(part)) is not None]
        total, count = ranks.sum(math.fsum(known), len(known))
        return total / count if count else math.nan


def _response_lengths(groups: Sequence[RatedGroup[Prompt, Trajectory]]) -> list[int]:
    return [len(rollout.response_ids) for group in groups for rollout in group.rollouts]


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else math.nan
