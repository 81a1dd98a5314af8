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
from collections import OrderedDict
from functools import partial

from rewardpool.client.answer import read_score, read_scores
from rewardpool.client.asking import Body, OnEnd
from rewardpool.client.caller import Caller
from rewardpool.client.effort import Effort
from rewardpool.errors import PoolError, SampleError
from rewardpool_api.contract import SCORE_PATH

MOST_CHARACTERS = 65_536
"""In the samples of one request."""


def share(*, waiting: int, slots: int, most: int) -> int:
    """How many samples the next request takes, at least 1: what is waiting, spread over all slots."""
    return max(1, min(most, math.ceil(waiting / slots)))


class Waiting:
    """A sample that waits for a slot, and then for its score."""

    def __init__(self, batcher: "Batcher", effort: Effort, body: Body, on_end: OnEnd[float]) -> None:
        """`on_end` receives the score, or the error in its place; once."""
        self.effort = effort
        self.body = body
        self.came = asyncio.get_running_loop().time()
        self.request: asyncio.Task[None] | None = None
        """The one that it is in; None while it waits for a slot."""
        self.has_ended = False
        self._batcher = batcher
        self._on_end = on_end

    def end(self, score: float | None = None, error: BaseException | None = None) -> None:
        """Tell the one who asked; only the first call counts."""
        if not self.has_ended:
            self.has_ended = True
            self._on_end(score, error)

    def give_up(self) -> None:
        """Nobody wants the score any more; the request goes on for the others, if there are any."""
        if not self.has_ended:
            self.end(error=asyncio.CancelledError())
            self._batcher.forget(self)

    @property
    def tasks(self) -> set[asyncio.Task[None]]:
        """Those that end with it: the request, when it is in it alone."""
        return {self.request} if self.request is not None and self._batcher.is_last(self) else set()


class Batcher:
    """Puts samples together for a `Caller`."""

    def __init__(self, caller: Caller, *, most: int) -> None:
        """At most `most` samples go into one request."""
        self._caller = caller
        self._most = most
        self._waiting: OrderedDict[Waiting, None] = OrderedDict()
        self._flying: dict[asyncio.Task[None], list[Waiting]] = {}
        caller.queues.add(self.expire_before)

    def expire_before(self, came: float) -> None:
        """End the samples that wait for a request since then, as `Slots` does with what waits for a slot."""
        for one in [one for one in self._waiting if one.came - one.effort.seconds <= came]:
            if self._waiting.pop(one, self) is not self:  # one that ends may end others
                one.end(error=self._caller.expired(one.effort, queued_at=one.came))

    def begin(self, effort: Effort, body: Body, on_end: OnEnd[float]) -> Waiting:
        """Score one sample; the arguments are those of `Asking`."""
        one = Waiting(self, effort, body, on_end)
        self._waiting[one] = None
        self._send_what_fits()
        return one

    def is_last(self, one: Waiting) -> bool:
        """Whether nobody else waits for the request that this one is in."""
        together = self._flying.get(one.request, ()) if one.request is not None else ()
        return all(other is one or other.has_ended for other in together)

    def forget(self, one: Waiting) -> None:
        """One that has ended needs no request; nor do those that it was with, if all have ended."""
        if one.request is None:
            self._waiting.pop(one, None)
        elif self.is_last(one):
            one.request.cancel()

    def _send_what_fits(self) -> None:
        while self._waiting and len(self._flying) < self._caller.concurrency:
            count = share(waiting=len(self._waiting), slots=self._caller.concurrency, most=self._most)
            together = [self._waiting.popitem(last=False)[0] for _ in range(count)]
            request = asyncio.create_task(self._send(together))
            for one in together:
                one.request = request
                one.effort.seconds += self._caller.unanswered_seconds(since=one.came)
            self._flying[request] = together
            request.add_done_callback(self._ended)

    def _ended(self, request: asyncio.Task[None]) -> None:
        together = self._flying.pop(request)
        failure = None if request.cancelled() else request.exception()
        for one in together:  # that have not: the event loop ends, or the pool was closed
            one.end(error=failure or asyncio.CancelledError())
        self._send_what_fits()

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
                one.end(error=error)
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
                {**endpoint.model_fields, "input": inputs},
                lambda status, body, label: read_scores(
                    status, body, label, count=len(inputs), adapter=endpoint.adapter
                ),
            )
        except asyncio.CancelledError:
            for one in fit:
                if one.effort.attempts:
                    self._caller.given_up()
            raise
        if scores is None:
            return fit + alone
        for one, score in zip(fit, scores, strict=True):
            if one.has_ended:
                self._caller.given_up()
            one.end(score)
        return alone

    async def _send_alone(self, one: Waiting) -> None:
        if one.has_ended:
            if one.effort.attempts:
                self._caller.given_up()
            return
        try:
            read = partial(read_score, adapter=self._caller.endpoint.adapter)
            score = await self._caller.ask(one.effort, SCORE_PATH, one.body, read)
        except (SampleError, PoolError) as error:
            one.end(error=error)
        else:
            one.end(score)
