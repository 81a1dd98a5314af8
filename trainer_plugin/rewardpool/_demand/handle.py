"""`JobDemand`: by this a training loop says what it does, and the client which samples it is given.

with pool.demand(samples=1024, steps=100) as demand:
    for step in range(100):
        demand.rollout()
        ...  # samples go to the pool
        demand.update()
        ...
"""

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Self

from rewardpool._config import RewardConfig
from rewardpool._demand.announcer import DemandAnnouncer
from rewardpool._demand.cadence import STALL_SECONDS, Cadence, GivenCadence
from rewardpool._demand.job import acquire_name, is_switched_on, name_of, rank_of, ranks_of, release_name
from rewardpool._demand.report import DemandReport
from rewardpool._demand.writers import writer_for
from rewardpool._discovery.endpoint import Endpoint
from rewardpool_api.demand import MAX_TOKENS_PER_SAMPLE, MOST_PER_REQUEST, Demand
from rewardpool_api.job_scores import JobScores

log = logging.getLogger(__name__)


class JobDemand:
    """Announcement of a job's state and expectations to its pool, from its creation to `end`.

    Usable as a context manager. No call blocks, but `end` for at most 2 s; none raises because of the announcing. Any
    thread may call it. One that announces nothing (switched off, another rank, a pool of which only a URL is known)
    takes the same calls. Made after a fork, not before: threads do not survive one.
    """

    def __init__(
        self,
        job: str,
        cadence: Cadence,
        *,
        samples_per_request: Callable[[], float] = lambda: 1.0,
        tokens_per_sample: Callable[[], float | None] = lambda: None,
        score_wait: Callable[[], float | None] = lambda: None,
        scores: Callable[[], JobScores | None] = lambda: None,
        scored: Callable[[], int | None] = lambda: None,
    ) -> None:
        """Prepare; nothing is announced before `announce`."""
        self.job = job
        self._cadence = cadence
        self._samples_per_request = samples_per_request
        self._tokens_per_sample = tokens_per_sample
        self._score_wait = score_wait
        self._scores = scores
        self._scored = scored
        self._clock = time.monotonic
        self._lock = threading.RLock()  # reentrant, as a signal handler may `end` what its own thread just holds
        # Times and tokens of samples that the cadence does not know yet; nothing is locked for each.
        self._came: deque[tuple[float, int | None]] = deque()
        self._announcer: DemandAnnouncer | None = None
        self._silent_because = ""
        self._ended: Callable[[], None] = lambda: None

    @classmethod
    def silent(cls, because: str, job: str = "") -> Self:
        """Return a handle that announces nothing, for the reason given."""
        demand = cls(job, Cadence(job or "job", GivenCadence()))
        demand._silent_because = because
        return demand

    def announce(self, announcer: DemandAnnouncer, *, ended: Callable[[], None] = lambda: None) -> None:
        """Begin to announce; once. `ended` is called after the last word."""
        self._announcer = announcer
        self._ended = ended
        announcer.start()

    @property
    def is_announcing(self) -> bool:
        """True if it has begun and not ended."""
        return self._announcer is not None and self._cadence.phase != "Ended"

    def rollout(self, *, samples: int | None = None) -> None:
        """A rollout begins, and samples will come of it: `samples` over all ranks, if the number is known and new.

        Raises:
            ValueError: `samples` is negative.
            TypeError: `samples` is not a whole number.
        """
        with self._known() as cadence:
            cadence.rollout_begins(self._clock(), samples=samples)
        self._notify()

    def update(self) -> None:
        """The rollout is over: no more samples come before the next one. May be said more than once."""
        with self._known() as cadence:
            cadence.update_begins(self._clock())
        self._notify()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Within this block the trainer waits for scores and does nothing else.

        The streams of a pool know that by themselves; it is for loops that `submit`.
        """
        began = self._count(self._cadence.waits, 1)
        try:
            yield
        finally:
            if self._count(self._cadence.waits, -1) - began >= STALL_SECONDS:
                self._notify()

    def end(self) -> None:
        """The job needs nothing any more. Waits at most 2 s for that to be said; may be called again."""
        with self._known() as cadence:
            was_announcing = self.is_announcing
            cadence.ends()
        if was_announcing and self._announcer is not None:
            self._announcer.end()
            self._ended()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def now(self) -> Demand:
        """Return the demand that is announced at this moment."""
        with self._known() as cadence:
            demand = cadence.demand(self._clock())
        mean = round(min(max(self._samples_per_request(), 1.0), MOST_PER_REQUEST), 1)
        length, share = self._tokens_per_sample(), self._score_wait()
        known = {
            "samples_per_request": mean if mean > 1 else None,
            "tokens_per_sample": None if length is None else round(min(max(length, 1.0), MAX_TOKENS_PER_SAMPLE), 1),
            "score_wait": None if share is None else round(share, 3),
            "scores": self._scores(),
            "scored": self._scored(),
        }
        return demand.model_copy(update=known)

    def report(self) -> DemandReport:
        """Return whether the job is announced, how often it was, and why it is not."""
        if self._announcer is None:
            return DemandReport(job=self.job, problem=self._silent_because)
        return replace(self._announcer.report(), job=self.job)

    # What the client reports.

    def sample_comes(self, *, tokens: int | None = None) -> None:
        """The client was given a sample, of so many tokens where that is known."""
        if not self._silent_because:
            self._came.append((self._clock(), tokens))

    @contextmanager
    def holding_back(self) -> Iterator[None]:
        """Within this block the client takes no sample, because it has too many."""
        began = self._clock()
        try:
            yield
        finally:
            with self._known() as cadence:
                cadence.held_back(self._clock() - began)

    @contextmanager
    def feeding(self) -> Iterator[None]:
        """Within this block more samples may come by themselves, so that the waiting tasks are not the whole job."""
        self._count(self._cadence.feeds, 1)
        try:
            yield
        finally:
            self._count(self._cadence.feeds, -1)

    @contextmanager
    def _known(self) -> Iterator[Cadence]:
        """The cadence, which knows of all samples."""
        with self._lock:
            while self._came:
                at, tokens = self._came.popleft()
                self._cadence.samples_come(at, tokens=tokens)
            yield self._cadence

    def _count(self, what: Callable[[float, int], None], change: int) -> float:
        with self._lock:
            now = self._clock()
            what(now, change)
        return now

    def _notify(self) -> None:
        if self._announcer is not None:
            self._announcer.notify()


class JointDemand:
    """One job's demands for several pools, which announce the same; ends them all at the end of its `with` block."""

    def __init__(self, demands: Sequence[JobDemand]) -> None:
        self._demands = tuple(demands)

    def rollout(self) -> None:
        for demand in self._demands:
            demand.rollout()

    def update(self) -> None:
        for demand in self._demands:
            demand.update()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        with ExitStack() as stack:
            for demand in self._demands:
                stack.enter_context(demand.waiting())
            yield

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for demand in self._demands:
            demand.end()


