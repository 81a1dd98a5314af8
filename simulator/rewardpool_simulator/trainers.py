"""Simulated training jobs: closed loops that continue when scores are there.

All three modes are one loop with two rules, by the number of rollouts that may run ahead of the updates (`ahead`):

- rollout k begins when rollout k-1 has ended and k - ahead updates are done: a synchronous job has none ahead, a
  one-step off-policy job one, a fully asynchronous job more;
- update k begins when update k-1 is done and its scores are there: all of rollout k's, or in a fully asynchronous job
  any `samples` that no update has used yet.

`draws.py` has the durations and service times, which are the same under every policy.
"""

from collections import deque
from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import Generic, Protocol, TypeVar

from rewardpool_simulator.draws import JobDraws
from rewardpool_simulator.events import Events
from rewardpool_simulator.fleet import Request
from rewardpool_simulator.trace import JobSpec


class FleetScorer(Protocol):
    """A fleet that answers requests."""

    def submit(self, request: Request) -> None:
        """Accept a request, and call its `on_response` once."""


class JobAnnouncer(Protocol):
    """Interface that a job calls, as in `SimulatedAnnouncer`."""

    def start(self) -> None:
        """Begin to announce: the job loads its model."""

    def rollout_begins(self) -> None:
        """Announce that the policy generates."""

    def samples_come(self, samples: int) -> None:
        """Count samples that are submitted to the client."""

    def update_begins(self) -> None:
        """Announce an update: all scores are there, and no rollout runs."""

    def set_stalled(self, is_stalled: bool) -> None:
        """Announce whether the trainer waits for scores alone."""

    def end(self) -> None:
        """Announce that no more samples will come."""

    def stop(self) -> None:
        """Renew nothing from now on: the job is dead."""


class InstantScorer:
    """A scorer that takes no time: what a job would do if scores cost nothing."""

    def __init__(self, events: Events) -> None:
        self._events = events

    def submit(self, request: Request) -> None:
        """Answer a request once its caller has returned."""
        self._events.call_later(0.0, request.on_response)


A = TypeVar("A", bound=JobAnnouncer)


class SimulatedTrainer(Generic[A]):
    """One training job."""

    def __init__(self, job: JobSpec, draws: JobDraws, scorer: FleetScorer, events: Events, announcer: A) -> None:
        self.job = job
        self.ended: float | None = None
        """When it ended or was killed, in seconds since the trace began; None before that."""
        self.submitted = 0
        self.scored = 0
        self.announcer = announcer
        self._draws = draws
        self._scorer = scorer
        self._events = events
        self._rollouts_begun = self._rollouts_done = 0
        self._updates_begun = self._updates_done = 0
        self._scored_of = [0] * job.steps
        self._in_flight = 0
        self._waiting: deque[Request] = deque()
        events.call_at(job.starts_at_seconds, self._start)

    @property
    def is_over(self) -> bool:
        return self.ended is not None

    def _start(self) -> None:
        self.announcer.start()
        self._events.call_later(self.job.load_seconds, self._advance)

    def _advance(self) -> None:
        step = self._updates_begun
        if step == self._updates_done and self._has_scores_of(step):
            self._updates_begun += 1
            self._events.call_later(self._draws.step(step).update_seconds, self._end_update)
        if self._can_start_rollout():
            self._start_rollout()
        self.announcer.set_stalled(self._is_stalled())

    def _has_scores_of(self, step: int) -> bool:
        if step == self.job.steps:
            return False
        if self.job.mode == "FullyAsync":
            return self.scored >= (step + 1) * self.job.samples
        return self._scored_of[step] == self.job.samples

    def _can_start_rollout(self) -> bool:
        step = self._rollouts_begun
        return step == self._rollouts_done and step < self.job.steps and step - self.job.ahead <= self._updates_done

    def _is_stalled(self) -> bool:
        return self._rollouts_begun == self._rollouts_done and self._updates_begun == self._updates_done

    def _start_rollout(self) -> None:
        step = self._rollouts_begun
        self._rollouts_begun += 1
        self.announcer.rollout_begins()
        drawn = self._draws.step(step)
        on_response = partial(self._on_score, step)
        requests = (Request(seconds, on_response) for seconds in drawn.service_seconds)
        self._events.call_each_later(drawn.arrivals, partial(self._submit_samples, requests))
        self._events.call_later(drawn.rollout_seconds, self._end_rollout)
        if step == self.job.dies_after_steps:
            self._events.call_later(drawn.rollout_seconds / 2, self._kill)

    def _submit_samples(self, requests: Iterator[Request], samples: int) -> None:
        if self.ended is not None:
            return
        self.submitted += samples
        self.announcer.samples_come(samples)
        self._waiting.extend(islice(requests, samples))
        self._send_waiting()

    def _send_waiting(self) -> None:
        waiting, most = self._waiting, self.job.callers
        while waiting and (most is None or self._in_flight < most):
            self._in_flight += 1
            self._scorer.submit(waiting.popleft())

    def _on_score(self, step: int) -> None:
        self._in_flight -= 1
        self.scored += 1
        self._scored_of[step] += 1
        if self.ended is not None:
            return
        if self._waiting:
            self._send_waiting()
        if self.scored == self.submitted:
            self._on_all_scored()
        if self._updates_begun == self._updates_done and self._has_scores_of(self._updates_begun):
            self._advance()

    def _on_all_scored(self) -> None:
        if self.scored == self.job.steps * self.job.samples:
            self.announcer.end()
        elif self._rollouts_begun == self._rollouts_done:
            self.announcer.update_begins()

    def _end_rollout(self) -> None:
        if self.is_over:
            return
        self._rollouts_done += 1
        self._advance()
        if self.scored == self.submitted:
            self._on_all_scored()

    def _end_update(self) -> None:
        if self.is_over:
            return
        self._updates_done += 1
        if self._updates_done == self.job.steps:
            self.ended = self._events.now
            return
        self._advance()

    def _kill(self) -> None:
        """End the job without a word to the pool; responses to what it sent are ignored."""
        self.ended = self._events.now
        self._waiting.clear()
        self.announcer.stop()
