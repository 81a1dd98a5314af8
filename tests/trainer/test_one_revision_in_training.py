"""The included trainer's groups, whose rollouts are rated one by one: no two revisions rate a group."""

import asyncio
import concurrent.futures
import json
import random
from collections.abc import Coroutine, Sequence
from typing import Any

import pytest
from support.revisions import GROUPS, Workers, plays, reward_by

from rewardpool._rewards import Episode, Rating
from rewardpool._rewards.composite import CompositeReward
from rewardpool_train.actor.data import Prompt, Trajectory
from rewardpool_train.actor.scoring import OutcomeTally, RewardScore
from rewardpool_train.pipeline.group_buffer import GroupBuffer
from rewardpool_train.pipeline.parts import GroupTask
from rewardpool_train.pipeline.tasks import ScoreTasks

SIZE = 8


class OnThisLoop:
    """A reward as the trainer has it, on the event loop of the test."""

    def __init__(self, reward: CompositeReward) -> None:
        self._reward = reward
        self._loop = asyncio.get_running_loop()
        self.names, self.moments, self.needs_group = reward.names, reward.moments, reward.needs_group

    def _start(self, work: Coroutine[Any, Any, Any]) -> "concurrent.futures.Future[Any]":
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def submit(self, episode: Episode) -> "concurrent.futures.Future[Rating]":
        return self._start(self._reward.rate(episode))

    def submit_group(self, episodes: Sequence[Episode]) -> "concurrent.futures.Future[list[Rating]]":
        return self._start(self._reward.rate_group(episodes))

    def submit_settled(
        self, episodes: Sequence[Episode], ratings: Sequence[Rating]
    ) -> "concurrent.futures.Future[list[Rating]]":
        return self._start(self._reward.settled(episodes, ratings))


class Training:
    """What of the trainer is between a rollout's end and a complete group."""

    def __init__(self, reward: CompositeReward, tasks: asyncio.TaskGroup) -> None:
        self.tally = OutcomeTally()
        self.score = RewardScore(OnThisLoop(reward), to_episode=self._episode, tally=self.tally)
        self.buffer: GroupBuffer[Prompt, Trajectory] = GroupBuffer()
        self._completed = asyncio.Event()
        self._scores = ScoreTasks(self.score.as_scoring(), self.buffer, self._completed.set, tasks=tasks)

    @staticmethod
    def _episode(task: GroupTask[Prompt], member: int, _: Trajectory) -> Episode:
        return Episode(prompt="p", response=f"{task.index}-{member}", group=task.index, id=f"{task.index}-{member}")

    def begin(self, index: int) -> None:
        self._completed.clear()
        self.buffer.begin(GroupTask(index=index, prompt=Prompt(prompt="p"), size=SIZE, version=0))

    def ended(self, index: int, members: Sequence[int]) -> None:
        for member in members:
            rollout = Trajectory(group=index, member=member, prompt_ids=[1], response_ids=[2], ended=True)
            self._scores.submit(self.buffer.add_rollout(index, member, rollout), member)

    async def scores(self, index: int) -> Sequence[float | None]:
        """Those of a group, once it is complete."""
        await self._completed.wait()
        [group] = self.buffer.pop([index])
        return group.rated().scores


async def played(groups: int, **settings: Any) -> tuple[int, int, OutcomeTally, int]:
    """Return how many groups are split and how many samples are scored, the job's counts, and the pool's."""
    chance = random.Random(7)
    workers = Workers("a")
    split = scored = 0
    async with reward_by(workers, timeout=60, **settings) as (reward, pool), asyncio.TaskGroup() as tasks:
        training = Training(reward, tasks)
        for number, revisions in enumerate(plays(groups)):
            chance.shuffle(revisions)
            training.begin(number)
            first = chance.randint(1, SIZE - 1)
            training.ended(number, range(first))
            while len(training.buffer.groups()[0].scores) < first - 1:  # noqa: ASYNC110 - the buffer tells nobody
                await asyncio.sleep(0)
            workers.revisions = revisions  # while the last of the group's rollouts are written
            training.ended(number, range(first, SIZE))
            scores = await training.scores(number)
            split += len({score for score in scores if score is not None}) > 1
            scored += sum(score is not None for score in scores)
        report = pool.report()
    return split, scored, training.tally, report.groups_asked_again


@pytest.mark.parametrize("groups", [GROUPS, pytest.param(5_000, marks=pytest.mark.long)])
async def test_no_group_is_split_while_the_pool_is_rolled_out_and_back(groups: int) -> None:
    split, scored, tally, asked = await played(groups)
    print(f"{split} of {groups} split; asked again: {tally.groups_asked_again} groups, {tally.asked_again} samples")
    assert (split, scored, tally.lost) == (0, groups * SIZE, 0)
    assert tally.groups_asked_again == asked > 0
    assert tally.scored == tally.submitted == groups * SIZE


@pytest.mark.parametrize("groups", [GROUPS, pytest.param(5_000, marks=pytest.mark.long)])
async def test_with_the_key_off_groups_are_split(groups: int) -> None:
    split, scored, tally, _ = await played(groups, one_revision=False)
    print(f"{split} of {groups} split")
    assert split > 0
    assert (scored, tally.asked_again) == (groups * SIZE, 0)


async def test_a_resumed_job_asks_again_for_what_another_revision_scored_before() -> None:
    workers = Workers("a")
    async with reward_by(workers) as (reward, _), asyncio.TaskGroup() as tasks:
        before = Training(reward, tasks)
        before.begin(0)
        before.ended(0, range(3))
        scored = before.buffer.groups()[0].scores
        while len(scored) < 3:  # noqa: ASYNC110 - the buffer tells nobody
            await asyncio.sleep(0)
        checkpoint = json.loads(json.dumps(before.score.to_json([0])))
        workers.revisions = ["b"]
        after = Training(reward, tasks)
        after.score.restore(checkpoint)
        after.begin(0)
        for member, score in scored.items():
            rollout = Trajectory(group=0, member=member, prompt_ids=[1], response_ids=[2], ended=True)
            after.buffer.add_rollout(0, member, rollout)
            after.buffer.add_score(0, member, score)
        after.ended(0, range(3, SIZE))
        scores = await after.scores(0)
    assert list(scores) == [2.0] * SIZE
    assert after.tally.asked_again == 3
