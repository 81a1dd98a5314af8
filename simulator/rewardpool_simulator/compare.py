"""Several policies on one trace, beside fleets that are always on.

stall       how much later the jobs ended than with a warm fleet of the trace's full size
always on   the smallest fleet of fixed size that stalls no more than the first policy; what the others cost is
            told as a share of it
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from rewardpool_simulator.policies import always_on
from rewardpool_simulator.run import PolicyMaker, Run, Simulator
from rewardpool_simulator.trace import Trace

AS_LITTLE_SECONDS: Final = 1.0
"""A fleet stalls as little as a policy if it stalls no more than this longer."""

OnProgress = Callable[[str, float], None]
"""Told which run goes on, and which share of it is done."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """One policy's run, as it compares."""

    run: Run
    stall_seconds: float
    """How much later the jobs ended than with a warm fleet of the full size; not negative."""

    def as_json(self) -> dict[str, Any]:
        """The figures, for machines."""
        return {
            "stall_seconds": round(self.stall_seconds, 1),
            "wait_seconds": round(self.run.wait_seconds, 1),
            "gpu_seconds": round(self.run.gpu_seconds),
            "changes": self.run.changes,
            "peak": self.run.peak,
            "finished": self.run.finished,
        }


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What came of one trace."""

    trace: str
    outcomes: Mapping[str, Outcome]
    """By policy, in the order in which they were asked for."""
    always_on: Outcome
    """The smallest fleet of fixed size that stalls as little as the first policy."""

    def share(self, policy: str) -> float:
        """GPU-seconds over those of the fleet that is always on."""
        return self.outcomes[policy].run.gpu_seconds / self.always_on.run.gpu_seconds

    def as_json(self) -> dict[str, Any]:
        """All figures, by policy; the fleet that is always on among them."""
        by_name = {name: outcome.as_json() for name, outcome in self.outcomes.items()}
        return {**by_name, self.always_on.run.policy: self.always_on.as_json()}


def compare(
    trace: Trace, makers: Mapping[str, PolicyMaker], *, name: str, seed: int = 0, on_progress: OnProgress | None = None
) -> Comparison:
    """Run each policy against a trace.

    Args:
        trace: what happens.
        makers: of the policies, by name; at least one.
        name: of the trace.
        seed: of all chance.
        on_progress: called now and then.
    """
    if not makers:
        raise ValueError("a comparison needs at least one policy")
    return _Comparer(trace, seed=seed, on_progress=on_progress or (lambda what, share: None)).compare(makers, name)


class _Comparer:
    def __init__(self, trace: Trace, *, seed: int, on_progress: OnProgress) -> None:
        self._trace, self._on_progress = trace, on_progress
        self._simulator = Simulator(trace, seed=seed)
        full = trace.fleet.max_replicas
        self._fixed: dict[int, Run] = {}
        self._least_wait = self._always_on(full).wait_seconds

    def compare(self, makers: Mapping[str, PolicyMaker], name: str) -> Comparison:
        outcomes = {policy: self._outcome(self._run(policy, make)) for policy, make in makers.items()}
        first = next(iter(outcomes.values()))
        return Comparison(trace=name, outcomes=outcomes, always_on=self._outcome(self._smallest(first.stall_seconds)))

    def _smallest(self, stall_seconds: float) -> Run:
        """By halves: a larger fleet stalls no longer."""
        low, high = 1, self._trace.fleet.max_replicas
        while low < high:
            middle = (low + high) // 2
            if self._outcome(self._always_on(middle)).stall_seconds <= stall_seconds + AS_LITTLE_SECONDS:
                high = middle
            else:
                low = middle + 1
        return self._always_on(high)

    def _always_on(self, replicas: int) -> Run:
        if replicas not in self._fixed:
            self._fixed[replicas] = self._run(f"always-on-{replicas}", always_on(replicas))
        return self._fixed[replicas]

    def _run(self, what: str, make: PolicyMaker) -> Run:
        return self._simulator.run(make, lambda share: self._on_progress(what, share))

    def _outcome(self, run: Run) -> Outcome:
        return Outcome(run=run, stall_seconds=max(0.0, run.wait_seconds - self._least_wait))
