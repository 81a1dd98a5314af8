"""The steps of a pass that fail alone: which of them fail, since when and why, and when each is tried again.

    Secrets ─ Certificate ─ GoldenSet ─ Demands   what is read; what was read last holds
    Decision                                      the routers' lists are kept without one
    Objects ─ Status                              what is written

None of them keeps another from being done, and none the routers from their workers. What fails is reported by the
condition Degraded, and, since a status that cannot be written says nothing, by /healthz and the metrics as well.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from time import monotonic
from typing import Final

from rewardpool_api.reasons import ConditionReason
from rewardpool_api.times import rfc3339
from rewardpool_control.snapshot import Failure
from rewardpool_operator.kubernetes.queue.backoff import pause_seconds
from rewardpool_operator.metrics import METRICS

log = logging.getLogger(__name__)

SHORTEST_PAUSE_SECONDS: Final = 1.0
LONGEST_PAUSE_SECONDS: Final = 5.0
BLIPS: Final = 1  # in a row, not reported yet: one call in a thousand is throttled


class ReconcileStep(StrEnum):
    """Steps that fail alone, most important first."""

    SECRETS = "Secrets"
    DECISION = "Decision"
    OBJECTS = "Objects"
    STATUS = "Status"
    CERTIFICATE = "Certificate"
    GOLDEN_SET = "GoldenSet"
    DEMANDS = "Demands"


@dataclass(frozen=True, kw_only=True)
class Failing:
    """A step that failed the last time it was tried."""

    step: ReconcileStep
    reason: ConditionReason
    message: str
    since: datetime
    attempts: int
    not_before: float
    """Monotonic time of the next attempt."""

    @property
    def is_reported(self) -> bool:
        """True if it is worth a condition."""
        return self.attempts > BLIPS

    def as_failure(self) -> Failure:
        """Return the failure for the condition Degraded; equal for as long as the words are."""
        return Failure(reason=self.reason.value, message=f"since {rfc3339(self.since)}: {self.message}")


class Steps:
    """The failing steps of one pool."""

    def __init__(
        self,
        *,
        is_away: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._is_away = is_away
        self._clock = clock
        self._now = now
        self._failing: dict[ReconcileStep, Failing] = {}

    @property
    def failing(self) -> tuple[Failing, ...]:
        """Failing steps, most important first."""
        return tuple(self._failing[step] for step in ReconcileStep if step in self._failing)

    def pause(self, step: ReconcileStep) -> float:
        """Seconds until the step may be tried; 0 for one that does not fail."""
        failing = self._failing.get(step)
        return max(0.0, failing.not_before - self._clock()) if failing else 0.0

    def came_to(self, step: ReconcileStep, reason: ConditionReason, problem: str | None) -> None:
        """The step was tried: done, or failed with this problem, which is logged and counted."""
        if problem is None:
            self.succeeded(step)
            return
        METRICS.pass_failed("unreachable" if self._is_away() else "refused")
        is_news = self.failed(step, reason, problem)
        log.log(logging.WARNING if is_news else logging.DEBUG, "%s: %s", step, problem)

    def failed(self, step: ReconcileStep, reason: ConditionReason, message: str) -> bool:
        """The step was tried and failed; whether that is news."""
        before = self._failing.get(step)
        attempts = before.attempts + 1 if before else 1
        pause = pause_seconds(attempts, shortest=SHORTEST_PAUSE_SECONDS, longest=LONGEST_PAUSE_SECONDS)
        self._failing[step] = Failing(
            step=step,
            reason=reason,
            message=message,
            since=before.since if before else self._now(),
            attempts=attempts,
            not_before=self._clock() + pause,
        )
        return before is None or before.message != message

    def succeeded(self, step: ReconcileStep) -> None:
        self._failing.pop(step, None)
