"""The shortest history that still fails: steps are left out for as long as the same invariant breaks without them."""

import re
from collections.abc import Callable

from simulation.faults import Step
from simulation.world import Outcome, run

Run = Callable[[int, tuple[Step, ...]], Outcome]


def shrunk(failed: Outcome, *, most_runs: int = 60, again: Run = run) -> Outcome:
    """Return an outcome of the same seed that breaks the same invariant with as few steps as were found.

    Args:
        failed: an outcome with violations.
        most_runs: attempts, each a whole run.
        again: runs a seed with steps.
    """
    best, size, runs = failed, max(1, len(failed.steps) // 2), 0
    while runs < most_runs:
        shorter = None
        for start in range(0, len(best.steps), size):
            steps = best.steps[:start] + best.steps[start + size :]
            runs += 1
            tried = again(failed.seed, steps)
            if kinds_of(tried) & kinds_of(failed):
                shorter = tried
                break
            if runs >= most_runs:
                break
        if shorter is not None:
            best = shorter
            size = min(size, max(1, len(best.steps)))
        elif size == 1:
            break
        else:
            size //= 2
    return best


def kinds_of(outcome: Outcome) -> frozenset[str]:
    """Violations without the names, times and numbers in them."""
    return frozenset(kind_of(violation) for violation in outcome.violations)


def kind_of(violation: str) -> str:
    """A violation without the names, times and numbers in it."""
    what = violation.partition(" s: ")[2]
    return re.sub(r"[0-9a-f]*\d[0-9a-z]*", "N", what)[:60]
