"""One policy against one trace.

    wait    how much later the jobs ended than if every score had come at the instant it was asked for, summed over jobs
    stall   the part of that which a fleet of the trace's full size, always warm, would not have cost
    GPU     replicas times seconds, from each one's making to its end

Where a trace has requests and no jobs, the wait is the time in which any request was unanswered.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import Final

from rewardpool_operator.autoscaler.signals import Announcement
from rewardpool_simulator.announcing import replayed
from rewardpool_simulator.draws import JobDraws
from rewardpool_simulator.events import Events
from rewardpool_simulator.fleet import Fleet, Replica, Request
from rewardpool_simulator.ours import Senses
from rewardpool_simulator.policy import Policy, View
from rewardpool_simulator.trace import Arrivals, Duration, Trace
from rewardpool_simulator.trainers import Instant, RequestHandler, Trainer

PATIENCE: Final = 4.0
"""A run is given up after so many times the length of its trace: with such a policy the jobs do not end."""
FEWEST_SECONDS: Final = 3600.0
"""And not before this."""


@dataclass(frozen=True, kw_only=True)
class JobResult:
    """How one job fared."""

    job: str
    ended_seconds: float | None
    """When it was over, since the trace began; None where it was given up."""
    wait_seconds: float
    """How much later that was than with instant scores."""


@dataclass(frozen=True, kw_only=True)
class Sight:
    """The fleet at one moment."""

    seconds: float
    requests: int
    desired: int
    ready: int


@dataclass(frozen=True, kw_only=True)
class Run:
    """What came of one policy on one trace."""

    policy: str
    finished: bool
    """Whether all jobs ended."""
    seconds: float
    """Length of the run."""
    wait_seconds: float
    gpu_seconds: float
    changes: int
    """How often another number of replicas was wanted."""
    peak: int
    """Most replicas that were wanted."""
    answered: int
    retried: int
    """Requests that were asked for again because their replica was lost."""
    jobs: tuple[JobResult, ...]
    sights: tuple[Sight, ...]
    """At each decision after which something was different; for charts and for finding out why."""


class Crowd:
    """Requests that come whatever the fleet does."""

    def __init__(
        self,
        arrivals: Sequence[Arrivals],
        service_seconds: Duration,
        handler: RequestHandler,
        events: Events,
        *,
        seed: str,
    ) -> None:
        self.busy_seconds = 0.0
        """In which any request was unanswered."""
        self._left = sum(arrival.samples for arrival in arrivals)
        self._unanswered = 0
        self._busy_since = 0.0
        self._handler = handler
        self._events = events
        self._service_seconds = service_seconds
        self._chance = Random(f"{seed}/crowd")
        for arrival in arrivals:
            apart = arrival.over_seconds / arrival.samples
            for number in range(arrival.samples):
                events.at(arrival.at_seconds + number * apart, self._ask, service_seconds.draw(self._chance))

    @property
    def is_over(self) -> bool:
        """Whether all of them came and were answered."""
        return not self._left

    def _ask(self, service_seconds: float) -> None:
        if not self._unanswered:
            self._busy_since = self._events.now
        self._unanswered += 1
        self._handler.ask(Request(service_seconds, self._take))

    def _take(self) -> None:
        self._left -= 1
        self._unanswered -= 1
        if not self._unanswered:
            self.busy_seconds += self._events.now - self._busy_since


PolicyMaker = Callable[[Senses], Policy]
"""Makes a policy without a past."""


def simulate(
    trace: Trace, make: PolicyMaker, *, seed: int = 0, on_progress: Callable[[float], None] | None = None
) -> Run:
    """Run one policy against a trace, as `Simulator.run` does."""
    return Simulator(trace, seed=seed).run(make, on_progress)


class Simulator:
    """Runs policies against one trace; what is the same for all of them is found out once."""

    def __init__(self, trace: Trace, *, seed: int = 0) -> None:
        """Prepare.

        Args:
            trace: what happens.
            seed: of all chance; the same seed gives the same runs.
        """
        self._trace, self._seed = trace, seed
        self._draws = [JobDraws(job, trace.fleet.service_seconds, seed=str(seed)) for job in trace.jobs]

    def run(self, make: PolicyMaker, on_progress: Callable[[float], None] | None = None) -> Run:
        """One policy's run.

        Args:
            make: of the policy.
            on_progress: called now and then with the share of the trace that is done, 0 to 1.
        """
        ended = self.ends_with_instant_scores
        silent = on_progress or (lambda share: None)
        return _Simulation(self._trace, make, self._trainers, ended, seed=self._seed, on_progress=silent).run()

    @cached_property
    def ends_with_instant_scores(self) -> Mapping[str, float]:
        """When each job would be over, in seconds since the trace began, if scores took no time."""
        events = Events()
        trainers = self._trainers(Instant(events), events)
        while events.next():
            pass
        return {trainer.job.name: trainer.ended or 0.0 for trainer in trainers}

    def _trainers(self, handler: RequestHandler, events: Events) -> list[Trainer]:
        jobs = zip(self._trace.jobs, self._draws, strict=True)
        return [Trainer(job, draws, handler, events) for job, draws in jobs]


class _Simulation:
    """One run; also what our own policies see (`ours.Senses`)."""

    def __init__(
        self,
        trace: Trace,
        make: PolicyMaker,
        trainers: Callable[[RequestHandler, Events], list[Trainer]],
        expected: Mapping[str, float],
        *,
        seed: int,
        on_progress: Callable[[float], None],
    ) -> None:
        self._trace, self._expected, self._on_progress = trace, expected, on_progress
        self._events = events = Events()
        self._fleet = Fleet(trace.fleet, events, seed=str(seed))
        self._trainers = trainers(self._fleet, events)
        self._crowd = Crowd(trace.arrivals, trace.fleet.service_seconds, self._fleet, events, seed=str(seed))
        self._sights: list[Sight] = []
        self._policy = make(self)
        for loss in trace.faults.losses:
            events.at(loss.at_seconds, self._fleet.lose, loss.share)
        for shortage in trace.faults.shortages:
            events.at(shortage.from_seconds, self._fleet.fit, shortage.replicas)
            events.at(shortage.until_seconds, self._fleet.fit, None)
        events.at(0.0, self._decide)

    def run(self) -> Run:
        """Until the trace and its jobs are over, or it is plain that they will not be."""
        limit = max(PATIENCE * self._trace.seconds, FEWEST_SECONDS)
        events = self._events
        events.go_on(self._trace.seconds)
        while events.now < limit and not self._is_over():
            events.next()
        jobs = tuple(self._result(trainer, self._expected[trainer.job.name]) for trainer in self._trainers)
        return Run(
            policy=self._policy.name,
            finished=self._is_over(),
            seconds=self._events.now,
            wait_seconds=sum(job.wait_seconds for job in jobs) + self._crowd.busy_seconds,
            gpu_seconds=self._fleet.gpu_seconds(),
            changes=self._fleet.changes,
            peak=self._fleet.peak,
            answered=self._fleet.answered,
            retried=self._fleet.retried,
            jobs=jobs,
            sights=tuple(self._sights),
        )

    @property
    def ready(self) -> Sequence[Replica]:
        """Replicas that take requests."""
        return self._fleet.ready

    @property
    def is_short(self) -> bool:
        """Whether a replica fits nowhere."""
        return self._fleet.is_short

    @property
    def is_blind(self) -> bool:
        """Whether the routers' metrics are missing."""
        now = self._events.now
        return any(span.from_seconds <= now < span.until_seconds for span in self._trace.faults.blind)

    def announcements(self) -> tuple[Announcement, ...]:
        """The last announcement of every job."""
        demands = (trainer.announcer.announcement() for trainer in self._trainers)
        recorded = replayed(self._trace.demands, now=self._events.now)
        return (*(one for one in demands if one is not None), *recorded)

    def _is_over(self) -> bool:
        return self._crowd.is_over and all(trainer.is_over for trainer in self._trainers)

    def _result(self, trainer: Trainer, expected: float) -> JobResult:
        ended = self._events.now if trainer.ended is None else trainer.ended
        return JobResult(job=trainer.job.name, ended_seconds=trainer.ended, wait_seconds=ended - expected)

    def _decide(self) -> None:
        view = self._fleet.view()
        self._fleet.scale(max(0, min(self._policy.decide(view), self._trace.fleet.max_replicas)))
        self._note(view)
        self._on_progress(min(1.0, self._events.now / self._trace.seconds))
        self._events.after(self._policy.period_seconds, self._decide)

    def _note(self, view: View) -> None:
        seen = (view.requests, self._fleet.desired, view.ready)
        last = self._sights[-1] if self._sights else None
        if last is None or seen != (last.requests, last.desired, last.ready):
            requests, desired, ready = seen
            self._sights.append(Sight(seconds=view.now, requests=requests, desired=desired, ready=ready))
