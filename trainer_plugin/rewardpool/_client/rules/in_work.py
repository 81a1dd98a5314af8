"""Requests that workers have in work, so that none of these is sent again.

A router hands on whole answers only: a request in work looks like one at a silent worker. But both routers answer
`GET /engine_metrics` with the metrics of all workers, among them a line for each request (`rewardpool_worker.in_work`),
and they do not answer it while a worker is silent: stopped, or its packets dropped.

    a request is slow -> the workers are asked -> its line is there          -> in work: it is left alone
                                               -> they answer, and it is not -> lost: no worker has it
                                               -> no answer, or a late one   -> silent: one of the workers
                                               -> no line of this kind       -> unknown: another server

One question serves all requests of the process. A router asks all its workers for it, so a process asks the more
seldom the more processes have requests there, and the more workers there are (`pause_between`). A line says as well
how long the function has worked on the request: what it waited for a place does not count against its deadline. The
workers' places are what the pool can do at once.
"""

import asyncio
import math
import random
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Literal, NamedTuple

from rewardpool._client.connections.exchange import Exchange, HttpAnswer
from rewardpool_api.contract import InvalidResponseError
from rewardpool_api.names import SERIES_PLACES, SERIES_REQUEST_SECONDS

Verdict = Literal["in_work", "lost", "silent", "unknown", "asking"]

# A worker lists a request so long after it was sent.
ARRIVAL_SECONDS = 0.1
# How long an answer is waited for; it takes milliseconds. Where the last one took longer, twice as long as that one.
PATIENCE_SECONDS = 0.25
MOST_PATIENCE_SECONDS = 2.0
# After this an error of the router says that a worker is silent: it waits 5 s for each.
SILENCE_SECONDS = 4.0
# An answer is good for this long, and a quarter of the time that the request has taken.
LEAST_AGE_SECONDS = 0.5
MOST_AGE_SECONDS = 15.0
# A router waits 5 s for each of its workers.
QUESTION_SECONDS = 10.0
PAUSE_SECONDS = 0.5
# All trainers of a pool of up to 10 workers together ask it so often.
QUESTIONS_PER_SECOND = 100
# With more workers, of each of which a question reads the metrics, this is the bound.
SCRAPES_PER_SECOND = 1_000
# No pool has more.
MOST_PLACES = 1_000_000
# After this time a server that lists nothing is asked again.
UNKNOWN_AGE_SECONDS = 60.0

_LINE = re.compile(rb"^(%b|%b)\{([^}\n]*)\} (\S+)$" % (SERIES_REQUEST_SECONDS.encode(), SERIES_PLACES.encode()), re.M)
_REQUEST = re.compile(rb'(?:^|,)request="([A-Za-z0-9-]{1,128})"')


class Listing(NamedTuple):
    asked_at: float
    """By the loop's clock."""
    places: int
    """Of all workers; 0 if none reports them."""
    seconds: dict[str, float]
    """Working time of each request, by its id; 0 while it waits for a place."""
    workers: int

    @property
    def is_ours(self) -> bool:
        """True if any worker lists its requests."""
        return self.places > 0

    @property
    def processes(self) -> int:
        """Names of the processes whose requests the workers have; a request's id begins with that name."""
        return len({request_id.rpartition("-")[0] for request_id in self.seconds})


def read_listing(body: bytes, *, asked_at: float) -> Listing:
    """Read what the router answers with status 200; lines of other kinds are skipped. Pure."""
    places, workers = 0.0, 0
    seconds: dict[str, float] = {}
    for name, labels, text in _LINE.findall(body):
        try:
            value = float(text)
        except ValueError:
            continue
        if not 0 <= value < math.inf:
            continue
        if name == SERIES_PLACES.encode():
            places = min(MOST_PLACES, places + value)
            workers += 1
        elif (request := _REQUEST.search(labels)) is not None:
            # Two workers have one request while a hedge races: the longest work counts.
            request_id = request[1].decode()
            seconds[request_id] = max(value, seconds.get(request_id, 0.0))
    return Listing(asked_at, int(places), seconds, workers)


def pause_between(listing: Listing) -> float:
    """Return the seconds between two questions of one process, of as many as ask. Pure."""
    return listing.processes * max(1 / QUESTIONS_PER_SECOND, listing.workers / SCRAPES_PER_SECOND)


class Inquiry(Exchange):
    __slots__ = ("asked_at", "in_work")

    def __init__(self, in_work: "InWork", asked_at: float) -> None:
        super().__init__()
        self.in_work = in_work
        self.asked_at = asked_at

    def answered(self, answer: HttpAnswer) -> None:
        self.in_work.answered(self, answer)

    def failed(self, error: Exception) -> None:
        self.in_work.failed(error)


