"""Work that is done together for those who ask while a thread is busy: at once, in order, and each with its own end."""

import asyncio
import threading
from collections.abc import Iterator, Sequence

import pytest

from rewardpool._rewards.together import MOST_AT_ONCE, BatchedWork

SECONDS = 30.0


class Slow:
    """Doubles numbers, the first time not before it may; -1 is refused."""

    def __init__(self) -> None:
        self.may = threading.Event()
        self.calls: list[int] = []

    def __call__(self, numbers: Sequence[int]) -> list[int | Exception]:
        self.may.wait(SECONDS)
        self.calls.append(len(numbers))
        return [ValueError("refused") if number == -1 else 2 * number for number in numbers]


@pytest.fixture
def slow() -> Iterator[Slow]:
    work = Slow()
    yield work
    work.may.set()


async def asked(together: BatchedWork[int, int], *numbers: int) -> list[asyncio.Task[int]]:
    tasks = [asyncio.create_task(together.result(number)) for number in numbers]
    await asyncio.sleep(0)
    return tasks


async def test_what_is_asked_while_it_works_is_done_together_and_no_more_than_so_many_at_once(slow: Slow) -> None:
    tasks = await asked(BatchedWork(slow, what="it"), *range(100))
    slow.may.set()
    assert await asyncio.gather(*tasks) == [2 * number for number in range(100)]
    assert slow.calls == [1, MOST_AT_ONCE, 100 - 1 - MOST_AT_ONCE]


async def test_one_that_is_refused_or_given_up_is_no_trouble_of_those_beside_it(slow: Slow) -> None:
    tasks = await asked(BatchedWork(slow, what="it"), 1, -1, 2, 3)
    tasks[2].cancel()
    slow.may.set()
    first, refused, given_up, last = await asyncio.gather(*tasks, return_exceptions=True)
    assert (first, last) == (2, 6)
    assert isinstance(refused, ValueError)
    assert isinstance(given_up, asyncio.CancelledError)
    assert slow.calls == [1, 2]


async def test_work_that_fails_as_a_whole_fails_for_all_of_it_and_goes_on(slow: Slow) -> None:
    together = BatchedWork(slow, what="it")
    slow.may.set()
    with pytest.raises(ZeroDivisionError):
        await together.alone(lambda: 1 // 0)
    slow.calls = None  # type: ignore[assignment]  # whatever it does now fails
    with pytest.raises(AttributeError):
        await together.result(1)
    slow.calls = []
    assert await together.result(2) == 4


async def test_whoever_asks_or_waits_when_it_is_closed_is_told(slow: Slow) -> None:
    together = BatchedWork(slow, what="the tokenizer")
    tasks = await asked(together, 1, 2)
    together.close()
    slow.may.set()
    first, waiting = await asyncio.gather(*tasks, return_exceptions=True)
    assert first == 2
    for told in (waiting, *await asyncio.gather(together.result(3), return_exceptions=True)):
        assert isinstance(told, RuntimeError)
        assert str(told) == "the tokenizer is closed"


def test_loops_one_after_the_other_may_ask(slow: Slow) -> None:
    together = BatchedWork(slow, what="it")
    slow.may.set()
    assert [asyncio.run(together.result(number)) for number in (1, 2)] == [2, 4]
