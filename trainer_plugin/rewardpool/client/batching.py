"""Several samples in one request, where more of them wait than the slots can take.

    a slot is free -> as many samples as its share of those that wait -> one request -> each its score
                                                                      -> an error: each sent alone, as without batches

Nobody waits for a batch to fill: with a free slot a sample goes at once and alone, and the last ones of a burst go
alone beside each other. So the slots are as full as without batches, and what the routers hold, which is what
autoscaling measures, is as large while samples wait.

A request costs client, router and worker about the same whatever is in it, so batches win where samples are small and
scoring them is quick. Long ones are not put together, and neither are token ids, which not every router takes in lists.
"""

import asyncio
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from rewardpool.client.answer import read_score, read_scores
from rewardpool.client.caller import Caller, Effort
from rewardpool.discovery.endpoint import Endpoint
from rewardpool.errors import PoolError, SampleError
from rewardpool_api.contract import SCORE_PATH

MOST_CHARACTERS = 65_536
"""In the samples of one request."""

Body = Callable[[Endpoint], dict[str, Any]]


def share(*, waiting: int, slots: int, most: int) -> int:
    """How many samples the next request takes, at least 1: what is waiting, spread over all slots."""
    return max(1, min(most, math.ceil(waiting / slots)))


@dataclass(eq=False)
class Waiting:
    """A sample that waits for a slot, and then for its score."""

    effort: Effort
    body: Body
    score: asyncio.Future[float] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    request: asyncio.Task[None] | None = None


class Batcher:
    """Puts samples together for a `Caller`."""

    def __init__(self, caller: Caller, *, most: int) -> None:
        """At most `most` samples go into one request."""
        self._caller = caller
        self._most = most
        self._waiting: deque[Waiting] = deque()
        self._flying: dict[asyncio.Task[None], list[Waiting]] = {}

    async def score(self, effort: Effort, body: Body) -> float:
        """The score of one sample. Raises what `Caller.ask` does."""
        one = Waiting(effort, body)
        self._waiting.append(one)
        self._send_what_fits()
        try:
            return await one.score
        except asyncio.CancelledError:
            await self._give_up(one)
            raise

    def _send_what_fits(self) -> None:
        while self._waiting and len(self._flying) < self._caller.concurrency:
            count = share(waiting=len(self._waiting), slots=self._caller.concurrency, most=self._most)
            together = [self._waiting.popleft() for _ in range(count)]
            request = asyncio.create_task(self._send(together))
            for one in together:
                one.request = request
            self._flying[request] = together
            request.add_done_callback(self._ended)

    def _ended(self, request: asyncio.Task[None]) -> None:
        together = self._flying.pop(request)
        failure = None if request.cancelled() else request.exception()
        for one in together:
            if not one.score.done():  # the event loop ends, or the pool was closed
                one.score.cancel() if failure is None else one.score.set_exception(failure)
        self._send_what_fits()

    async def _give_up(self, one: Waiting) -> None:
        """Nobody wants this sample's score any more; its request goes on for the others, if there are any."""
        if one.request is None:
            self._waiting.remove(one)
        elif all(other.score.done() for other in self._flying.get(one.request, ())):
            one.request.cancel()
            await asyncio.gather(one.request, return_exceptions=True)

    async def _send(self, together: list[Waiting]) -> None:
        alone = together if len(together) == 1 else await self._send_at_once(together)
        await asyncio.gather(*(self._send_alone(one) for one in alone))

    async def _send_at_once(self, together: list[Waiting]) -> list[Waiting]:
        """One request for all of them; returns those that have no score after it and are to be sent alone."""
        inputs: list[str] = []
        fit: list[Waiting] = []
        alone: list[Waiting] = []
        endpoint = self._caller.endpoint
        for one in together:
            try:
                given = one.body(endpoint)["input"]
            except SampleError as error:
                _fail(one, error)
                continue
            if isinstance(given, str) and sum(map(len, inputs)) + len(given) <= MOST_CHARACTERS:
                inputs.append(given)
                fit.append(one)
            else:
                alone.append(one)
        if len(fit) < 2:
            return fit + alone
        try:
            scores = await self._caller.ask_once(
                [one.effort for one in fit],
                SCORE_PATH,
                {"model": endpoint.served_name, "input": inputs},
                lambda status, body, label: read_scores(status, body, label, count=len(inputs)),
            )
        except asyncio.CancelledError:
            for one in fit:
                if one.effort.attempts:
                    self._caller.given_up()
            raise
        if scores is None:
            return fit + alone
        for one, score in zip(fit, scores, strict=True):
            if one.score.done():
                self._caller.given_up()
            else:
                one.score.set_result(score)
        return alone

    async def _send_alone(self, one: Waiting) -> None:
        if one.score.done():
            if one.effort.attempts:
                self._caller.given_up()
            return
        try:
            score = await self._caller.ask(one.effort, SCORE_PATH, one.body, read_score)
        except (SampleError, PoolError) as error:
            _fail(one, error)
        else:
            if not one.score.done():
                one.score.set_result(score)


def _fail(one: Waiting, error: SampleError | PoolError) -> None:
    if not one.score.done():
        one.score.set_exception(error)
