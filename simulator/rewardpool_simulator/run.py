"""One policy on one trace.

    wait    how much later the jobs ended than if every score had come at once, in seconds, summed over jobs
    stall   the part of the wait that a warm fleet of the trace's full size would have avoided
    GPU     GPU-seconds: replicas times seconds, from each one's creation to its end

For a trace of requests without jobs, the wait is the time in which any request was unanswered.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import Final

from rewardpool_control.autoscaler.signals import Announcement
from rewardpool_simulator.announcing import SimulatedAnnouncer, replayed_announcements
from rewardpool_simulator.draws import JobDraws
from rewardpool_simulator.events import Events
from rewardpool_simulator.fleet import Request, SimulatedFleet, SimulatedReplica
from rewardpool_simulator.policy import Policy
from rewardpool_simulator.pool_policy import Observation
from rewardpool_simulator.trace import Arrivals, Duration, Trace
from rewardpool_simulator.trainers import FleetScorer, InstantScorer, SimulatedTrainer

# A run is aborted after so many times the length of its trace, and not before `MIN_LIMIT_SECONDS`: under some policies
# the jobs never end.
MAX_LENGTH_FACTOR: Final = 4.0
MIN_LIMIT_SECONDS: Final = 3600.0


@dataclass(frozen=True, kw_only=True)
class JobResult:
    """The result of one job."""

    job: str
    ended_seconds: float | None
    """Seconds since the trace began; None where the run was aborted."""
    wait_seconds: float
    """Seconds by which the job ended later than with instant scores."""


@dataclass(frozen=True, kw_only=True)
class PolicyRun:
    """The result of one policy on one trace."""

    policy: str
    finished: bool
    seconds: float
    wait_seconds: float
    gpu_seconds: float
    changes: int
    peak: int
    answered: int
    retried: int
    jobs: tuple[JobResult, ...]


class OpenLoad:
    """Open-loop load: requests that come at fixed times, whatever the fleet does."""

    def __init__(
        self,
        arrivals: Sequence[Arrivals],
        service_seconds: Duration,
        scorer: FleetScorer,
        events: Events,
        *,
        seed: str,
    ) -> None:
        self.busy_seconds = 0.0
        self._left = sum(arrival.samples for arrival in arrivals)
        self._unanswered = 0
        self._busy_since = 0.0
        self._scorer = scorer
        self._events = events
        self._service_seconds = service_seconds
        self._random = Random(f"{seed}/crowd")
        for arrival in arrivals:
            apart = arrival.over_seconds / arrival.samples
            for number in range(arrival.samples):
                events.call_at(arrival.at_seconds + number * apart, self._submit, service_seconds.draw(self._random))

    @property
    def is_over(self) -> bool:
        return not self._left

    def _submit(self, service_seconds: float) -> None:
        if not self._unanswered:
            self._busy_since = self._events.now
        self._unanswered += 1
        self._scorer.submit(Request(service_seconds, self._on_response))

    def _on_response(self) -> None:
        self._left -= 1
        self._unanswered -= 1
        if not self._unanswered:
            self.busy_seconds += self._events.now - self._busy_since


# Each call creates a policy without history. RewardPool's own read the observation, others may ignore it.
PolicyFactory = Callable[[Observation], Policy]


def simulate(
    trace: Trace, make: PolicyFactory, *, seed: int = 0, on_progress: Callable[[float], None] | None = None
) -> PolicyRun:
    """Run one policy on a trace, as `Simulator.run` does."""
    return Simulator(trace, seed=seed).run(make, on_progress)


class Simulator:
    """Runs policies on one trace; what they share is computed once."""

    def __init__(self, trace: Trace, *, seed: int = 0) -> None:
        self._trace, self._seed = trace, seed
        self._draws = [JobDraws(job, trace.fleet.service_seconds, seed=str(seed)) for job in trace.jobs]

    def run(self, make: PolicyFactory, on_progress: Callable[[float], None] | None = None) -> PolicyRun:
        """Run one policy.

        Args:
            make: creates the policy.
            on_progress: called at every decision with the share of the trace that is done, 0 to 1.
        """
        ended = self.ends_with_instant_scores
        silent = on_progress or (lambda share: None)
        return _Simulation(self._trace, make, self._trainers, ended, seed=self._seed, on_progress=silent).run()

    @cached_property
    def ends_with_instant_scores(self) -> Mapping[str, float]:
        """When each job would end if scores took no time, in seconds since the trace began."""
        events = Events()
        trainers = self._trainers(InstantScorer(events), events)
        while events.run_next():
            pass
        return {trainer.job.name: trainer.ended or 0.0 for trainer in trainers}

    def _trainers(self, scorer: FleetScorer, events: Events) -> list[SimulatedTrainer[SimulatedAnnouncer]]:
        jobs = zip(self._trace.jobs, self._draws, strict=True)
        return [SimulatedTrainer(job, draws, scorer, events, SimulatedAnnouncer(job, events)) for job, draws in jobs]


class _Simulation:
    """One run, which is also the `Observation` of the policy."""

    def __init__(
        self,
        trace: Trace,
        make: PolicyFactory,
        trainers: Callable[[FleetScorer, Events], list[SimulatedTrainer[SimulatedAnnouncer]]],
        expected: Mapping[str, float],
        *,
        seed: int,
        on_progress: Callable[[float], None],
    ) -> None:
        self._trace, self._expected, self._on_progress = trace, expected, on_progress
        self._events = events = Events()
        self._fleet = SimulatedFleet(trace.fleet, events, seed=str(seed))
        self._trainers = trainers(self._fleet, events)
        self._open_load = OpenLoad(trace.arrivals, trace.fleet.service_seconds, self._fleet, events, seed=str(seed))
        self._policy = make(self)
        for loss in trace.faults.losses:
            events.call_at(loss.at_seconds, self._fleet.lose, loss.share)
        for shortage in trace.faults.shortages:
            events.call_at(shortage.from_seconds, self._fleet.limit_capacity, shortage.replicas)
            events.call_at(shortage.until_seconds, self._fleet.limit_capacity, None)
        events.call_at(0.0, self._decide)

    def run(self) -> PolicyRun:
        limit = max(MAX_LENGTH_FACTOR * self._trace.seconds, MIN_LIMIT_SECONDS)
        events = self._events
        events.run_until(self._trace.seconds)
        while events.now < limit and not self._is_over():
            events.run_next()
        jobs = tuple(self._result(trainer, self._expected[trainer.job.name]) for trainer in self._trainers)
        return PolicyRun(
            policy=self._policy.name,
            finished=self._is_over(),
            seconds=self._events.now,
            wait_seconds=sum(job.wait_seconds for job in jobs) + self._open_load.busy_seconds,
            gpu_seconds=self._fleet.gpu_seconds(),
            changes=self._fleet.changes,
            peak=self._fleet.peak,
            answered=self._fleet.answered,
            retried=self._fleet.retried,
            jobs=jobs,
        )

    @property
    def ready(self) -> Sequence[SimulatedReplica]:
        return self._fleet.ready

    @property
    def lacks_capacity(self) -> bool:
        return self._fleet.lacks_capacity

    @property
    def metrics_missing(self) -> bool:
        now = self._events.now
        return any(span.from_seconds <= now < span.until_seconds for span in self._trace.faults.blind)

    def announcements(self) -> tuple[Announcement, ...]:
        demands = (trainer.announcer.announcement() for trainer in self._trainers)
        recorded = replayed_announcements(self._trace.demands, now=self._events.now)
        return (*(one for one in demands if one is not None), *recorded)

    def _is_over(self) -> bool:
        return self._open_load.is_over and all(trainer.is_over for trainer in self._trainers)

    def _result(self, trainer: SimulatedTrainer[SimulatedAnnouncer], expected: float) -> JobResult:
        ended = self._events.now if trainer.ended is None else trainer.ended
        return JobResult(job=trainer.job.name, ended_seconds=trainer.ended, wait_seconds=ended - expected)

    def _decide(self) -> None:
        wanted = self._policy.decide(self._fleet.view())
        self._fleet.scale(max(0, min(wanted, self._trace.fleet.max_replicas)))
        self._on_progress(min(1.0, self._events.now / self._trace.seconds))
        self._events.call_later(self._policy.period_seconds, self._decide)
