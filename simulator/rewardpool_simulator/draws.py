"""What chance decides of a training job, step by step.

It is drawn from the seed, the job and the step alone, so it is the same under every policy; one run after the other
takes it from here, drawn once.
"""

from dataclasses import dataclass
from random import Random
from typing import Final

from rewardpool_simulator.trace import Duration, JobSpec

ANSWER_LENGTHS: Final = 0.6
"""Sigma of answers' lengths, by which LongTailed samples come: of 1,000, half are there after a sixth of the time."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StepDraws:
    """One step."""

    rollout_seconds: float
    arrivals: tuple[tuple[float, int], ...]
    """When how many samples come, in seconds from the rollout's beginning; the last comes at its end."""
    service_seconds: tuple[float, ...]
    """What each sample takes at a replica."""
    update_seconds: float


class JobDraws:
    """One job, drawn as far as it was asked for."""

    def __init__(self, job: JobSpec, service_seconds: Duration, *, seed: str) -> None:
        self._job = job
        self._service_seconds = service_seconds
        self._seed = f"{seed}/{job.name}"
        self._steps: dict[int, StepDraws] = {}

    def step(self, step: int) -> StepDraws:
        """A step's, from 0."""
        if step not in self._steps:
            self._steps[step] = self._drawn(step)
        return self._steps[step]

    def _drawn(self, step: int) -> StepDraws:
        length = self._job.rollout_seconds.draw(self._chance(step, "rollout"))
        service = self._chance(step, "service")
        return StepDraws(
            rollout_seconds=length,
            arrivals=tuple(self._arrivals(step, length)),
            service_seconds=tuple(self._service_seconds.draw(service) for _ in range(self._job.samples)),
            update_seconds=self._job.update_seconds.draw(self._chance(step, "update")),
        )

    def _arrivals(self, step: int, length: float) -> list[tuple[float, int]]:
        samples = self._job.samples
        match self._job.arrivals:
            case "AtOnce":
                return [(length, samples)]
            case "Spread":
                return [(length * (number + 1) / samples, 1) for number in range(samples)]
            case "LongTailed":
                chance = self._chance(step, "arrivals")
                lengths = sorted(chance.lognormvariate(0.0, ANSWER_LENGTHS) for _ in range(samples))
                return [(length * (one / lengths[-1]), 1) for one in lengths]

    def _chance(self, step: int, what: str) -> Random:
        return Random(f"{self._seed}/{step}/{what}")
