"""What is in flight is looked at when it is old enough, and what lost a race is closed late, but closed."""

import asyncio

from rewardpool.client.watch import LEAST_LEFT_OPEN, Watch


class Seen:
    """Something in flight that began so many seconds ago."""

    def __init__(self, age_seconds: float) -> None:
        self.begun = asyncio.get_running_loop().time() - age_seconds
        self.seen = asyncio.Event()

    def look(self, now: float) -> None:
        self.seen.set()


async def test_what_is_old_enough_is_looked_at_and_what_is_young_is_not() -> None:
    watch = Watch(soonest_seconds=0.01, most_left_open=8)
    old, young = Seen(1.0), Seen(-60.0)
    watch.add(old)
    watch.add(young)
    await asyncio.wait_for(old.seen.wait(), 5)
    assert not young.seen.is_set()
    await watch.close()


async def test_what_is_removed_is_not_looked_at() -> None:
    watch = Watch(soonest_seconds=0.01, most_left_open=8)
    gone, there = Seen(2.0), Seen(1.0)
    watch.add(gone)
    watch.add(there)
    watch.remove(gone)
    await asyncio.wait_for(there.seen.wait(), 5)
    assert not gone.seen.is_set()
    await watch.close()


async def lost() -> None:
    await asyncio.Event().wait()


async def test_of_too_many_that_lost_the_oldest_is_closed() -> None:
    watch = Watch(soonest_seconds=0.01, most_left_open=0)
    tasks = [asyncio.create_task(lost()) for _ in range(LEAST_LEFT_OPEN + 1)]
    for task in tasks:
        watch.leave_open(task)
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    assert [task.done() for task in tasks] == [True] + [False] * LEAST_LEFT_OPEN
    await watch.close()


async def test_closing_closes_what_was_left_open() -> None:
    watch = Watch(soonest_seconds=0.01, most_left_open=8)
    task = asyncio.create_task(lost())
    watch.leave_open(task)
    await watch.close()
    assert task.cancelled()
