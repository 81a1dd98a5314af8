"""Report on the announcements of a job's demand."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class DemandReport:
    """Result of announcing the job's demand.

    Attributes:
        job: The name it is announced by; empty before `Pool.demand`.
        announced: Whether the last announcement was written.
        renewals: Times one was.
        failures: Times one was not.
        problem: Why the last one was not, or why nothing is announced; empty when all is well.
    """

    job: str = ""
    announced: bool = False
    renewals: int = 0
    failures: int = 0
    problem: str = ""
