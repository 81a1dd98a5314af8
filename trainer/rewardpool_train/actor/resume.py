"""Resume a job from the newest checkpoint, also on another number of ranks."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rewardpool.errors import ConfigError
from rewardpool_train.actor import checkpoint
from rewardpool_train.actor.data import Trajectory
from rewardpool_train.actor.fsdp import FsdpActor
from rewardpool_train.actor.ranks import Ranks
from rewardpool_train.config import TrainConfig
from rewardpool_train.pipeline.schedule import SCHEDULES
from rewardpool_train.pipeline.state import PipelineState


@dataclass(frozen=True, kw_only=True)
class JobState:
    """State of one rank in a checkpoint.

    Attributes:
        components: From `RewardScore.to_json`, for the outstanding groups.
        teacher_rows: From `Distillation.to_json`, likewise.
        moments: From `RunningMoments.to_json`; None if the reward has none.
    """

    pipeline: PipelineState[Trajectory]
    components: Sequence[Any] = ()
    teacher_rows: Sequence[Any] = ()
    moments: Mapping[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "pipeline": self.pipeline.to_json(encode=asdict),
            "components": list(self.components),
            "teacher_rows": list(self.teacher_rows),
            "moments": self.moments,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "JobState":
        pipeline = PipelineState.from_json(data["pipeline"], decode=_rollout_from_json)
        return cls(
            pipeline=pipeline,
            components=data["components"],
            teacher_rows=data.get("teacher_rows", ()),
            moments=data["moments"],
        )


def load_state(checkpoints: Path, actor: FsdpActor, *, config: TrainConfig, ranks: Ranks) -> JobState | None:
    """Load the newest checkpoint into the actor, and return this rank's state; None if there is no checkpoint.

    Raises:
        ConfigError: It was saved on another number of ranks, under `fully_async`.
    """
    resumed = checkpoint.load(checkpoints, actor, ranks=ranks)
    if resumed is None:
        return None
    if resumed.ranks == ranks.size:
        return JobState.from_json(resumed.state(ranks.rank))
    first = JobState.from_json(resumed.state(0))
    # A generator, because each state has all rollouts of its rank.
    states = (JobState.from_json(resumed.state(rank)).pipeline for rank in range(resumed.ranks))
    # Moments were merged when the step's weights were published, and are the same on all ranks.
    return JobState(pipeline=reshard_state(states, config, ranks.size), moments=first.moments)


def reshard_state(
    states: Iterable[PipelineState[Trajectory]], config: TrainConfig, ranks: int
) -> PipelineState[Trajectory]:
    """Return the state for a rank of a job that was saved after a step on another number of ranks.

    Steps that were rolled out ahead are rolled out again. With dynamic sampling each rank may have used another number
    of prompts; the job continues after the last one that any rank trained on or dropped, so that no prompt is used
    twice.

    Raises:
        ConfigError: The job is `fully_async`, where a step does not determine which groups are trained.
    """
    if SCHEDULES[config.schedule].disaggregated:
        raise ConfigError("schedule", "a checkpoint of fully_async can only be resumed on the same number of ranks")
    plan = config.plan(ranks)
    found = [(state.schedule, state.trained, _consumed(state)) for state in states]
    schedule, trained, _ = found[0]
    begun = math.ceil(max(consumed for _, _, consumed in found) * len(found) / ranks)
    return PipelineState(
        schedule=schedule,
        plan=plan,
        trained=trained,
        begun=begun,
        dropped=begun - trained * plan.groups_per_minibatch,
        groups=[],
        again={},
    )


def _consumed(state: PipelineState[Trajectory]) -> int:
    """Return the number of prompts up to the last that was trained on or dropped."""
    outstanding = {group.index for group in state.groups} | set(state.again)
    return 1 + max((index for index in range(state.begun) if index not in outstanding), default=-1)


def _rollout_from_json(fields: dict[str, Any]) -> Trajectory:
    return Trajectory(**fields)
