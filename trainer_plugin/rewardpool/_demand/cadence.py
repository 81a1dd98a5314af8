"""The beat of a training job, learned from when its rollouts begin, and what it makes known of the next one.

    rollout begins --lead--> first sample --spread--> last sample    update begins --gap--> rollout begins …
    |<------------------------------------ every ------------------------------------------>|

How large a burst is, its spread and `every` are medians of the last few bursts, which one slow step does not move. So
is how many tokens its samples have, as far as the client knows them; of a first burst, those that came count. Gap and
lead are the shortest of them, because a pool that is warm too late stalls the trainer, and one that is warm too
early costs no more than the gaps differ (`next_gap`). What the trainer says wins over what was learned.

Two things would make the pool's own slowness part of the beat, and a slow pool would then be given less to do: samples
that come late because the client had no room for them are taken to have come when they would have, and time in which
the trainer stood still does not count towards the gap.

Times are seconds of one monotonic clock and given with every call; nothing here reads a clock.
"""

import operator
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from rewardpool_api.demand import LEASE_SECONDS, MAX_SAMPLES, MAX_SECONDS, MAX_TOKENS, Demand, Phase

# Older ones are forgotten.
MAX_BURSTS: Final = 7
# A shortest gap that is less than this share of the second shortest is an exception: nothing else was like it.
ALONE: Final = 0.75
# Fewer gaps than this have not shown yet how much they differ, nor what an exception is.
FEW: Final = 3
# Share of the shortest gap, where there are so few.
FEW_SHARE: Final = 0.9
# A trainer that waits for scores for less than this does not stand still.
STALL_SECONDS: Final = 1.0


@dataclass(frozen=True, kw_only=True)
class GivenCadence:
    """Figures that the trainer gives; None leaves one to be learned.

    Raises:
        ValueError: A figure is out of range.
        TypeError: A count is not a whole number.
    """

    samples: int | None = None
    steps: int | None = None
    """Bursts until the job is over."""
    every_seconds: float | None = None
    """Seconds from the beginning of one rollout to that of the next."""

    def __post_init__(self) -> None:
        for name in ("samples", "steps"):
            object.__setattr__(self, name, _count(name, getattr(self, name)))
        if self.every_seconds is not None and not 0 < self.every_seconds <= MAX_SECONDS:
            raise ValueError(f"every_seconds must be above 0 and at most {MAX_SECONDS:g}, and is {self.every_seconds}")


@dataclass
class _Burst:
    """One rollout with its samples, until the next one begins."""

    begun: float
    samples: int = 0
    # Samples whose tokens are known, and the tokens of those.
    tokens: int = 0
    measured: int = 0
    first: float = 0.0
    last: float = 0.0
    # The client had no room for samples that were ready.
    held_back_seconds: float = 0.0
    update_begun: float | None = None
    stood_still_seconds: float = 0.0
    # When the next one began.
    over: float | None = None

    @property
    def tokens_per_sample(self) -> float | None:
        return self.tokens / self.measured if self.measured else None

    @property
    def every(self) -> float | None:
        return None if self.over is None else self.over - self.begun

    @property
    def gap(self) -> float | None:
        if self.over is None or self.update_begun is None:
            return None
        return max(0.0, self.over - self.update_begun - self.stood_still_seconds)


def next_gap(gaps: Sequence[float]) -> float | None:
    """Return the seconds from the beginning of an update to the earliest next rollout; None where no gap is known.

    Args:
        gaps: the last ones, in seconds, in any order.
    """
    if not gaps:
        return None
    shortest, *others = sorted(gaps)
    if len(gaps) < FEW:
        return FEW_SHARE * shortest
    # One exception, as when an evaluation was left out, would warm the pool too early until it is forgotten.
    return others[0] if shortest < ALONE * others[0] else shortest


