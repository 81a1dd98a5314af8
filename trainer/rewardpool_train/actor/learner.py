"""The actor and the rollout engine as a pipeline sees them: awaited, with the blocking work on threads.

One thread trains and publishes, so every rank's collectives have the same order. Where rollout and training take turns,
transformers generates there too.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import replace

import torch

from rewardpool._rewards.running import RunningMoments
from rewardpool._rewards.score_noise import ScoreDtype
from rewardpool_train.actor.data import Prompt, Trajectory
from rewardpool_train.actor.distillation import Distillation
from rewardpool_train.actor.fsdp import FsdpActor, RatedRollout
from rewardpool_train.actor.ranks import Ranks
from rewardpool_train.actor.records import StepFigures
from rewardpool_train.actor.rollout import RolloutEngine
from rewardpool_train.actor.scoring import Components
from rewardpool_train.actor.teacher_rows import TeacherRows
from rewardpool_train.actor.tokens import behaviour_log_probs
from rewardpool_train.advantages import (
    LEAST_MEMBERS,
    AdvantageScale,
    TokenReward,
    group_advantages,
    process_advantages,
)
from rewardpool_train.pipeline.on_thread import on_thread
from rewardpool_train.pipeline.parts import GroupTask, MiniBatch, OnEnd, RatedGroup

Batch = MiniBatch[Prompt, Trajectory]
Key = tuple[int, int]  # of a rollout: index of its group, member


class ActorLearner:
    """Trains an `FsdpActor`, and gives its weights to the engine.

    Args:
        thread: Runs all blocking work.
        min_members: Minimum number of scores of a group that is trained on.
        score_dtype: Dtype that the reward model computes in.
        decoupled: Whether rollouts are sampled by another policy than the one at the begin of a step's training: an
            older one, or an engine with other rounding. The trainer's forward then computes their log-probabilities
            again before a step's first update, and the loss distinguishes the two.
        moments: Moments of the scores of earlier steps, if the reward uses them.
        components: Returns the raw scores of a group's rollouts, for `moments`.
        steps: Returns the rewards of the steps of a group's rollouts; None if rollouts are rewarded as a whole.
        distillation: Has the teachers' answers; None without teachers.
        rewarded: Whether scores are a reward's, whose advantages count beside a teacher.
    """

    def __init__(
        self,
        actor: FsdpActor,
        engine: RolloutEngine,
        *,
        ranks: Ranks,
        thread: Executor,
        advantage_scale: AdvantageScale,
        only_informative: bool = False,
        min_members: int = LEAST_MEMBERS,
        score_dtype: ScoreDtype = "float32",
        decoupled: bool,
        moments: RunningMoments | None = None,
        components: Callable[[GroupTask[Prompt]], Iterable[Components]] = lambda task: (),
        steps: Callable[[GroupTask[Prompt]], Sequence[Sequence[TokenReward] | None]] | None = None,
        distillation: Distillation | None = None,
        rewarded: bool = True,
    ) -> None:
        self._actor = actor
        self._engine = engine
        self._ranks = ranks
        self._thread = thread
        self._advantage_scale: AdvantageScale = advantage_scale
        self._only_informative = only_informative
        self._min_members = min_members
        self._score_dtype: ScoreDtype = score_dtype
        self._decoupled = decoupled
        self._moments = moments
        self._components = components
        self._steps = steps
        self._distillation = distillation
        self._rewarded = rewarded
        self._proximal: dict[Key, torch.Tensor] = {}
        self.figures = StepFigures()  # of the current step

    async def train(self, minibatch: Batch) -> None:
        await on_thread(self._thread, self._train, minibatch)
        if self._moments is not None:
            for group in [*minibatch.groups, *minibatch.dropped]:
                for score, components in zip(group.scores, self._components(group.task), strict=True):
                    if score is not None:  # an unscored rollout is left out, with the scores of its other parts
                        self._moments.count(components)

    async def publish(self, version: int) -> None:
        """Give the engine the current weights, and the reward the moments of the groups that were trained on."""
        await on_thread(self._thread, self._publish, version)

    def _train(self, minibatch: Batch) -> None:
        for group in minibatch.dropped:
            for member in range(group.task.size):
                self._proximal.pop((group.task.index, member), None)
        # An update needs all ranks. This barrier keeps the wait for a rank from being counted as an update.
        [slowest_seconds] = self._ranks.max(minibatch.waited_seconds)
        self.figures.exposed_seconds += slowest_seconds
        with self._updating():
            if self._decoupled:
                self._add_proximal(minibatch)
            stats = self._actor.update(self._rated(minibatch))
        self.figures.updates += [stats] if stats is not None else []
        self.figures.groups += minibatch.groups
        self.figures.dropped += minibatch.dropped
        self.figures.sampling_rounds += minibatch.sampling_rounds
        self.figures.staleness += [minibatch.staleness(group) for group in minibatch.groups]

    def _publish(self, version: int) -> None:
        if self._moments is not None:  # before anything can be begun under this version
            self._moments.advance(version, together=self._ranks.all_gather)
        with self._updating():
            self._engine.load(self._actor, version)

    def _add_proximal(self, minibatch: Batch) -> None:
        """Compute the log-probabilities under the current policy for all of the step's rollouts that have none yet."""
        wanted = {
            (group.task.index, member): rollout
            for group in [*minibatch.groups, *minibatch.rest]
            for member, rollout in enumerate(group.rollouts)
            if (group.task.index, member) not in self._proximal
        }
        [any_rank_wants] = self._ranks.max(len(wanted))
        if any_rank_wants:
            self._proximal |= dict(zip(wanted, self._actor.log_probs(list(wanted.values())), strict=True))

    def _rated(self, minibatch: Batch) -> list[RatedRollout]:
        return [
            self._taught(
                RatedRollout(
                    rollout=rollout,
                    behaviour=behaviour_log_probs(rollout),
                    advantage=advantage,
                    proximal=self._proximal.pop((group.task.index, member), None),
                    teacher=rows,
                )
            )
            for group in minibatch.groups
            for member, (rollout, advantage, rows) in enumerate(
                zip(group.rollouts, self._advantages(group), self._teacher_rows(group), strict=True)
            )
        ]

    def _teacher_rows(self, group: RatedGroup[Prompt, Trajectory]) -> Sequence[TeacherRows | None]:
        return [None] * group.task.size if self._distillation is None else self._distillation.rows(group.task)

    def _taught(self, rated: RatedRollout) -> RatedRollout:
        """Return the rollout with its teacher's part of the advantage, and record its divergence."""
        if self._distillation is None or rated.advantage is None:
            return rated
        if rated.teacher is None:  # its score is of a checkpoint from before there was this teacher
            return replace(rated, advantage=None)
        gap = rated.teacher.log_probs - (rated.behaviour if rated.proximal is None else rated.proximal.cpu())
        self.figures.teacher_gaps.append((float(gap.sum()), len(gap)))
        weight = self._distillation.config.advantage_weight
        return replace(rated, advantage=rated.advantage + weight * gap) if weight else rated

    def _advantages(self, group: RatedGroup[Prompt, Trajectory]) -> Sequence[float | torch.Tensor | None]:
        if not self._rewarded:  # every response teaches by itself
            return [None if score is None else 0.0 for score in group.scores]
        scale, only_informative, dtype = self._advantage_scale, self._only_informative, self._score_dtype
        if self._steps is None:
            return group_advantages(
                group.scores,
                scale=scale,
                only_informative=only_informative,
                min_members=self._min_members,
                dtype=dtype,
            )
        each = process_advantages(
            self._steps(group.task),
            [len(rollout.response_ids) for rollout in group.rollouts],
            scale=scale,
            only_informative=only_informative,
            min_members=self._min_members,
            dtype=dtype,
        )
        return [None if one is None else torch.tensor(one, dtype=torch.float32) for one in each]

    @contextmanager
    def _updating(self) -> Iterator[None]:
        start = time.monotonic()
        try:
            yield
        finally:
            self.figures.update_seconds += time.monotonic() - start


class EngineRollouts:
    """Samples rollouts with an engine.

    Args:
        learner: Its figures are filled.
        thread: The learner's thread, where rollout and training take turns: the ranks meet there after a rollout. None
            under `fully_async`.
    """

    def __init__(self, engine: RolloutEngine, learner: ActorLearner, *, ranks: Ranks, thread: Executor | None) -> None:
        self._engine = engine
        self._learner = learner
        self._ranks = ranks
        self._thread = thread

    async def roll_out(self, tasks: Sequence[GroupTask[Prompt]], on_end: OnEnd[Prompt, Trajectory]) -> None:
        """Sample every member of every task; without tasks, only wait for the ranks that have some."""
        start = time.monotonic()
        if tasks:
            await self._engine.roll_out(tasks, on_end)
        self._learner.figures.rollout_seconds += time.monotonic() - start
        if self._thread is not None:
            # No update can start before the slowest rollout is done. So this barrier costs nothing, and keeps the wait
            # for a rank from being counted as waiting for scores.
            await on_thread(self._thread, self._ranks.max, 0.0)
