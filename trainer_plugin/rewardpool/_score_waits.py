"""Time of a step in which the trainer waited for nothing but scores, and the places of the samples meanwhile.

the trainer waits    ->  `ScoreWaits.waiting`
a sample's time      ->  `ScoreWaits.spent`, by the client
the step ends        ->  `ScoreWaits.lap`  ->  `score_wait`, which is pure  ->  a `ScoreWait`
"""

import math
import random
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Literal, NamedTuple, get_args

Part = Literal["queueing", "serving", "retries", "cold_starts"]
"""Places of a sample at a pool:

`queueing`: it waits for its turn at the client, at the router, or for a place of the worker; the network is in this.
`serving`: a worker has it. Of a server that does not say how long it worked, the whole time to its answer.
`retries`: an attempt that came to nothing, and the pause after it.
`cold_starts`: the pool has had no worker since the sample came. While a pool with workers grows, samples queue.
"""
PARTS: Final[tuple[Part, ...]] = get_args(Part)
# Answers by which workers' readiness is known.
MOST_ANSWERS: Final = 256
# Spans that are kept of a step; of more, a random choice.
MOST_SPANS: Final = 20_000


class Span(NamedTuple):
    """A time in which some samples were at one thing."""

    part: Part
    begin: float
    end: float
    samples: int = 1


@dataclass
class Wait:
    """A time in which the trainer waited for nothing but scores; seconds of one clock."""

    begin: float
    end: float = math.inf


@dataclass(frozen=True, kw_only=True)
class ScoreWait:
    """The share of a step in which the trainer waited for nothing but scores, and its parts, which add up to it.

    Each moment of waiting is divided equally among the samples that were at a pool then.

    Attributes:
        share: Of the step, from 0 to 1.
        queueing: Samples waited for their turn at the client, the router or the worker.
        serving: Workers had them.
        retries: Attempts that came to nothing, and the pauses after them.
        cold_starts: The pool had had no worker since they came.
        other: No sample was at a pool: functions of the job, tokenizers, the trainer's own work on scores.
    """

    share: float = 0.0
    queueing: float = 0.0
    serving: float = 0.0
    retries: float = 0.0
    cold_starts: float = 0.0
    other: float = 0.0

    @property
    def most(self) -> str:
        return max((*PARTS, "other"), key=lambda part: float(getattr(self, part)))


def score_wait(waits: Sequence[Wait], spans: Sequence[Span], *, begin: float, end: float) -> ScoreWait:
    """Return the share of the step from `begin` to `end`; what is outside of it does not count."""
    if end <= begin:
        return ScoreWait()
    changes: list[tuple[float, int, Part | None]] = []
    for one in waits:
        first, last = max(begin, one.begin), min(end, one.end)
        if first < last:
            changes += [(first, 1, None), (last, -1, None)]
    for span in spans:
        if begin < span.end and span.begin < min(end, span.end):
            changes += [(span.begin, span.samples, span.part), (span.end, -span.samples, span.part)]
    changes.sort(key=lambda change: change[0])
    samples: dict[Part, int] = dict.fromkeys(PARTS, 0)
    seconds: dict[str, float] = dict.fromkeys([*PARTS, "other"], 0.0)
    waiting = 0
    for (now, change, part), (after, _, _) in pairwise(changes):
        if part is None:
            waiting += change
        else:
            samples[part] += change
        if waiting > 0 and after > now:
            if count := sum(samples.values()):
                for each, number in samples.items():
                    seconds[each] += (after - now) * number / count
            else:
                seconds["other"] += after - now
    parts = {part: spent / (end - begin) for part, spent in seconds.items()}
    return ScoreWait(share=min(1.0, math.fsum(parts.values())), **parts)


class ReadyTimes:
    """Times at which the workers of a pool became ready, as far as their answers say."""

    def __init__(self) -> None:
        # When some answers came, and from when on their workers were ready; none has a later one from an earlier moment
        # on.
        self._answers: deque[tuple[float, float]] = deque(maxlen=MOST_ANSWERS)

    def answered(self, at: float, ready: float, *, since: float) -> float:
        """Record an answer of a worker, and return when the first worker was ready, or later.

        It is later where a worker from before has answered nothing since, as one that is slow.

        Args:
            at: When it came, no earlier than those before; seconds of one clock.
            ready: From when on its worker was ready.
            since: Only workers that have answered since then count, that of this answer among them.
        """
        while self._answers and self._answers[-1][1] >= ready:
            self._answers.pop()
        self._answers.append((at, ready))
        return next(first for came, first in self._answers if came >= since)


class ScoreWaits:
    """Records them for one trainer's process; samples may be at the pools of any thread.

    Args:
        begin: When the first step began, by `time.monotonic`; None where that is not known, and then the first step
            has no share.
    """

    def __init__(self, *, begin: float | None = None) -> None:
        self._clock: Callable[[], float] = time.monotonic
        self._begin = begin
        self._waits: list[Wait] = []
        # Nothing before it counts as a wait.
        self._since = math.inf
        self._spans: list[Span] = []
        # The share of spans that are kept.
        self._kept = 1.0
        self.latest: ScoreWait | None = None
        """None before the first step that has a share."""

    @contextmanager
    def waiting(self) -> Iterator[Wait]:
        """Within this block the trainer waits for nothing but scores; it may say later that this began later."""
        wait = Wait(self._clock())
        self._waits.append(wait)
        self._since = min(self._since, wait.begin)
        try:
            yield wait
        finally:
            wait.end = self._clock()

    def spent(self, part: Part, begin: float, end: float, *, samples: int = 1) -> None:
        """Record what samples were at, when that has ended."""
        if end <= self._since or end <= begin:
            return
        if self._kept < 1.0 and random.random() >= self._kept:  # noqa: S311 - no secret
            return
        self._spans.append(Span(part, begin, end, samples))
        if len(self._spans) >= MOST_SPANS:
            self._spans = random.sample(self._spans, MOST_SPANS // 2)
            self._kept /= 2

    def lap(self) -> ScoreWait | None:
        """Return the share of the step that ends now; None for the first one, where it is not known when it began."""
        begin, self._begin = self._begin, self._clock()
        waits, spans = self._waits, self._spans
        self._waits = [one for one in waits if one.end == math.inf]
        self._since = self._begin if self._waits else math.inf
        self._spans, self._kept = [], 1.0
        if begin is None:
            return None
        self.latest = score_wait(waits, spans, begin=begin, end=self._begin)
        return self.latest
