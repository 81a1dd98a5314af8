"""Costs: the GPU-seconds of a pool, and those of each job that announces its scored samples."""

from dataclasses import dataclass
from datetime import datetime
from math import fsum
from typing import Annotated

from pydantic import Field

from rewardpool_api.quantities import Count, Duration, Time
from rewardpool_api.rules import ApiModel

MAX_JOBS = 32


@dataclass(frozen=True)
class Share:
    """Part of a pool's GPU-seconds."""

    name: str
    """Name of the job; parts of no job are in parentheses."""
    gpu_seconds: float
    gpus: int = 0
    """Number of GPUs by whose seconds the part grows."""
    samples: int | None = None
    """Samples that were scored for the job; None where it is of no job."""


class JobCost(ApiModel):
    """Samples of one job, and its part of the pool's GPU-seconds."""

    job: Annotated[str, Field(max_length=63)]
    """Name by which the job announces itself."""
    gpu_seconds: Duration = 0.0
    """GPU-seconds that were attributed to the job."""
    samples: Count = 0
    """Number of samples that were scored for the job."""
    announced: Count = 0
    """Number of scored samples in its latest announcement."""
    pending: Count = 0
    """Number of samples whose GPU-seconds are not attributed yet."""


class BusyWindow(ApiModel):
    """A time with requests whose GPU-seconds are not attributed yet."""

    begun: Time
    """RFC 3339 time at which it began."""
    active: Time
    """RFC 3339 time at which a request or an answer was last seen."""
    gpu_seconds: Duration = 0.0
    """GPU-seconds of it so far."""


class CostStatus(ApiModel):
    """GPU-seconds of a pool since its counting began, divided without a rest."""

    since: Time
    """RFC 3339 time at which counting began."""
    until: Time
    """RFC 3339 time up to which seconds are counted; since then the pool holds `gpus`."""
    gpus: Count = 0
    """Number of GPUs that the pool's workers hold."""
    idle_gpu_seconds: Duration = 0.0
    """GPU-seconds without a request, those of starting workers among them."""
    other_gpu_seconds: Duration = 0.0
    """GPU-seconds with requests that no job announced."""
    former_gpu_seconds: Duration = 0.0
    """GPU-seconds of jobs that are not in the list any more."""
    jobs: Annotated[list[JobCost], Field(max_length=MAX_JOBS)] = []
    """Costs of each job, by name."""
    window: BusyWindow | None = None
    """GPU-seconds that are not attributed yet; absent while the pool is idle."""

    def held(self, now: datetime) -> float:
        """Return the GPU-seconds from `until` to a moment."""
        return self.gpus * max(0.0, (now - self.until).total_seconds())

    def total(self, now: datetime) -> float:
        """Return all GPU-seconds up to a moment."""
        return fsum([self.held(now), *(share.gpu_seconds for share in self.shares())])

    def shares(self) -> list[Share]:
        """Return the parts of all GPU-seconds up to `until`, the jobs first, those with most first."""
        jobs = [Share(job.job, job.gpu_seconds, samples=job.samples) for job in self.jobs]
        pending, is_idle = self.window.gpu_seconds if self.window else 0.0, self.window is None
        apart = [
            Share("(earlier jobs)", self.former_gpu_seconds),
            Share("(other callers)", self.other_gpu_seconds),
            Share("(not attributed yet)", pending, gpus=0 if is_idle else self.gpus),
            Share("(idle)", self.idle_gpu_seconds, gpus=self.gpus if is_idle else 0),
        ]
        jobs.sort(key=lambda share: -share.gpu_seconds)
        return [*jobs, *(share for share in apart if share.gpu_seconds or share.gpus)]
