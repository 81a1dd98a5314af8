"""The same six updates by every schedule, by any number of ranks (`rank_jobs`)."""

import asyncio
import random
from collections.abc import Sequence
from concurrent.futures import Executor
from typing import Any

import torch
from support.update_job import FORWARD, make_actor

from rewardpool_train.actor.data import Prompt, Trajectory
from rewardpool_train.actor.learner import ActorLearner, Batch, EngineRollouts
from rewardpool_train.actor.ranks import Ranks
from rewardpool_train.pipeline.engine import Pipeline
from rewardpool_train.pipeline.on_thread import on_thread
from rewardpool_train.pipeline.overlap import Overlap
from rewardpool_train.pipeline.parts import GroupTask, OnEnd
from rewardpool_train.pipeline.schedule import SCHEDULES, Plan, ScheduleName

STEPS, GROUPS, MINIBATCH, SIZE = 3, 4, 2, 3


def scripted_rollout(group: int, member: int) -> Trajectory:
    """Return the same response every time, whoever asks and whatever the weights."""
    rng = random.Random(f"{group}.{member}")
    tokens = [rng.randrange(10) for _ in range(rng.randint(2, 8))]
    return Trajectory(
        group=group,
        member=member,
        prompt_ids=[rng.randrange(10) for _ in range(1 + group % 3)],
        response_ids=tokens,
        ended=True,
        log_probs=[-2.0 - rng.random() for _ in tokens],
    )


class ScriptedEngine:
    """Stands in for a rollout engine; responses do not depend on the weights, so that schedules can be compared."""

    def __init__(self, ranks: Ranks) -> None:
        self.version = 0
        self._ranks = ranks

    async def roll_out(self, tasks: Sequence[GroupTask[Prompt]], on_end: OnEnd[Prompt, Trajectory]) -> None:
        for task in tasks:
            for member in range(task.size):
                on_end(task, member, scripted_rollout(task.index * self._ranks.size + self._ranks.rank, member))

    def load(self, source: Any, version: int) -> None:
        self.version = version


class NotingLearner(ActorLearner):
    """Notes gradients and weights after each update."""

    def __init__(self, *args: Any, thread: Executor, **options: Any) -> None:
        super().__init__(*args, thread=thread, **options)
        self._noting = thread
        self.noted: list[dict[str, dict[str, torch.Tensor]]] = []

    async def train(self, minibatch: Batch) -> None:
        await super().train(minibatch)
        self.noted.append(await on_thread(self._noting, self._note))

    def _note(self) -> dict[str, dict[str, torch.Tensor]]:
        weights = dict(self._actor.model.named_parameters())
        return {
            "weights": {name: weight.detach().full_tensor().clone() for name, weight in weights.items()},
            "gradients": {name: weight.grad.full_tensor().clone() for name, weight in weights.items()},
        }


def scores_in_any_order(name: ScheduleName, ranks: Ranks) -> Any:
    """Return a score that depends on the rollout alone, and comes whenever the schedule and the rank want it."""
    rng = random.Random(f"{name}.{ranks.rank}")

    async def score(task: GroupTask[Prompt], member: int, rollout: Trajectory) -> float | None:
        for _ in range(rng.randrange(50)):
            await asyncio.sleep(0)
        return None if sum(rollout.response_ids) % 11 == 0 else float(sum(rollout.response_ids))

    return score


Noted = list[dict[str, dict[str, torch.Tensor]]]


def train(name: ScheduleName, ranks: Ranks, thread: Executor) -> Noted:
    """Train by one schedule; returns gradients and weights after each update."""
    actor, engine = make_actor(ranks, forward=FORWARD, learning_rate=1e-3), ScriptedEngine(ranks)
    schedule = SCHEDULES[name]
    decoupled = bool(schedule.ahead) or schedule.disaggregated
    learner = NotingLearner(actor, engine, ranks=ranks, thread=thread, advantage_scale="group_std", decoupled=decoupled)
    pipeline: Pipeline[Prompt, Trajectory] = Pipeline(
        plan=Plan(
            steps=STEPS,
            groups_per_step=GROUPS // ranks.size,
            groups_per_minibatch=MINIBATCH // ranks.size,
            group_size=SIZE,
        ),
        prompts=lambda index: Prompt(prompt=str(index)),
        rollouts=EngineRollouts(engine, learner, ranks=ranks, thread=None if schedule.disaggregated else thread),
        score=scores_in_any_order(name, ranks),
        learner=learner,
        overlap=Overlap(schedule=name, order="prompt"),
    )
    asyncio.run(pipeline.run())
    return learner.noted


def by_schedule(ranks: Ranks, thread: Executor) -> dict[ScheduleName, Noted]:
    """Train by every schedule; returns what came of each."""
    return {name: train(name, ranks, thread) for name in SCHEDULES}