class InWork:
    """Knowledge of requests that workers have begun, on the running event loop."""

    def __init__(
        self,
        *,
        ask: Callable[[Inquiry], None],
        clock: Callable[[], float],
        listed: Callable[[Listing], None] = lambda _: None,
        most_pause: float = MOST_AGE_SECONDS,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        """Create it without a question.

        Args:
            clock: The loop's time.
            listed: Called with what the workers say.
            most_pause: Seconds between two questions, however many trainers ask.
            uniform: A random number between two bounds, so that trainers do not ask together.
        """
        self._ask = ask
        self._clock = clock
        self._listed = listed
        self._most_pause = min(MOST_AGE_SECONDS, most_pause)
        self._uniform = uniform
        # Seconds from one question to the next; longer the more others ask.
        self._pause = 0.0
        self._listing: Listing | None = None
        self._inquiry: Inquiry | None = None
        self._is_answered = asyncio.Event()
        self._asked_at = -math.inf
        self._patience = PATIENCE_SECONDS
        # The last question was not answered in time.
        self._is_late = False
        # The last question failed, for which the router takes 5 s.
        self._is_silent = False
        self._unknown_until = -math.inf
        # Earliest time of the next question, after one that failed.
        self._not_before = -math.inf

    def verdict(self, request_id: str, *, sent_at: float, is_urgent: bool = True) -> Verdict:
        """Return where a request is; asks the workers where their last answer is too old.

        Args:
            sent_at: When it was sent (the loop's time).
            is_urgent: Whether its answer is overdue by what is usual. Else, and where it was in work when the workers
                answered last, an answer that is only late is no silence: the machine may be busy.
        """
        now = self._clock()
        if now < self._unknown_until:
            return "unknown"
        if (listing := self._fresh(sent_at, now)) is not None:
            return "in_work" if request_id in listing.seconds else "lost"
        if self._inquiry is not None and now - self._inquiry.asked_at >= QUESTION_SECONDS:
            self._give_up()
        if self._inquiry is None:
            if now >= max(self._not_before, self._asked_at + self._pause):
                self._send(now)
        elif now - self._inquiry.asked_at >= self._patience:
            self._is_late = True
        was_in_work = self._listing is not None and request_id in self._listing.seconds
        is_silent = self._is_late if is_urgent and not was_in_work else self._is_silent
        return "silent" if is_silent else "asking"

    def refresh(self, now: float, *, older_than: float) -> None:
        """Ask the workers unless their last answer, or a question, is younger than so many seconds."""
        if self._inquiry is not None and now - self._inquiry.asked_at >= QUESTION_SECONDS:
            self._give_up()
        may_ask = self._inquiry is None and now >= max(self._unknown_until, self._not_before)
        if may_ask and now - self._asked_at >= max(older_than, self._pause):
            self._send(now)

    def _give_up(self) -> None:
        inquiry, self._inquiry = self._inquiry, None
        if inquiry is not None:
            inquiry.cancel()
        self._is_late = self._is_silent = True

    def _send(self, now: float) -> None:
        self._asked_at = now
        self._inquiry = Inquiry(self, now)
        self._ask(self._inquiry)

    def worked_seconds(self, request_id: str) -> tuple[float, float] | None:
        """Return for how long a worker had worked on a request, and when that was asked; None where no worker said."""
        if self._listing is None or request_id not in self._listing.seconds:
            return None
        return self._listing.seconds[request_id], self._listing.asked_at

    async def poll(self, *, within: float) -> None:
        """Ask the workers, and wait for at most so many seconds until they have answered."""
        self._is_answered.clear()
        self.refresh(self._clock(), older_than=0.0)
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                await self._is_answered.wait()

    def close(self) -> None:
        if self._inquiry is not None:
            self._inquiry.cancel()

    def _fresh(self, sent_at: float, now: float) -> Listing | None:
        listing = self._listing
        if listing is None or listing.asked_at < sent_at + ARRIVAL_SECONDS:
            return None
        longest = min(MOST_AGE_SECONDS, max(LEAST_AGE_SECONDS, (now - sent_at) / 4, self._pause))
        return listing if now - listing.asked_at <= longest else None

    def answered(self, inquiry: Inquiry, answer: HttpAnswer) -> None:
        self._inquiry = None
        self._is_answered.set()
        if 300 <= answer.status < 500 or answer.status == 501:
            self._unknown_until = self._clock() + UNKNOWN_AGE_SECONDS
            return
        took = self._clock() - inquiry.asked_at
        if answer.status != 200:
            self._not_before = self._clock() + PAUSE_SECONDS
            self._is_late = True
            self._is_silent = took >= SILENCE_SECONDS
            return
        listing = read_listing(answer.body, asked_at=inquiry.asked_at)
        if not listing.is_ours:
            self._unknown_until = self._clock() + UNKNOWN_AGE_SECONDS
            return
        self._patience = min(MOST_PATIENCE_SECONDS, max(PATIENCE_SECONDS, 2 * took))
        self._is_late = self._is_silent = False
        self._listing = listing
        self._pause = min(self._most_pause, pause_between(listing) * self._uniform(1.0, 1.25))
        self._listed(listing)

    def failed(self, error: Exception) -> None:
        self._inquiry = None
        self._is_answered.set()
        if isinstance(error, InvalidResponseError):
            self._unknown_until = self._clock() + UNKNOWN_AGE_SECONDS
        else:
            self._not_before = self._clock() + PAUSE_SECONDS
            self._is_late = self._is_silent = True
