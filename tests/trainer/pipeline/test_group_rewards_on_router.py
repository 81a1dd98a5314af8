"""Rewards that need whole groups, in the real pipeline, by a real router: every schedule, and whatever goes wrong."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from support.fake_worker import Behaviour, FakeWorker, hangs
from support.fleet import Fleet
from support.patience import PATIENCE
from support.reward_functions import expected_score

from rewardpool._rewards import BlockingReward, Episode
from rewardpool._rewards.mixture import normalized
from rewardpool.errors import InvalidSampleError
from rewardpool_api.contract import CallerError
from rewardpool_train.actor.data import Prompt, Trajectory
from rewardpool_train.actor.scoring import OutcomeTally, RewardScore
from rewardpool_train.pipeline.engine import Pipeline
from rewardpool_train.pipeline.overlap import Overlap
from rewardpool_train.pipeline.parts import GroupTask, MiniBatch, OnEnd
from rewardpool_train.pipeline.schedule import SCHEDULES, Plan, ScheduleName

pytestmark = pytest.mark.real

SIZE = 4
PLAN = Plan(steps=2, groups_per_step=4, groups_per_minibatch=2, group_size=SIZE)
SAMPLES = PLAN.groups * SIZE
SLOW, REFUSED, SILENT = 2, 5, 6
"""Groups that trouble comes to; the last only where the test says so."""
Scores = Sequence[float | None]


class Job:
    """Responses that end member by member, those of the last group first; and a learner that notes what it is given."""

    def __init__(self) -> None:
        self.trained: dict[int, Scores] = {}
        self.order: list[int] = []

    async def roll_out(self, tasks: Sequence[GroupTask[Prompt]], on_end: OnEnd[Prompt, Trajectory]) -> None:
        for member in range(SIZE):
            for task in reversed(tasks):
                on_end(
                    task,
                    member,
                    Trajectory(group=task.index, member=member, prompt_ids=[], response_ids=[], ended=True),
                )
                await asyncio.sleep(0)

    async def train(self, minibatch: MiniBatch[Prompt, Trajectory]) -> None:
        for group in minibatch.groups:
            assert group.task.index not in self.trained
            self.trained[group.task.index] = group.scores
            self.order.append(group.task.index)

    async def publish(self, version: int) -> None:
        """Nobody needs the weights."""


def response_of(group: int, member: int) -> str:
    """The function raises for the empty one."""
    return "" if (group, member) == (REFUSED, 1) else f"group {group}, response {member}, quality {group * member % 7}"


def to_episode(task: GroupTask[Prompt], member: int, _: Trajectory) -> Episode:
    return Episode(
        prompt="?",
        response=response_of(task.index, member),
        group=task.index,
        version=task.version,
        id=f"{task.index}.{member}",
        extra_info={"seconds": 0.5 if task.index == SLOW else 0.01},
    )


async def train(schedule: ScheduleName, spec: Mapping[str, Any]) -> tuple[Job, OutcomeTally]:
    """Train by a reward that needs groups."""
    job, tally = Job(), OutcomeTally()
    reward = await asyncio.to_thread(BlockingReward, spec)
    try:
        scoring = RewardScore(reward, to_episode=to_episode, tally=tally)
        await Pipeline(
            plan=PLAN,
            prompts=lambda index: Prompt(prompt=str(index)),
            rollouts=job,
            score=scoring.as_scoring(),
            learner=job,
            overlap=Overlap(schedule=schedule, max_staleness=4),
            deadline_seconds=60 * PATIENCE,
        ).run()
    finally:
        await asyncio.to_thread(reward.close)
    return job, tally


async def train_by_all(spec: Mapping[str, Any]) -> dict[ScheduleName, tuple[Job, OutcomeTally]]:
    """Train by every schedule, all at once."""
    return dict(zip(SCHEDULES, await asyncio.gather(*(train(schedule, spec) for schedule in SCHEDULES)), strict=True))


async def test_groups_are_scaled_by_their_own_scores_while_a_worker_dies(tmp_path: Path) -> None:
    async with Fleet(tmp_path, workers=2) as fleet:
        pool = {"url": fleet.router.url, "key_file": str(fleet.key_file), "type": "Function", "normalize": "group"}
        dying = asyncio.get_running_loop().call_later(0.25, fleet.workers[0].kill)
        jobs = await train_by_all({**pool, "on_failure": "skip"})
        dying.cancel()

    for job, tally in jobs.values():
        assert (tally.submitted, tally.scored, tally.unscored, tally.lost) == (SAMPLES, SAMPLES - 1, 1, 0)
        assert {group: list(scores) for group, scores in job.trained.items()} == {
            group: scaled(group) for group in range(PLAN.groups)
        }
    assert SLOW in jobs["minibatch"][0].order[2:4]


def scaled(group: int) -> list[Any]:
    """What a group's scores come to; the response that the function raises for has none."""
    responses = [response_of(group, member) for member in range(SIZE)]
    values = iter(normalized([expected_score(response) for response in responses if response]))
    return [pytest.approx(next(values)) if response else None for response in responses]


