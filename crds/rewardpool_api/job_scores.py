"""Figures of the raw scores that a job gets from a pool, as it announces them and as the status has them."""

from typing import Annotated

from pydantic import Field

from rewardpool_api.quantities import Count
from rewardpool_api.rules import ApiModel


class FailureCounts(ApiModel):
    """Samples without a score, by fault."""

    policy: Count = 0
    """Number of samples that the policy's own response cost a score."""
    verifier: Count = 0
    """Number of samples without a score because of the function, the judge or the row."""
    infra: Count = 0
    """Number of samples without a score because of a worker, a router or the network."""
    capacity: Count = 0
    """Number of samples for which no place was free in time."""


class JobScores(ApiModel):
    """Raw scores of the process that announces, since it opened the pool: before weights and penalties."""

    count: Count = 0
    """Number of samples with a score."""
    mean: Annotated[float, Field(allow_inf_nan=False)] | None = None
    """Mean of the scores; absent where there is none."""
    standard_deviation: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    """Standard deviation of the scores; absent where there is none."""
    failures: FailureCounts = FailureCounts()
    """Samples without a score, which are in neither of the two."""
    retries: Count = 0
    """Number of failed attempts that another one followed."""
