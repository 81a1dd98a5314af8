"""One schedule against one pool, step after step, with every score checked."""

import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import pairwise

from rewardpool import BlockingPool, RewardConfig
from rewardpool_train.pipeline.engine import Pipeline
from rewardpool_train.pipeline.overlap import Overlap
from rewardpool_train.pipeline.parts import GroupTask, MiniBatch, OnEnd
from rewardpool_train.pipeline.schedule import SCHEDULES, Plan, ScheduleName
from training_step.gpu import StandInGpu, gpus
from training_step.protocol import Protocol
from training_step.rewards import Answer, at_once, scoring

WARM_UP_STEPS = 2
"""Of each run, in which a pipeline fills and an elastic pool grows; they are not counted."""
COOL_DOWN_STEPS = 2
"""At its end, likewise not counted: nothing is rolled out ahead in them any more."""


class WrongError(Exception):
    """A sample was lost, came twice, or has another one's score."""


class StandInRollouts:
    """A step's answers come at its rollout's end, all at once, as the published run's do."""

    def __init__(self, gpu: StandInGpu, protocol: Protocol, *, seconds: float) -> None:
        """`seconds` is what a whole step takes on these GPUs."""
        self._gpu = gpu
        self._per_group = seconds / protocol.prompts

    async def roll_out(self, tasks: Sequence[GroupTask[int]], on_end: OnEnd[int, Answer]) -> None:
        """Take the time of so many groups."""
        await self._gpu.work(self._per_group * len(tasks))
        for task in tasks:
            for member in range(task.size):
                on_end(task, member, member)


@dataclass
class StandInLearner:
    """Takes the time of an update, and checks what it is given.

    Attributes:
        ended: When each mini-batch was trained, in seconds of one clock.
        waited_seconds: For which it had nothing to do, by mini-batch.
        trained: Groups so far.
    """

    gpu: StandInGpu
    protocol: Protocol
    seconds: float
    """What a whole step takes on these GPUs."""
    on_minibatch: Callable[[], None]
    ended: list[float] = field(default_factory=list)
    waited_seconds: list[float] = field(default_factory=list)
    trained: set[int] = field(default_factory=set)

    async def train(self, minibatch: MiniBatch[int, Answer]) -> None:
        """Take the time of one mini-batch. Raises WrongError."""
        for group in minibatch.groups:
            index = group.task.index
            if index in self.trained:
                raise WrongError(f"group {index} is trained on a second time")
            expected = [self.protocol.score(group=index, member=member) for member in range(self.protocol.answers)]
            if list(group.scores) != expected:
                raise WrongError(f"group {index} has the scores {group.scores}, not {expected}")
            self.trained.add(index)
        await self.gpu.work(self.seconds * len(minibatch.groups) / self.protocol.prompts)
        self.ended.append(time.perf_counter())
        self.waited_seconds.append(minibatch.waited_seconds)
        self.on_minibatch()

    async def publish(self, version: int) -> None:
        """Weights cost nothing here: they are part of the update's time."""


def config(pool: str, *, callers: int, protocol: Protocol) -> RewardConfig:
    """The client's settings: all as they are for everybody, but how many requests may be in flight."""
    return RewardConfig(pool=pool, concurrency=callers, timeout=_patience(protocol))


def _patience(protocol: Protocol) -> float:
    """Seconds for a score, and for a mini-batch."""
    return 3_600.0 / protocol.factor + 60.0


@dataclass(frozen=True, kw_only=True)
class Course:
    """What one schedule took against one pool; all in seconds.

    Attributes:
        steps: Each counted step, from the end of the one before to its own.
        waited: Of each of these, for which the learner had nothing to do.
    """

    steps: Sequence[float]
    waited: Sequence[float]

    @property
    def step_seconds(self) -> float:
        """The median."""
        return statistics.median(self.steps)

    @property
    def waited_seconds(self) -> float:
        """The median."""
        return statistics.median(self.waited)


async def run(
    schedule: ScheduleName,
    settings: RewardConfig | None,
    protocol: Protocol,
    *,
    steps: int,
    on_minibatch: Callable[[], None],
) -> Course:
    """Go through so many steps, and those before and after them that are not counted.

    Without settings there is no pool, and every score is there at once.

    Raises:
        WrongError: A sample was lost, came twice, or has another one's score.
        RewardPoolError: The pool cannot be used, or a sample has no score.
    """
    disaggregated = SCHEDULES[schedule].disaggregated
    plan = Plan(
        steps=WARM_UP_STEPS + steps + COOL_DOWN_STEPS,
        groups_per_step=protocol.prompts,
        groups_per_minibatch=protocol.minibatch_prompts,
        group_size=protocol.answers,
    )
    # Where the GPUs are shared out in proportion to the work, either share takes as long as all do for both.
    rolling_seconds = protocol.floor_seconds if disaggregated else protocol.rollout_seconds
    training_seconds = protocol.floor_seconds if disaggregated else protocol.update_seconds
    with gpus(disaggregated=disaggregated) as (rolling, training):
        learner = StandInLearner(training, protocol, training_seconds, on_minibatch)
        with nullcontext() if settings is None else BlockingPool(settings) as pool:
            pipeline = Pipeline(
                plan=plan,
                prompts=lambda index: index,
                rollouts=StandInRollouts(rolling, protocol, seconds=rolling_seconds),
                score=at_once(protocol) if pool is None else scoring(pool, protocol),
                learner=learner,
                overlap=Overlap(
                    schedule=schedule,
                    max_staleness=protocol.max_staleness,
                    groups_per_rollout=protocol.minibatch_prompts,
                ),
                deadline_seconds=_patience(protocol),
            )
            await pipeline.run()
    if len(learner.trained) != plan.groups:
        raise WrongError(f"{len(learner.trained)} of {plan.groups} groups were trained on")
    return _course(learner, plan.minibatches_per_step)


def _course(learner: StandInLearner, per_step: int) -> Course:
    ends = learner.ended[per_step - 1 :: per_step]
    waits = learner.waited_seconds
    waited = [sum(waits[start : start + per_step]) for start in range(0, len(waits), per_step)]
    steps = [after - before for before, after in pairwise(ends)]
    return Course(steps=steps[WARM_UP_STEPS - 1 : -COOL_DOWN_STEPS], waited=waited[WARM_UP_STEPS:-COOL_DOWN_STEPS])
