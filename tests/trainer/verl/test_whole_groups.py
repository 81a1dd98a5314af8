"""Trajectories that wait for the others of their group, so that one revision scores it."""

import asyncio
import random

import pytest
from support.revisions import DEAD, GROUPS, Workers, group, plays, reward_by

from rewardpool._rewards import Rating
from rewardpool._rewards.composite import CompositeReward
from rewardpool.verl.whole_groups import WholeGroups

SIZE = 8


async def trajectory(
    groups: WholeGroups, reward: CompositeReward, number: int, member: int, *, written: asyncio.Event
) -> Rating:
    """Be one of verl's: begin, be written, be scored, and be handed on."""
    episode = group(number)[member]
    with groups.member(number) as one:
        await written.wait()
        return await one.settled(reward, episode, await reward.rate(episode))


def begun(
    groups: WholeGroups, reward: CompositeReward, number: int = 0, *, size: int = SIZE
) -> tuple[list[asyncio.Event], list[asyncio.Task[Rating]]]:
    written = [asyncio.Event() for _ in range(size)]
    tasks = [
        asyncio.create_task(trajectory(groups, reward, number, member, written=written[member]))
        for member in range(size)
    ]
    return written, tasks


@pytest.mark.parametrize("groups", [GROUPS, pytest.param(5_000, marks=pytest.mark.long)])
async def test_no_group_is_split_while_the_pool_is_rolled_out_and_back(groups: int) -> None:
    chance = random.Random(7)
    workers, whole = Workers("a"), WholeGroups()
    split = scored = 0
    async with reward_by(workers, timeout=60) as (reward, pool):
        for number, revisions in enumerate(plays(groups)):
            chance.shuffle(revisions)
            written, tasks = begun(whole, reward, number)
            first = chance.randint(1, SIZE - 1)
            before = workers.scored
            for event in written[:first]:
                event.set()
            while workers.scored < before + 1:  # noqa: ASYNC110 - the stand-in tells nobody
                await asyncio.sleep(0)
            workers.revisions = revisions  # while others are written
            for event in written[first:]:
                event.set()
            totals = [rating.total for rating in await asyncio.gather(*tasks)]
            split += len(set(totals)) > 1
            scored += sum(total is not None for total in totals)
        report = pool.report()
    print(f"{split} of {groups} split; asked again: {report.groups_asked_again} groups, {report.asked_again} samples")
    assert (split, scored, len(whole)) == (0, groups * SIZE, 0)
    assert report.asked_again > 0


async def test_a_trajectory_waits_for_those_that_began_beside_it_and_not_for_one_that_failed() -> None:
    whole = WholeGroups()
    async with reward_by(Workers("a")) as (reward, _):
        written, (first, second, failing) = begun(whole, reward, size=3)
        written[0].set()
        await asyncio.wait([first], timeout=0.05)
        assert not first.done()
        written[1].set()
        failing.cancel()
        ratings = await asyncio.gather(first, second)
    assert [rating.total for rating in ratings] == [1.0, 1.0]
    assert len(whole) == 0


async def test_with_the_key_off_nobody_waits() -> None:
    async with reward_by(Workers("a"), one_revision=False) as (reward, _):
        written, (first, *others) = begun(WholeGroups(), reward, size=2)
        written[0].set()
        assert (await first).total == 1.0
        for task in others:
            task.cancel()


async def test_a_group_that_cannot_be_settled_fails_for_all_who_wait() -> None:
    workers = Workers("a", "b")
    async with reward_by(workers, timeout=0.5) as (reward, _):
        written, tasks = begun(WholeGroups(), reward, size=2)
        for event in written:
            event.set()
        while workers.scored < 2 and not all(task.done() for task in tasks):  # noqa: ASYNC110 - the stand-in tells nobody
            await asyncio.sleep(0)
        workers.revisions = [DEAD]
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(outcome, Exception) for outcome in outcomes)
