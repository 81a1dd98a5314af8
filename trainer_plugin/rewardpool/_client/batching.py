"""Several samples in one request, where more of them wait than the slots can take.

    a slot is free -> as many samples as its share of those that wait -> one request -> each its score
                                                                      -> an error: each sent alone, as without batches

Batches are not waited for: with a free slot a sample goes at once and alone, and the last ones of a burst go
alone beside each other. So the slots are as full as without batches. Routers count requests, and autoscaling is about
samples: the job's demand says how many of them a request has (`Demand.samples_per_request`).

A request costs client, router and worker about the same whatever is in it, so batches win where samples are small and
scoring them is quick: with `batch: auto`, `rules/batch_size.py` finds out. Long ones are not put together, and neither
are token ids, which not every router takes in lists.
"""

import asyncio
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rewardpool._client.answer import Score, read_scores
from rewardpool._client.report import Counters
from rewardpool._client.request import ScoreRequest
from rewardpool._client.rules.batch_size import BatchSize
from rewardpool._client.rules.limiter import Queue
from rewardpool._client.rules.retry import RetryableError
from rewardpool._client.transport import Connections
from rewardpool._config import AUTO_BATCH
from rewardpool._discovery.endpoint import Endpoint
from rewardpool.errors import DeadlineError, SampleError
from rewardpool_api.contract import SCORE_PATH, AnsweringWorker

log = logging.getLogger(__name__)

# Characters of one request's samples together.
MOST_CHARACTERS = 65_536


def share(*, waiting: int, slots: int, most: int) -> int:
    """Return the number of samples of the next request, at least 1: the waiting ones, spread over all slots."""
    return max(1, min(most, math.ceil(waiting / slots)))


class Batcher(Queue[ScoreRequest[Score]]):
    """The queue of one `Pool`, from which samples that wait go together."""

    def __init__(self, connections: Connections, counters: Counters, *, most: int | None) -> None:
        """Create a batcher of at most `most` samples in a request; with None, as many as turn out best."""
        super().__init__()
        self.connections = connections
        self.counters = counters
        self._most = most
        self._now = asyncio.get_running_loop().time
        config = connections.config
        self._size = BatchSize(slots=config.concurrency, timeout=config.timeout, most=AUTO_BATCH)
        self._in_flight = 0
        connections.queues.add(self.expire_before)

    def add(self, request: ScoreRequest[Score]) -> None:
        request.wait_in(self)
        self._waiting[request] = None
        self._send_what_fits()

    def _send_what_fits(self) -> None:
        while self._waiting and self._in_flight < self.connections.concurrency:
            most = self._size.limit if self._most is None else self._most
            count = share(waiting=len(self._waiting), slots=self.connections.concurrency, most=most)
            self._in_flight += 1
            if count == 1:
                request, _ = self._waiting.popitem(last=False)
                request.leave_queue()
                self.send_alone(request, self._alone_ended)
            else:
                Batch(self, [self._waiting.popitem(last=False)[0] for _ in range(count)]).send()

    def send_alone(self, request: ScoreRequest[Score], ended: Callable[[ScoreRequest[Any]], None]) -> None:
        request.add_done_callback(ended)
        self.counters.sent(1)
        request.send()

    def _alone_ended(self, request: ScoreRequest[Any]) -> None:
        self.request_ended(request)
        self.batch_ended()

    def request_ended(self, request: ScoreRequest[Any]) -> None:
        self.counters.ended(request.samples)
        if not request.is_answered:
            return
        waiting = len(self._waiting) >= self.connections.concurrency
        self._size.answered(request.samples, seconds=request.seconds, now=self._now(), waiting=waiting)

    def batch_ended(self) -> None:
        self._in_flight -= 1
        self._send_what_fits()


@dataclass(slots=True, eq=False, repr=False, kw_only=True)
class JointRequest(ScoreRequest[list[Score]]):
    texts: list[str]
    adapter: str | None
    """None for the model itself."""

    def content(self, endpoint: Endpoint) -> dict[str, Any]:
        return {**endpoint.model_fields, "input": self.texts}

    def read(self, status: int, body: bytes) -> list[Score]:
        return read_scores(status, body, self.label, count=len(self.texts), echo=self.echo, adapter=self.adapter)

    def worker_of(self, answer: list[Score]) -> AnsweringWorker:
        return answer[0].by.worker


