"""Where a job goes on: the newest checkpoint's state of the pipeline, for the rank that asks."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rewardpool.actor import checkpoint
from rewardpool.actor.data import Rollout
from rewardpool.actor.fsdp import FsdpActor
from rewardpool.actor.ranks import Ranks
from rewardpool.errors import ConfigError
from rewardpool.pipeline.schedule import SCHEDULES
from rewardpool.pipeline.state import PipelineState
from rewardpool.train_config import TrainConfig


def resumed_state(
    checkpoints: Path, actor: FsdpActor, *, config: TrainConfig, ranks: Ranks
) -> PipelineState[Rollout] | None:
    """Give the actor the newest checkpoint's weights, and return this rank's state; None where there is no checkpoint.

    Raises:
        ConfigError: It was saved on another number of ranks, and the job is fully asynchronous.
    """
    resumed = checkpoint.load(checkpoints, actor, ranks=ranks)
    if resumed is None:
        return None
    states = [PipelineState.from_json(state, decode=_rollout_from_json) for state in resumed.states]
    return states[ranks.rank] if len(states) == ranks.size else other_ranks_state(states, config, ranks.size)


def other_ranks_state(
    states: Sequence[PipelineState[Rollout]], config: TrainConfig, ranks: int
) -> PipelineState[Rollout]:
    """Return where a job on some ranks goes on that was saved, after a step, on another number of them.

    What was rolled out ahead is rolled out again. With dynamic sampling each rank may have gone through another number
    of prompts; the job goes on behind the last that any of them trained on or dropped, so that none comes twice.

    Raises:
        ConfigError: The job is fully asynchronous, so that a step says nothing about which groups are trained.
    """
    if SCHEDULES[config.schedule].apart:
        raise ConfigError("schedule", "a checkpoint of fully_async can only be gone on from with as many ranks")
    plan = config.plan(ranks)
    trained = states[0].trained
    begun = math.ceil(max(_consumed(state) for state in states) * len(states) / ranks)
    return PipelineState(
        schedule=states[0].schedule,
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
