"""Training jobs, simulated: loops that go on when scores are there.

All three modes are one loop with two rules, by the number of rollouts that may run ahead of the updates (`ahead`):

- rollout k begins when rollout k-1 has ended and k - ahead updates are done: none ahead is a synchronous job, one is
  one-step off-policy, more are fully asynchronous;
- update k begins when update k-1 is done and the scores for it are there: all of rollout k's, and in a fully
  asynchronous job any `samples` that no update has had yet.

What a rollout brings, and what each sample takes to score, is drawn from the seed, the job and the step alone: under
every policy it is the same.
"""

from collections import deque
from functools import partial
from random import Random
from typing import Final, Protocol

from rewardpool_simulator.announcing import Announcer
from rewardpool_simulator.events import Events
from rewardpool_simulator.fleet import Request
from rewardpool_simulator.trace import Duration, JobSpec

ANSWER_LENGTHS: Final = 0.6
"""Sigma of answers' lengths, by which LongTailed samples come: of 1,000, half are there after a sixth of the time."""


class Scorer(Protocol):
    """Whatever answers requests."""

    def ask(self, request: Request) -> None:
        """A request comes; `request.answered` is called once."""


class Instant:
    """A scorer that takes no time: what a job would do if scores cost nothing."""

    def __init__(self, events: Events) -> None:
        self._events = events

    def ask(self, request: Request) -> None:
        """Answer it, though not before its caller has done calling."""
        self._events.after(0.0, request.answered)


class Trainer:
    """One job."""

    def __init__(self, job: JobSpec, service_seconds: Duration, scorer: Scorer, events: Events, *, seed: str) -> None:
        self.job = job
        self.ended: float | None = None
        """When it was over, or dead; None before that."""
        self.submitted = 0
        """Samples whose score was wanted."""
        self.scored = 0
        self.announcer = Announcer(job, events)
        self._service_seconds = service_seconds
        self._scorer = scorer
        self._events = events
        self._seed = f"{seed}/{job.name}"
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
        if step == self._updates_done and step < self.job.steps and self._has_scores_of(step):
            self._updates_begun += 1
            self._events.after(self.job.update_seconds.draw(self._chance(step, "update")), self._end_update)
        if self._may_roll_out():
            self._roll_out()
        self.announcer.stall(self._is_stalled())

    def _has_scores_of(self, step: int) -> bool:
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
        length = self.job.rollout_seconds.draw(self._chance(step, "rollout"))
        chance = self._chance(step, "service")
        answered = partial(self._take_score, step)
        requests = deque(Request(self._service_seconds.draw(chance), answered) for _ in range(self.job.samples))
        for offset, samples in self._arrivals(step, length):
            self._events.after(offset, self._bring, step, requests, samples)
        self._events.after(length, self._end_rollout)
        if step == self.job.dies_after_steps:
            self._events.after(length / 2, self._die)

    def _arrivals(self, step: int, length: float) -> list[tuple[float, int]]:
        """When how many of a rollout's samples come, in seconds from its beginning; the last comes at its end."""
        samples = self.job.samples
        match self.job.arrivals:
            case "AtOnce":
                return [(length, samples)]
            case "Spread":
                return [(length * (number + 1) / samples, 1) for number in range(samples)]
            case "LongTailed":
                chance = self._chance(step, "arrivals")
                lengths = sorted(chance.lognormvariate(0.0, ANSWER_LENGTHS) for _ in range(samples))
                return [(length * (one / lengths[-1]), 1) for one in lengths]

    def _bring(self, step: int, requests: deque[Request], samples: int) -> None:
        """Samples of a rollout are there to be scored."""
        if self.is_over:
            return
        self.submitted += samples
        self.announcer.samples_come(samples)
        for _ in range(samples):
            self._without_caller.append(requests.popleft())
        self._call()

    def _call(self) -> None:
        """Give samples to callers, as far as there are any."""
        while self._without_caller and (self.job.callers is None or self._at_scorer < self.job.callers):
            self._at_scorer += 1
            self._scorer.ask(self._without_caller.popleft())

    def _take_score(self, step: int) -> None:
        self._at_scorer -= 1
        self.scored += 1
        self._scored_of[step] += 1
        if self.is_over:
            return
        if self._without_caller:
            self._call()
        if self.scored == self.submitted:
            self._fall_quiet()
        if self._updates_begun == self._updates_done:
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

    def _chance(self, step: int, what: str) -> Random:
        return Random(f"{self._seed}/{step}/{what}")
