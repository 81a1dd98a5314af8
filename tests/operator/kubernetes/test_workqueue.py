"""Whose turn it is, by a clock that the tests move."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from rewardpool_operator.kubernetes.queue.workqueue import Workers, WorkQueue


def taken(queue: WorkQueue[str], now: float) -> str | None:
    found = queue.get(now)
    return found.key if found else None


def test_a_key_is_not_taken_before_it_is_due() -> None:
    queue = WorkQueue[str]()
    queue.add("a", 5.0)
    assert (taken(queue, 4.9), taken(queue, 5.0)) == (None, "a")


def test_the_key_that_has_been_due_longest_goes_first() -> None:
    queue = WorkQueue[str]()
    for key, due in (("late", 3.0), ("early", 1.0), ("middle", 2.0)):
        queue.add(key, due)
    assert [taken(queue, 10.0) for _ in range(3)] == ["early", "middle", "late"]


def test_a_hundred_events_are_one_pass() -> None:
    queue = WorkQueue[str]()
    for moment in range(100):
        queue.add("a", 1.0 + moment / 1000)
    assert (taken(queue, 2.0), taken(queue, 2.0)) == ("a", None)


def test_an_earlier_time_counts_and_a_later_one_does_not() -> None:
    queue = WorkQueue[str]()
    for due in (5.0, 2.0, 8.0):
        queue.add("a", due)
    assert queue.next_due() == 2.0


def test_a_key_that_is_worked_on_is_not_taken_twice_and_comes_again_after() -> None:
    queue = WorkQueue[str](spacing=0.5)
    queue.add("a", 0.0)
    queue.get(0.0)
    queue.add("a", 1.0)
    assert taken(queue, 2.0) is None
    queue.done("a", 3.0, again=60.0)
    assert (taken(queue, 3.4), taken(queue, 3.5)) == (None, "a")


def test_a_pool_that_wants_to_be_looked_at_sooner_takes_events_sooner_too() -> None:
    queue = WorkQueue[str](spacing=1.0)
    queue.add("hurried", 0.0)
    queue.get(0.0)
    queue.done("hurried", 0.0, again=0.1)
    queue.add("hurried", 0.0)
    assert (taken(queue, 0.05), taken(queue, 0.1)) == (None, "hurried")


def test_events_of_one_pool_leave_time_for_others() -> None:
    queue = WorkQueue[str](spacing=1.0)
    queue.add("busy", 0.0)
    queue.get(0.0)
    queue.done("busy", 0.0, again=9.0)
    queue.add("busy", 0.1)
    queue.add("other", 0.2)
    assert [taken(queue, 0.5), taken(queue, 0.5)] == ["other", None]


def test_a_key_without_a_next_time_is_forgotten_unless_it_was_added_meanwhile() -> None:
    queue = WorkQueue[str]()
    for added, expected in ((False, None), (True, "a")):
        queue.add("a", 0.0)
        queue.get(0.0)
        if added:
            queue.add("a", 0.0)
        queue.done("a", 1.0)
        assert taken(queue, 100.0) == expected


def test_the_oldest_is_told_by_waiting_and_by_running_keys() -> None:
    queue = WorkQueue[str]()
    assert queue.oldest(5.0) == 0.0
    queue.add("a", 2.0)
    assert queue.oldest(5.0) == 3.0
    queue.get(5.0)
    assert queue.oldest(9.0) == 4.0
    assert queue.length(9.0) == 0


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 20)), max_size=30))
def test_every_key_that_was_added_is_taken_once(added: list[tuple[str, int]]) -> None:
    queue = WorkQueue[str]()
    for key, due in added:
        queue.add(key, float(due))
    found = []
    while (key := taken(queue, 100.0)) is not None:
        found.append(key)
    assert sorted(found) == sorted({key for key, _ in added})


class Passes:
    """Work that lasts until it is let go, and counts how much of it there was at a time."""

    def __init__(self) -> None:
        self.running: list[str] = []
        self.most = 0
        self.begun = asyncio.Semaphore(0)
        self.let_go = asyncio.Event()

    async def work(self, key: str) -> float | None:
        self.running.append(key)
        self.most = max(self.most, len(self.running))
        self.begun.release()
        try:
            await self.let_go.wait()
        finally:
            self.running.remove(key)
        return None


async def test_no_more_passes_run_at_a_time_than_allowed() -> None:
    passes = Passes()
    workers = Workers[str](passes.work, limit=2)
    running = asyncio.create_task(workers.run())
    for key in "abcde":
        workers.add(key)
    for _ in range(2):
        await passes.begun.acquire()
    passes.let_go.set()
    for _ in range(3):
        await passes.begun.acquire()
    assert passes.most == 2
    running.cancel()


async def test_passes_end_at_once_when_they_are_cancelled() -> None:
    passes = Passes()
    workers = Workers[str](passes.work)
    running = asyncio.create_task(workers.run())
    workers.add("a")
    await passes.begun.acquire()
    await workers.cancel_passes()
    assert passes.running == []
    running.cancel()


async def test_a_pass_that_raises_is_made_again_and_stops_no_other() -> None:
    ended = asyncio.Semaphore(0)

    async def work(key: str) -> float | None:
        ended.release()
        if key == "bad":
            raise ValueError("a defect")
        return None

    workers = Workers[str](work, limit=1)
    running = asyncio.create_task(workers.run())
    for key in ("bad", "good"):
        workers.add(key)
    for _ in range(2):
        await ended.acquire()
    await asyncio.sleep(0)
    assert workers.queue.next_due() < float("inf")
    running.cancel()


def test_the_length_is_told_to_a_scrape_while_keys_come() -> None:
    queue = WorkQueue[str]()

    class Due(float):
        def __le__(self, now: float) -> bool:
            queue.add(f"meanwhile {self}", 9.0)
            return super().__le__(now)

    for due in (1.0, 2.0):
        queue.add(f"at {due}", Due(due))
    assert queue.length(5.0) == 2


async def test_workers_that_are_woken_and_cancelled_at_one_moment_end() -> None:
    async def work(key: str) -> float | None:
        return None

    workers = Workers(work)
    running = asyncio.create_task(workers.run())
    workers.add("later", after=3600)
    for _ in range(5):
        await asyncio.sleep(0)  # until it waits for the key to be due
    workers.add("later too", after=3600)
    running.cancel()
    ended, _ = await asyncio.wait({running}, timeout=10)
    running.cancel()
    assert ended
