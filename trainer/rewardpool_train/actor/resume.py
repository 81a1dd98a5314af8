"""Where a job goes on: the newest checkpoint, as the rank that asks needs it."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rewardpool.errors import ConfigError
from rewardpool_train.actor import checkpoint
from rewardpool_train.actor.data import Rollout
from rewardpool_train.actor.fsdp import FsdpActor
from rewardpool_train.actor.ranks import Ranks
from rewardpool_train.config import TrainConfig
from rewardpool_train.pipeline.schedule import SCHEDULES
from rewardpool_train.pipeline.state import PipelineState


@dataclass(frozen=True, kw_only=True)
class JobState:
    """What one rank has in a checkpoint.

    Attributes:
        pipeline: What is outstanding.
        components: As `RewardScore.to_json`; those of the outstanding groups.
        moments: As `RunningMoments.to_json`; None where the reward has none.
    """

    pipeline: PipelineState[Rollout]
    components: Sequence[Any] = ()
    moments: Mapping[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        """Return it as what JSON can express."""
        return {
            "pipeline": self.pipeline.to_json(encode=asdict),
            "components": list(self.components),
            "moments": self.moments,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "JobState":
        """Return what `to_json` made."""
        pipeline = PipelineState.from_json(data["pipeline"], decode=_rollout_from_json)
        return cls(pipeline=pipeline, components=data["components"], moments=data["moments"])


def load_state(checkpoints: Path, actor: FsdpActor, *, config: TrainConfig, ranks: Ranks) -> JobState | None:
    """Give the actor the newest checkpoint's weights, and return this rank's state; None where there is no checkpoint.

    Raises:
        ConfigError: It was saved on another number of ranks, and the job is fully asynchronous.
    """
    resumed = checkpoint.load(checkpoints, actor, ranks=ranks)
    if resumed is None:
        return None
    if resumed.ranks == ranks.size:
        return JobState.from_json(resumed.state(ranks.rank))
    first = JobState.from_json(resumed.state(0))
    # One after the other, as each has all that its rank had rolled out.
    states = (JobState.from_json(resumed.state(rank)).pipeline for rank in range(resumed.ranks))
    # Moments were put together when the step's weights were published, and are the same on all ranks.
    return JobState(pipeline=reshard_state(states, config, ranks.size), moments=first.moments)


def reshard_state(states: Iterable[PipelineState[Rollout]], config: TrainConfig, ranks: int) -> PipelineState[Rollout]:
    """Return where a job on some ranks goes on that was saved, after a step, on another number of them.

    What was rolled out ahead is rolled out again. With dynamic sampling each rank may have gone through another number
    of prompts; the job goes on behind the last that any of them trained on or dropped, so that none comes twice.

    Raises:
        ConfigError: The job is fully asynchronous, so that a step says nothing about which groups are trained.
    """
    if SCHEDULES[config.schedule].disaggregated:
        raise ConfigError("schedule", "a checkpoint of fully_async can only be gone on from with as many ranks")
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


def _consumed(state: PipelineState[Rollout]) -> int:
    """Return the number of prompts up to the last that was trained on or dropped."""
    outstanding = {group.index for group in state.groups} | set(state.again)
    return 1 + max((index for index in range(state.begun) if index not in outstanding), default=-1)


def _rollout_from_json(fields: dict[str, Any]) -> Rollout:
    return Rollout(**fields)
