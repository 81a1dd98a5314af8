import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from rewardpool.verl.shared import Shared


class Counted:
    """Something to open."""

    def __init__(self, *, failures: int = 0) -> None:
        self.opened = self.closed = 0
        self._failures = failures

    @asynccontextmanager
    async def open(self) -> AsyncIterator[int]:
        self.opened += 1
        await asyncio.sleep(0)
        if self.opened <= self._failures:
            raise ConnectionError("away")
        yield self.opened
        self.closed += 1


async def test_whoever_asks_while_it_is_opened_gets_the_same_one() -> None:
    thing, shared = Counted(), Shared()
    assert await asyncio.gather(*(shared.get("a", thing.open) for _ in range(5))) == [1] * 5
    await shared.close()
    assert (thing.opened, thing.closed) == (1, 1)


async def test_what_could_not_be_opened_is_tried_again_by_the_next() -> None:
    thing, shared = Counted(failures=1), Shared()
    with pytest.raises(ConnectionError):
        await shared.get("a", thing.open)
    assert await shared.get("a", thing.open) == 2
    await shared.close()


async def test_one_that_gives_up_leaves_it_to_the_others() -> None:
    thing, shared = Counted(), Shared()
    impatient, patient = (asyncio.create_task(shared.get("a", thing.open)) for _ in range(2))
    await asyncio.sleep(0)
    impatient.cancel()
    assert await patient == 1
    await shared.close()