async def judge_fairly(request: web.Request) -> web.StreamResponse:
    """Prefer the better one of a pair, slowly in one group, and refuse another group."""
    question = (await request.json())["messages"][-1]["content"]
    found = re.findall(r"group (\d+), response \d+, quality (\d+)", question)
    group, qualities = int(found[0][0]), [int(quality) for _, quality in found]
    if group == REFUSED:
        return web.json_response(CallerError(code="invalid_sample", message="the question is no question").to_wire())
    await asyncio.sleep(0.3 * PATIENCE if group == SLOW else 0.0)
    first, second = qualities
    winner = "tie" if first == second else "A" if first > second else "B"
    message = {"role": "assistant", "content": json.dumps({"winner": winner})}
    return web.json_response({"choices": [{"message": message, "finish_reason": "stop"}]})


async def say_nothing_of_one(request: web.Request) -> web.StreamResponse:
    """The same, but for a group that never has an answer."""
    return await (hangs if f"group {SILENT}," in await request.text() else judge_fairly)(request)


@asynccontextmanager
async def judged_by(behaviour: Behaviour, folder: Path) -> AsyncIterator[dict[str, Any]]:
    """A reward that has a group's responses compared, each with each, by a judge behind a real router."""
    async with FakeWorker(*[behaviour] * 10_000) as judge, Fleet(folder, workers=0, others=[judge.url]) as fleet:
        client = {"url": fleet.router.url, "key_file": str(fleet.key_file), "served_name": "judge", "concurrency": 256}
        yield {**client, "type": "Generative", "judge": {"mode": "pairwise", "retries": 0}}


def win_shares(group: int) -> list[Any]:
    """What the comparisons of a group come to."""
    qualities = [group * member % 7 for member in range(SIZE)]
    won = [sum(mine > other for other in qualities) + (qualities.count(mine) - 1) / 2 for mine in qualities]
    return [pytest.approx(share / (SIZE - 1)) for share in won]


def check_judged(job: Job, tally: OutcomeTally, *, unscored: set[int]) -> None:
    """Every group was trained on, with its own scores; those that nothing is known of are unscored."""
    assert (tally.submitted, tally.unscored, tally.lost) == (SAMPLES, len(unscored) * SIZE, 0)
    assert {group: list(scores) for group, scores in job.trained.items()} == {
        group: [None] * SIZE if group in unscored else win_shares(group) for group in range(PLAN.groups)
    }


async def test_a_group_that_the_judge_refuses_is_unscored_and_a_slow_one_delays_itself_alone(tmp_path: Path) -> None:
    async with judged_by(judge_fairly, tmp_path) as reward:
        jobs = await train_by_all({**reward, "on_failure": "skip"})
    for job, tally in jobs.values():
        check_judged(job, tally, unscored={REFUSED})
    assert SLOW in jobs["minibatch"][0].order[2:4]


async def test_a_group_that_the_judge_is_silent_about_is_unscored_at_its_deadline(tmp_path: Path) -> None:
    async with judged_by(say_nothing_of_one, tmp_path) as reward:
        deadlines = {"timeout": 2.0 * PATIENCE}
        job, tally = await train("minibatch", {**reward, **deadlines, "on_failure": "skip"})
    check_judged(job, tally, unscored={REFUSED, SILENT})
    assert SILENT in job.order[6:8]


async def test_a_group_without_a_judgement_ends_the_run_where_the_config_says_so(tmp_path: Path) -> None:
    async with judged_by(judge_fairly, tmp_path) as reward:
        with pytest.raises(InvalidSampleError, match=r"sample 5\.\d: .*the question is no question"):
            await train("minibatch", {**reward, "on_failure": "raise"})
