"""The random durations of a training job, step by step.

They depend on the seed, the job and the step alone, so they are the same under every policy, and are drawn once for all
runs.
"""

from dataclasses import dataclass
from random import Random
from typing import Final

from rewardpool_simulator.trace import Duration, JobSpec

# Sigma of the answers' lengths, which time LongTailed samples: of 1,000, half come in the rollout's first sixth.
ANSWER_LENGTHS: Final = 0.6


@dataclass(frozen=True, kw_only=True, slots=True)
class StepDraws:
    """Random numbers of one step."""

    rollout_seconds: float
    arrivals: tuple[tuple[float, int], ...]
    """Pairs of seconds from the rollout's begin and samples that come then; the last pair is at its end."""
    service_seconds: tuple[float, ...]
    update_seconds: float


class JobDraws:
    """Random numbers of one job, step by step as needed."""

    def __init__(self, job: JobSpec, service_seconds: Duration, *, seed: str) -> None:
        self._job = job
        self._service_seconds = service_seconds
        self._seed = f"{seed}/{job.name}"
        self._steps: dict[int, StepDraws] = {}

    def step(self, step: int) -> StepDraws:
        if step not in self._steps:
            self._steps[step] = self._draw(step)
        return self._steps[step]

    def _draw(self, step: int) -> StepDraws:
        length = self._job.rollout_seconds.draw(self._random(step, "rollout"))
        service = self._random(step, "service")
        return StepDraws(
            rollout_seconds=length,
            arrivals=tuple(self._arrivals(step, length)),
            service_seconds=tuple(self._service_seconds.draw(service) for _ in range(self._job.samples)),
            update_seconds=self._job.update_seconds.draw(self._random(step, "update")),
        )

    def _arrivals(self, step: int, length: float) -> list[tuple[float, int]]:
        samples = self._job.samples
        match self._job.arrivals:
            case "AtOnce":
                return [(length, samples)]
            case "Spread":
                return [(length * (number + 1) / samples, 1) for number in range(samples)]
            case "LongTailed":
                random = self._random(step, "arrivals")
                lengths = sorted(random.lognormvariate(0.0, ANSWER_LENGTHS) for _ in range(samples))
                return [(length * (one / lengths[-1]), 1) for one in lengths]

    def _random(self, step: int, purpose: str) -> Random:
        return Random(f"{self._seed}/{step}/{purpose}")
