"""Training jobs, simulated: loops that go on when scores are there.

All three modes are one loop with two rules, by the number of rollouts that may run ahead of the updates (`ahead`):

- rollout k begins when rollout k-1 has ended and k - ahead updates are done: none ahead is a synchronous job, one is
  one-step off-policy, more are fully asynchronous;
- update k begins when update k-1 is done and the scores for it are there: all of rollout k's, and in a fully
  asynchronous job any `samples` that no update has had yet.

What a rollout brings, and what each sample takes to score, is in `draws.py`: the same under every policy.
"""

from collections import deque
from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import Protocol

from rewardpool_simulator.announcing import Announcer
from rewardpool_simulator.draws import JobDraws
from rewardpool_simulator.events import Events
from rewardpool_simulator.fleet import Request
from rewardpool_simulator.trace import JobSpec


class RequestHandler(Protocol):
    """Whatever answers requests."""

    def ask(self, request: Request) -> None:
        """A request comes; `request.answered` is called once."""


class Instant:
    """A handler that takes no time: what a job would do if scores cost nothing."""

    def __init__(self, events: Events) -> None:
        self._events = events

    def ask(self, request: Request) -> None:
        """Answer it, though not before its caller has done calling."""
        self._events.after(0.0, request.answered)


class Trainer:
    """One job."""

    def __init__(self, job: JobSpec, draws: JobDraws, handler: RequestHandler, events: Events) -> None:
        self.job = job
        self.ended: float | None = None
        """When it was over, or dead; None before that."""
        self.submitted = 0
        """Samples whose score was wanted."""
        self.scored = 0
        self.announcer = Announcer(job, events)
        self._draws = draws
        self._handler = handler
        self._events = events
        self._rollouts_begun = self._rollouts_done = 0
        self._updates_begun = self._updates_done = 0
        self._scored_of = [0] * job.steps
        self._at_scorer = 0
        self._without_caller: deque[Request] = deque()
        events.at(job.starts_at_seconds, self._start)

    @property
    def is_over(self) -> bool:
        """Whether it will do nothing more."""
        return self.ended is not None

    def _start(self) -> None:
        self.announcer.start()
        self._events.after(self.job.load_seconds, self._go_on)

    def _go_on(self) -> None:
        """Begin whatever may begin now."""
        step = self._updates_begun
        if step == self._updates_done and self._has_scores_of(step):
            self._updates_begun += 1
            self._events.after(self._draws.step(step).update_seconds, self._end_update)
        if self._may_roll_out():
            self._roll_out()
        self.announcer.stall(self._is_stalled())

    def _has_scores_of(self, step: int) -> bool:
        if step == self.job.steps:
            return False
        if self.job.mode == "FullyAsync":
            return self.scored >= (step + 1) * self.job.samples
        return self._scored_of[step] == self.job.samples

    def _may_roll_out(self) -> bool:
        step = self._rollouts_begun
        return step == self._rollouts_done and step < self.job.steps and step - self.job.ahead <= self._updates_done

    def _is_stalled(self) -> bool:
        """Whether neither rollouts nor updates go on."""
        return self._rollouts_begun == self._rollouts_done and self._updates_begun == self._updates_done

    def _roll_out(self) -> None:
        step = self._rollouts_begun
        self._rollouts_begun += 1
        self.announcer.rollout_begins()
        drawn = self._draws.step(step)
        answered = partial(self._take_score, step)
        requests = (Request(seconds, answered) for seconds in drawn.service_seconds)
        self._events.after_each(drawn.arrivals, partial(self._bring, requests))
        self._events.after(drawn.rollout_seconds, self._end_rollout)
        if step == self.job.dies_after_steps:
            self._events.after(drawn.rollout_seconds / 2, self._die)

    def _bring(self, requests: Iterator[Request], samples: int) -> None:
        """So many samples of a rollout are there to be scored."""
        if self.ended is not None:
            return
        self.submitted += samples
        self.announcer.samples_come(samples)
        self._without_caller.extend(islice(requests, samples))
        self._call()

    def _call(self) -> None:
        """Give samples to callers, as far as there are any."""
        waiting, most = self._without_caller, self.job.callers
        while waiting and (most is None or self._at_scorer < most):
            self._at_scorer += 1
            self._handler.ask(waiting.popleft())

    def _take_score(self, step: int) -> None:
        self._at_scorer -= 1
        self.scored += 1
        self._scored_of[step] += 1
        if self.ended is not None:
            return
        if self._without_caller:
            self._call()
        if self.scored == self.submitted:
            self._fall_quiet()
        if self._updates_begun == self._updates_done and self._has_scores_of(self._updates_begun):
            self._go_on()

    def _fall_quiet(self) -> None:
        """All that was asked for is scored."""
        if self.scored == self.job.steps * self.job.samples:
            self.announcer.end()
        elif self._rollouts_begun == self._rollouts_done:
            self.announcer.update_begins()

    def _end_rollout(self) -> None:
        if self.is_over:
            return
        self._rollouts_done += 1
        self._go_on()
        if self.scored == self.submitted:
            self._fall_quiet()

    def _end_update(self) -> None:
        if self.is_over:
            return
        self._updates_done += 1
        if self._updates_done == self.job.steps:
            self.ended = self._events.now
            return
        self._go_on()

    def _die(self) -> None:
        """Killed: what it has asked for is answered and nobody cares."""
        self.ended = self._events.now
        self._without_caller.clear()
        self.announcer.fall_silent()
