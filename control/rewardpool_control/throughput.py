"""Work of each worker while it is busy: from what the routers counted, pass by pass. No clock, no calls.

Only time counts in which a worker had something to do at every pass. A measurement goes from one look at which answers
had come to another one, three seconds or more later: requests that began together end together, and a span that began
or ended between two such waves would count too few or too many.

    looks       |    |    |    |    |    |    |
    answers     0    0    8    8    8    16   16       8 answers in 3 looks
                          begins ------- ends

A router that was restarted counts from 0 again, and one that a worker is new to may: then a new measurement begins.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from rewardpool_control.autoscaler.signals import Throughput
from rewardpool_control.snapshot import Router, Worker

# Looks are about a second apart, and each is that uncertain.
SHORTEST_SECONDS: Final = 3.0
FEWEST_ANSWERS: Final = 4
# After so long fewer answers will do: a judge may take ten seconds for one.
LONGEST_SECONDS: Final = 30.0
# The worker may have had nothing to do between two looks that are further apart.
APART_SECONDS: Final = 3.0
FRESH_SECONDS: Final = 1.0
# Long enough for measurements of several workers to be valid at once, and short enough for none to be kept twice.
VALID_SECONDS: Final = 3.0


@dataclass(frozen=True, kw_only=True)
class Count:
    """Counts of the routers for one worker at one moment."""

    answered: Mapping[str, int]
    """Requests that it answered, by the name of the router that counted them."""
    in_flight: int

    def since(self, before: "Count") -> int | None:
        """Requests that it answered since; None when a router is new, is gone, or began to count anew."""
        if self.answered.keys() != before.answered.keys():
            return None
        more = [count - before.answered[router] for router, count in self.answered.items()]
        return sum(more) if all(one >= 0 for one in more) else None


@dataclass(frozen=True, kw_only=True)
class _Span:
    begun: float
    answered: int = 0
    in_flight: int


class BusyWorker:
    """The measurements of one worker. Times are monotonic seconds, and always given."""

    def __init__(self) -> None:
        self._last: tuple[float, Count] | None = None
        self._span: _Span | None = None
        self._measured: tuple[float, float, int] | None = None
        self.answered = 0
        """Requests between the last two looks, which may have missed all of those that take milliseconds."""

    def record(self, count: Count | None, *, now: float) -> tuple[float, int] | None:
        """Record what is seen at `now`; returns None for metrics that are missing.

        Returns:
            Requests a second, more than 0, and the least requests in flight meanwhile, not 0; None while nothing was
            measured in the last seconds.
        """
        before, self._last = self._last, None if count is None else (now, count)
        since = count.since(before[1]) if before is not None and count is not None else None
        self.answered = since or 0
        more = None
        if before is not None and count is not None and now - before[0] <= APART_SECONDS:
            more = since if min(count.in_flight, before[1].in_flight) > 0 else None
        if count is None or more is None:
            self._span = None
        elif more > 0:
            self._answered(more, count.in_flight, now=now)
        elif self._span is not None:
            self._span = replace(self._span, in_flight=min(self._span.in_flight, count.in_flight))
        if self._measured is None or now - self._measured[0] >= VALID_SECONDS:
            return None
        return self._measured[1:]

    def _answered(self, more: int, in_flight: int, *, now: float) -> None:
        span = self._span
        if span is not None:
            span = replace(span, answered=span.answered + more, in_flight=min(span.in_flight, in_flight))
            seconds = now - span.begun
            enough = span.answered >= FEWEST_ANSWERS or seconds >= LONGEST_SECONDS
            if seconds >= SHORTEST_SECONDS and enough:
                self._measured = (now, span.answered / seconds, span.in_flight)
                span = None
        self._span = span or _Span(begun=now, in_flight=in_flight)


class Throughputs:
    """Throughput of all workers of one pool, kept from pass to pass."""

    def __init__(self) -> None:
        self._busy: dict[str, BusyWorker] = {}

    def measure(self, workers: Sequence[Worker], routers: Sequence[Router], *, now: float) -> tuple[Worker, ...]:
        """The workers with their throughput, as of `now` in monotonic seconds."""
        # One that trainers were never sent to has nothing to count.
        asked = [router for router in routers if not router.deleting and (router.exposed or router.concealed)]
        if not all(router.answering and router.age_seconds <= FRESH_SECONDS for router in asked):
            # Some of them counted, and some did not: this look tells nothing.
            return tuple(workers)
        counts = _counts(asked)
        self._busy = {url: self._busy.get(url) or BusyWorker() for url in counts}
        measured = {url: busy.record(counts[url], now=now) for url, busy in self._busy.items()}
        return tuple(self._with_throughput(worker, measured.get(worker.url or "")) for worker in workers)

    def _with_throughput(self, worker: Worker, measured: tuple[float, int] | None) -> Worker:
        busy = self._busy.get(worker.url or "")
        if busy is None:
            return replace(worker, answered=0)
        worker = replace(worker, answered=busy.answered)
        if measured is None:
            return worker
        rate, in_flight = measured
        return replace(worker, throughput=Throughput(worker=worker.name, rate=rate, in_flight=in_flight))


def _counts(routers: Sequence[Router]) -> dict[str, Count | None]:
    """Return the counts by the URL of every worker that is on a router's list; None where a router does not say."""
    counts: dict[str, Count | None] = {}
    for router in routers:
        for entry in router.registered or ():
            known = counts.get(entry.url, Count(answered={}, in_flight=0))
            if known is None or entry.answered is None or entry.in_flight is None:
                counts[entry.url] = None
            else:
                answered = {**known.answered, router.name: entry.answered}
                counts[entry.url] = Count(answered=answered, in_flight=known.in_flight + entry.in_flight)
    return counts