class Cadence:
    """Learned intervals of one job. Not for several threads at once."""

    def __init__(self, job: str, plan: GivenCadence, *, sees_all: bool = True) -> None:
        """Begin in the phase Starting; `sees_all` says whether the samples that come here are all of the job's."""
        self._job = job
        self._plan = plan
        self._sees_all = sees_all
        self._samples_given = plan.samples
        self._phase: Phase = "Starting"
        self._begun = 0
        # The last one is the present one.
        self._bursts: deque[_Burst] = deque(maxlen=MAX_BURSTS + 1)
        self._waiting = 0
        self._feeding = 0
        self._still_since: float | None = None

    @property
    def phase(self) -> Phase:
        return self._phase

    def rollout_begins(self, at: float, *, samples: int | None = None) -> None:
        """A burst begins; `samples` is its size and that of those to come.

        Raises:
            ValueError: `samples` is negative.
            TypeError: `samples` is not a whole number.
        """
        given = _count("samples", samples)
        if self._phase == "Ended":
            return
        if given is not None:
            self._samples_given = given
        if self._bursts:
            present = self._bursts[-1]
            present.stood_still_seconds = self._stood_still(at)
            present.over = at
        self._bursts.append(_Burst(begun=at))
        self._begun += 1
        self._phase = "Rollout"

    def update_begins(self, at: float) -> None:
        """The burst is over. Said again, or before the first burst, it changes nothing."""
        if self._phase == "Rollout":
            self._bursts[-1].update_begun = at
            self._phase = "Update"

    def ends(self) -> None:
        self._phase = "Ended"

    def samples_come(self, at: float, samples: int = 1, *, tokens: int | None = None) -> None:
        """The client was given so many samples to score, of so many tokens in all where that is known."""
        if not self._bursts:
            return
        burst = self._bursts[-1]
        came = at - burst.held_back_seconds
        if burst.samples == 0:
            burst.first = burst.last = max(burst.begun, came)
        burst.last = max(burst.last, came)
        burst.samples += samples
        if tokens is not None:
            burst.tokens += tokens
            burst.measured += samples

    def held_back(self, seconds: float) -> None:
        if self._bursts:
            self._bursts[-1].held_back_seconds += seconds

    def waits(self, at: float, change: int) -> None:
        """Count one thread of the trainer more (`change` is 1) or less (-1) that only waits for scores."""
        self._waiting += change
        self._notice_stall(at)

    def feeds(self, at: float, change: int) -> None:
        """Count an input more or less that may still bring samples: then the waiting tasks are not the whole job."""
        self._feeding += change
        self._notice_stall(at)

    def demand(self, at: float) -> Demand:
        if self._phase == "Ended":
            return Demand(job=self._job, phase="Ended")
        spread = _median(burst.last - burst.first for burst in self._counted())
        return Demand(
            job=self._job,
            phase=self._phase,
            samples=self._samples(),
            tokens=self._tokens(),
            starts_in_seconds=_until(self._next_samples(at), at),
            spread_seconds=_bounded(spread or 0.0),
            every_seconds=None if self._every is None else _bounded(self._every),
            ends_in_seconds=_until(self._end(at), at),
            stalled=self._still_since is not None and at - self._still_since >= STALL_SECONDS,
        )

    def _counted(self) -> list[_Burst]:
        """Bursts all of whose samples have come, as far as anybody knows, and that had any."""
        known = list(self._bursts)[: None if self._phase == "Update" else -1]
        return [burst for burst in known if burst.samples]

    def _samples(self) -> int | None:
        if self._samples_given is not None:
            return min(self._samples_given, MAX_SAMPLES)
        counted = self._counted()
        if not self._sees_all or not counted:
            return None
        usual = round(median(burst.samples for burst in counted))
        return min(max(usual, self._bursts[-1].samples), MAX_SAMPLES)

    def _tokens(self) -> int | None:
        usual = _median(burst.tokens_per_sample for burst in self._counted() or self._bursts)
        samples = self._samples()
        return None if usual is None or samples is None else min(round(samples * usual), MAX_TOKENS)

    @property
    def _every(self) -> float | None:
        return self._plan.every_seconds or _median(burst.every for burst in self._bursts)

    def _next_rollout(self, at: float) -> float | None:
        """Return the time of the next rollout, in the phase Update; that is now, once it is overdue."""
        present = self._bursts[-1]
        gap = next_gap([burst.gap for burst in self._bursts if burst.gap is not None])
        if self._plan.every_seconds is not None:
            return max(at, present.begun + self._plan.every_seconds)
        if gap is not None and present.update_begun is not None:
            return max(at, present.update_begun + gap + self._stood_still(at))
        return None if self._every is None else max(at, present.begun + self._every)

    def _next_samples(self, at: float) -> float | None:
        """Return the time of the next burst's first sample; None also where samples are coming now."""
        begins = self._next_rollout(at) if self._phase == "Update" else None
        if begins is None:
            return None
        return begins + min((burst.first - burst.begun for burst in self._counted()), default=0.0)

    def _end(self, at: float) -> float | None:
        """Return the time at which the job is over.

        In the update after the last burst that is not after `_next_samples`, which says that there is no next one.
        """
        left = None if self._plan.steps is None else self._plan.steps - self._begun
        if left is None or left < 0 or self._phase == "Starting":
            return None
        if self._phase == "Update":
            begins = self._next_samples(at)
            if begins is None or left == 0:
                return begins
            return None if self._every is None else begins + left * self._every
        if self._every is None:
            return None
        # A burst that goes on is not over before this announcement is.
        end = max(at, self._bursts[-1].begun + self._every) + left * self._every
        return max(at + LEASE_SECONDS, end)

    def _notice_stall(self, at: float) -> None:
        still = self._waiting > 0 and self._feeding == 0
        if still and self._still_since is None:
            self._still_since = at
        elif not still and self._still_since is not None:
            if self._bursts:
                self._bursts[-1].stood_still_seconds = self._stood_still(at)
            self._still_since = None

    def _stood_still(self, at: float) -> float:
        """Seconds of the present update in which the trainer stood still, up to now."""
        burst = self._bursts[-1]
        if self._still_since is None or burst.update_begun is None:
            return burst.stood_still_seconds
        return burst.stood_still_seconds + at - max(self._still_since, burst.update_begun)


def _count(name: str, value: int | None) -> int | None:
    """A count as Python's own int, also where numpy made it."""
    if value is None:
        return None
    count = operator.index(value)
    if count < 0:
        raise ValueError(f"{name} must not be negative, and is {count}")
    return count


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _until(moment: float | None, at: float) -> float | None:
    return None if moment is None else _bounded(moment - at)


def _bounded(seconds: float) -> float:
    return round(min(max(seconds, 0.0), MAX_SECONDS), 3)