def announced_demand(
    config: RewardConfig,
    endpoint: Callable[[], Endpoint],
    plan: GivenCadence,
    *,
    rank: int | None = None,
    ranks: int | None = None,
    samples_per_request: Callable[[], float] = lambda: 1.0,
    tokens_per_sample: Callable[[], float | None] = lambda: None,
    score_wait: Callable[[], float | None] = lambda: None,
    scores: Callable[[], JobScores | None] = lambda: None,
    scored: Callable[[], int] = lambda: 0,
) -> JobDemand:
    """Make a job's demand and announce it, where that is wanted, possible and this process's part.

    `samples_per_request` says what the requests in flight have in them, `tokens_per_sample` how long those are,
    `score_wait` the latest step's share, `scores` the figures of this process's raw scores, and `scored` how many
    samples of this process have scores; every rank is taken to have as many.

    Raises:
        ConfigError: An environment variable is wrong.
    """
    job = name_of(config, os.environ)
    if not is_switched_on(config, os.environ):
        return _silent("it is switched off", job)
    rank = rank_of(os.environ) if rank is None else rank
    if rank != 0:
        return JobDemand.silent(f"rank 0 does it, and this is rank {rank}", job)
    writer = writer_for(endpoint)
    if writer is None:
        return _silent(f"there is no place for it, as the pool was found by {endpoint().origin}", job)
    ranks = ranks_of(os.environ) if ranks is None else ranks
    where = f"{writer} {endpoint().pool}"
    job = acquire_name(job, where=where)
    demand = JobDemand(
        job,
        Cadence(job, plan, sees_all=ranks == 1),
        samples_per_request=samples_per_request,
        tokens_per_sample=tokens_per_sample,
        score_wait=score_wait,
        scores=scores,
        scored=lambda: ranks * scored(),
    )
    demand.announce(DemandAnnouncer(writer, demand.now), ended=lambda: release_name(job, where=where))
    log.info("announcing the demand of job %s to reward pool %s, by %s", job, endpoint().pool, writer)
    return demand


def _silent(because: str, job: str) -> JobDemand:
    log.info("not announcing the demand of job %s: %s", job, because)
    return JobDemand.silent(because, job)