class Batch(Queue[ScoreRequest[Score]]):
    """Samples that left the queue together; the next ones do once all of them have ended."""

    def __init__(self, batcher: Batcher, requests: list[ScoreRequest[Score]]) -> None:
        super().__init__()
        self._batcher = batcher
        self._requests = requests
        self._in_flight = 0
        self._together: list[ScoreRequest[Score]] = []
        self._joint: JointRequest
        self._used = 0.0
        """Seconds of its deadline that the first of them had used up."""

    def send(self) -> None:
        """Send what fits in one request together, and the others alone."""
        for request in self._requests:
            request.leave_queue()
        inputs = self._inputs()
        alone = [request for request in self._requests if request not in inputs]
        self._in_flight = len(alone) + (1 if inputs else 0)
        if inputs:
            self._send_together(inputs)
        for request in alone:
            self._batcher.send_alone(request, self._one_ended)

    def _inputs(self) -> dict[ScoreRequest[Score], str]:
        """Return the texts of one request, at least two samples."""
        inputs: dict[ScoreRequest[Score], str] = {}
        room = MOST_CHARACTERS
        for request in self._requests:
            try:
                text = request.content(self._batcher.connections.endpoint)["input"]
            except SampleError:
                continue  # which it meets again when it is sent alone
            # One that a single revision may score is refused by another: alone, and not with all others.
            if isinstance(text, str) and len(text) <= room and request.revision is None:
                inputs[request] = text
                room -= len(text)
        return inputs if len(inputs) > 1 else {}

    def _send_together(self, inputs: dict[ScoreRequest[Score], str]) -> None:
        endpoint = self._batcher.connections.endpoint
        self._together = list(inputs)
        for request in self._together:
            request.wait_in(self)
            self._waiting[request] = None
        self._used = max(request.seconds for request in self._together)
        self._joint = JointRequest(
            self._batcher.connections,
            self._batcher.counters,
            label=f"{self._together[0].label} and {len(inputs) - 1} others",
            path=SCORE_PATH,
            texts=list(inputs.values()),
            adapter=endpoint.adapter,
            samples=len(inputs),
            seconds=self._used,
        )
        self._joint.add_done_callback(self._answered)
        self._batcher.counters.sent(len(inputs))
        self._joint.send()

    def leave(self, waiter: ScoreRequest[Score]) -> None:
        """Remove a request that has ended; the joint one goes on for the others, if there are any."""
        super().leave(waiter)
        if not self._waiting:
            self._joint.cancel()

    def _answered(self, joint: ScoreRequest[list[Score]]) -> None:
        counters = self._batcher.counters
        if joint.attempts:
            counters.batched_samples += joint.samples
        took = joint.seconds - self._used
        for request in self._together:
            request.attempts, request.is_counted = joint.attempts, joint.is_counted
            request.seconds += took
        left = [request for request in self._together if not request.has_ended]
        if joint.is_counted:
            counters.cancelled += joint.samples - len(left)
        try:
            scores = dict(zip(self._together, joint.result(), strict=True))
        except (RetryableError, SampleError) as error:
            log.debug("sending %s alone: %s", joint.label, error)
            counters.batch_fallbacks += 1
            self._in_flight += len(left)
            for request in left:
                if isinstance(error, DeadlineError) and request.seconds >= error.seconds:
                    self._in_flight -= 1
                    request.finish(error=error.for_sample(request.label))
                else:
                    self._batcher.send_alone(request, self._one_ended)
        except BaseException as error:
            for request in left:
                request.finish(error=error)
        else:
            for request in left:
                request.finish(scores[request])
        self._one_ended(joint)

    def _one_ended(self, request: ScoreRequest[Any]) -> None:
        self._batcher.request_ended(request)
        self._in_flight -= 1
        if self._in_flight == 0:
            self._batcher.batch_ended()
