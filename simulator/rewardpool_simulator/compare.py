"""Several policies on one trace, compared with fleets of fixed size.

stall       how much later the jobs ended than with a warm fleet of the trace's full size
always on   the smallest fleet of fixed size that stalls no more than the first policy; costs are shares of its cost
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from rewardpool_simulator.policies import always_on
from rewardpool_simulator.run import PolicyFactory, PolicyRun, Simulator
from rewardpool_simulator.trace import Trace

# A fleet of fixed size may stall so much longer than the policy that it is compared with.
STALL_TOLERANCE_SECONDS: Final = 1.0

# Called with the name of the current run and the share of it that is done, 0 to 1.
OnProgress = Callable[[str, float], None]


@dataclass(frozen=True, kw_only=True)
class PolicyOutcome:
    """One policy's run, with its stall."""

    run: PolicyRun
    stall_seconds: float

    def as_json(self) -> dict[str, Any]:
        return {
            "stall_seconds": round(self.stall_seconds, 1),
            "wait_seconds": round(self.run.wait_seconds, 1),
            "gpu_seconds": round(self.run.gpu_seconds),
            "changes": self.run.changes,
            "peak": self.run.peak,
            "finished": self.run.finished,
        }


@dataclass(frozen=True, kw_only=True)
class PolicyComparison:
    """All policies on one trace."""

    trace: str
    outcomes: Mapping[str, PolicyOutcome]
    always_on: PolicyOutcome

    def share(self, policy: str) -> float:
        """Return a policy's GPU-seconds over those of the fleet that is always on."""
        return self.outcomes[policy].run.gpu_seconds / self.always_on.run.gpu_seconds

    def as_json(self) -> dict[str, Any]:
        by_name = {name: outcome.as_json() for name, outcome in self.outcomes.items()}
        return {**by_name, self.always_on.run.policy: self.always_on.as_json()}


def compare(
    trace: Trace,
    factories: Mapping[str, PolicyFactory],
    *,
    name: str,
    seed: int = 0,
    on_progress: OnProgress | None = None,
) -> PolicyComparison:
    """Run each policy on a trace.

    Args:
        factories: by the policies' names; at least one.
        on_progress: called at every decision.

    Raises:
        ValueError: `factories` is empty.
    """
    if not factories:
        raise ValueError("a comparison needs at least one policy")
    return _Comparer(trace, seed=seed, on_progress=on_progress or (lambda name, share: None)).compare(factories, name)


class _Comparer:
    def __init__(self, trace: Trace, *, seed: int, on_progress: OnProgress) -> None:
        self._trace, self._on_progress = trace, on_progress
        self._simulator = Simulator(trace, seed=seed)
        full = trace.fleet.max_replicas
        self._fixed: dict[int, PolicyRun] = {}
        self._least_wait = self._always_on(full).wait_seconds

    def compare(self, factories: Mapping[str, PolicyFactory], name: str) -> PolicyComparison:
        outcomes = {policy: self._outcome(self._run(policy, make)) for policy, make in factories.items()}
        first = next(iter(outcomes.values()))
        return PolicyComparison(
            trace=name, outcomes=outcomes, always_on=self._outcome(self._smallest(first.stall_seconds))
        )

    def _smallest(self, stall_seconds: float) -> PolicyRun:
        # Bisection: a larger fleet stalls no longer.
        low, high = 1, self._trace.fleet.max_replicas
        while low < high:
            middle = (low + high) // 2
            if self._outcome(self._always_on(middle)).stall_seconds <= stall_seconds + STALL_TOLERANCE_SECONDS:
                high = middle
            else:
                low = middle + 1
        return self._always_on(high)

    def _always_on(self, replicas: int) -> PolicyRun:
        if replicas not in self._fixed:
            self._fixed[replicas] = self._run(f"always-on-{replicas}", always_on(replicas))
        return self._fixed[replicas]

    def _run(self, name: str, make: PolicyFactory) -> PolicyRun:
        return self._simulator.run(make, lambda share: self._on_progress(name, share))

    def _outcome(self, run: PolicyRun) -> PolicyOutcome:
        return PolicyOutcome(run=run, stall_seconds=max(0.0, run.wait_seconds - self._least_wait))
