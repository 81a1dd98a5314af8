"""Checks side by side, each with a deadline."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from threading import Thread
from time import monotonic

from rewardpool_cli.doctor.finding import Finding, Place


@dataclass(frozen=True, kw_only=True)
class Check:
    """Something to check."""

    place: Place
    name: str
    run: Callable[[], Sequence[Finding]]
    seconds: float
    """Until it is given up. A check that starts programs or asks servers ends these earlier itself."""
    essential: bool = False


def examine(checks: Sequence[Check]) -> list[Finding]:
    """Return the findings of all checks, in order; takes as long as the slowest, and no longer than its deadline."""
    began = monotonic()
    running = [(check, _started(check)) for check in checks]
    findings: list[Finding] = []
    for check, future in running:
        wait([future], timeout=max(0.0, began + check.seconds - monotonic()))
        findings += future.result() if future.done() else [_given_up(check)]
    return findings


def _started(check: Check) -> "Future[Sequence[Finding]]":
    future: Future[Sequence[Finding]] = Future()

    def run() -> None:
        try:
            future.set_result(check.run())
        except Exception as error:
            future.set_result([_failed(check, f"{type(error).__name__}: {error}")])

    # A daemon, so that one that hangs does not keep the command from ending.
    Thread(target=run, name=f"doctor: {check.name}", daemon=True).start()
    return future


def _given_up(check: Check) -> Finding:
    return _failed(check, f"no answer within {check.seconds:.0f} s")


def _failed(check: Check, found: str) -> Finding:
    return Finding(
        place=check.place,
        name=check.name,
        state="failed",
        found=found,
        remedy="repair what is named here, and look again",
        essential=check.essential,
    )
