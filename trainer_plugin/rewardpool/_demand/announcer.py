"""Keeps saying a job's demand while the job lives: three times as often as it would lapse, and at once when it changes.

It has a thread of its own, with an event loop of its own, because it must go on while the trainer's is busy: an update
step blocks the trainer's event loop for as long as it takes, and computes on its thread. Python code hands the GIL over
every few milliseconds; an extension that keeps it for seconds holds this thread up as well, which a demand outlasts for
two renewals. The thread is a daemon and does not survive its process, however that ends: then renewals stop, the demand
lapses, and the pool is let go.

Nothing here raises into training. A place that is away is tried again, ever slower up to the usual pace, and said once
in the log, and once more when it is back. A missing right is said once and ends it, but not at the first refusal: an
API server that has just started refuses everything until it has read who may do what.
"""

import asyncio
import logging
import random
import threading
import time
from collections.abc import Callable

from rewardpool._backoff import pause_seconds
from rewardpool._demand.report import DemandReport
from rewardpool._demand.writers import DemandWriter, NotWrittenError
from rewardpool_api.demand import LEASE_SECONDS, Demand

log = logging.getLogger(__name__)

RENEW_SECONDS = LEASE_SECONDS / 3
# Between two writes, at least.
WRITE_SECONDS = 0.5
# Between two checks for changes that come by themselves, such as that the trainer waits.
LOOK_SECONDS = 1.0
# By this factor more or fewer samples in a request, or tokens in a sample, are a change.
MUCH_MORE = 1.5
# A place that refuses for so long, without a break, will go on refusing.
REFUSED_SECONDS = float(LEASE_SECONDS)
# Limit of the last announcement of a job that ends; without it the demand lapses by itself.
END_SECONDS = 2.0


class DemandAnnouncer:
    """Says one job's demand; `start` it once."""

    def __init__(
        self,
        writer: DemandWriter,
        demand: Callable[[], Demand],
        *,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], object] | None = None,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        """Prepare; `demand` is called on the announcer's thread.

        Args:
            wait: Returns after so many seconds, or earlier when something changed; by default on this object's event.
            uniform: A random number between two bounds, for the jitter of pauses.
        """
        self._writer = writer
        self._demand = demand
        self._clock = clock
        self._changed = threading.Event()
        self._wait = wait or self._wait_for_change
        self._uniform = uniform
        self._given_up = False
        self._thread = threading.Thread(target=self.run, name="rewardpool-demand", daemon=True)
        self._failed_in_a_row = 0
        self._refused_since: float | None = None
        self._is_known_away = False
        self._said = False
        self._renewals = 0
        self._failures = 0
        self._problem = ""

    def start(self) -> None:
        self._thread.start()

    def notify(self) -> None:
        """Notify it that the demand may have changed; returns at once. Any thread may call it."""
        self._changed.set()

    def end(self) -> None:
        """Wait for the last word, for at most `END_SECONDS`; the demand must be one that ended by now."""
        self.notify()
        self._thread.join(END_SECONDS)
        if self._thread.is_alive():
            self._given_up = True
            log.warning(
                "%s did not take the end of this job's demand within %g s; it lapses %d s after its last renewal%s",
                self._writer,
                END_SECONDS,
                LEASE_SECONDS,
                f": {self._problem}" if self._problem else "",
            )

    def report(self) -> DemandReport:
        return DemandReport(
            announced=self._said, renewals=self._renewals, failures=self._failures, problem=self._problem
        )

    def run(self) -> None:
        """Announce the demand until it ended, or may not be announced; the body of the thread."""
        try:
            with asyncio.Runner() as loop:
                while not self._given_up and self._write(loop):
                    pass
                loop.run(self._writer.close())
        except Exception as error:  # a fault of ours, which is no reason to end a training job
            self._said = False
            self._problem = f"{type(error).__name__}: {error}"
            log.exception("the demand of this job is not announced any more")

    def _write(self, loop: asyncio.Runner) -> bool:
        """Write once, and pause until that is to be done again; False when it is not."""
        demand = self._demand()
        began = self._clock()
        try:
            loop.run(self._writer.write(demand))
        except NotWrittenError as error:
            self._note_failure(error)
            if self._is_refused_for_good(error, at=began):
                return False
            pause = pause_seconds(self._failed_in_a_row, uniform=self._uniform)
        else:
            self._note_success()
            if demand.phase == "Ended":
                return False
            pause = self._uniform(0.8, 1.0) * RENEW_SECONDS
        self._pause(demand, until=began + pause)
        return True

    def _note_failure(self, error: NotWrittenError) -> None:
        self._said = False
        self._failures += 1
        self._failed_in_a_row += 1
        self._problem = str(error)
        if not error.is_refused and not self._is_known_away:
            self._is_known_away = True
            log.warning("the demand of this job is not announced at present, and tried again: %s", error)

    def _is_refused_for_good(self, error: NotWrittenError, *, at: float) -> bool:
        if not error.is_refused:
            self._refused_since = None
            return False
        if self._refused_since is None:
            self._refused_since = at
        if at - self._refused_since < REFUSED_SECONDS:
            return False
        log.warning("the demand of this job is not announced any more: %s", error)
        return True

    def _note_success(self) -> None:
        if self._is_known_away:
            log.warning("the demand of this job is announced again, after %d failures", self._failed_in_a_row)
        self._said = True
        self._renewals += 1
        self._failed_in_a_row = 0
        self._refused_since = None
        self._is_known_away = False
        self._problem = ""

    def _pause(self, said: Demand, *, until: float) -> None:
        """Return when it is time to write again: not before `WRITE_SECONDS`, then at a change or at the given time."""
        earliest = self._clock() + WRITE_SECONDS
        while not self._given_up:
            now = self._clock()
            due = earliest if _differ(said, self._demand()) else max(earliest, until)
            if now >= due:
                return
            self._wait(min(due - now, LOOK_SECONDS))

    def _wait_for_change(self, seconds: float) -> None:
        self._changed.wait(seconds)
        self._changed.clear()


def _differ(said: Demand, demand: Demand) -> bool:
    """Return whether the change must be announced before the next renewal."""
    return (
        (said.phase, said.stalled) != (demand.phase, demand.stalled)
        or _is_much_more(said.samples_per_request, demand.samples_per_request)
        or _is_much_more(said.tokens_per_sample, demand.tokens_per_sample)
    )


def _is_much_more(before: float | None, after: float | None) -> bool:
    less, more = sorted((before or 1.0, after or 1.0))
    return more > MUCH_MORE * less
