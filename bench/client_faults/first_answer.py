"""When the router could answer again: requests of nobody's, sent one after the other until one is answered.

They owe nothing to the client that is measured: no kept connection, no pause that grows, no patience. Each goes on a
connection of its own, carries a text that is no sample's, and is given up before the router's own retries come to it.
"""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
from support.fleet import SERVED_NAME, Fleet

from rewardpool import FunctionSample, Sample
from rewardpool_api.contract import SCORE_PATH

EVERY_SECONDS = 0.05
PATIENCE_SECONDS = 0.3
"""For one of them; what a router holds for longer, it could not answer when it came."""


class FirstAnswer:
    """Asks a fleet's router, wherever that is at the moment.

    Attributes:
        at: When the first of the requests was answered (`time.monotonic`); None until then.
    """

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self.at: float | None = None

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Ask from the beginning of the block until there is an answer, also after its end."""
        asking = asyncio.create_task(self._until_answered())
        try:
            yield
            await asking
        finally:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)

    async def _until_answered(self) -> None:
        async with (
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0, force_close=True)) as session,
            asyncio.TaskGroup() as group,
        ):
            sent: list[asyncio.Task[None]] = []
            for number in itertools.count():
                if self.at is not None:
                    break
                sent.append(group.create_task(self._ask(session, number)))
                await asyncio.sleep(EVERY_SECONDS)
            for task in sent:
                task.cancel()

    async def _ask(self, session: aiohttp.ClientSession, number: int) -> None:
        text = FunctionSample(data_source="first answer", solution_str=f"first answer {number}", ground_truth="")
        content = {"model": SERVED_NAME, "input": Sample(function=text).to_input("first answer")}
        headers = {"Authorization": f"Bearer {self._fleet.key_file.read_text()}"}
        patience = aiohttp.ClientTimeout(total=PATIENCE_SECONDS)
        try:
            async with session.post(
                self._fleet.router.url + SCORE_PATH, json=content, headers=headers, timeout=patience
            ) as answer:
                await answer.read()
                if answer.status == 200 and self.at is None:
                    self.at = time.monotonic()
        except (aiohttp.ClientError, TimeoutError, OSError):
            return
