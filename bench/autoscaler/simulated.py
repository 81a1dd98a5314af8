"""The simulated half: the node's step for every policy of the simulator, and every trace that comes with it."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import Any, Final

from autoscaler.manifests import LARGEST, STEP, TARGET
from autoscaler.policies import factories, factories_for
from autoscaler.step import NothingElse, StepResponse, step_response
from cluster.progress import Say, timed_lines
from rewardpool_simulator import builtin
from rewardpool_simulator.compare import OnProgress, compare
from rewardpool_simulator.run import PolicyFactory
from rewardpool_simulator.trace import PolicyFigures

POLICIES: Final[Mapping[str, str]] = {
    "ours": "queue-depth",
    "hpa": "hpa",
    "keda": "keda",
    "knative": "knative",
    "kubeai": "kubeai",
    "aibrix": "aibrix-apa",
}
"""The policies of the step, by their names in the result."""

READY_SECONDS: Final = 2.5
"""From a replica's making to its first request, as on the node."""
MOMENTS: Final = 10
"""Evenly spread over the time between two looks of a policy, at which the step comes."""


def measure(*, say: Say) -> dict[str, Any]:
    """Both parts, by their names in the result."""
    figures = PolicyFigures(target_per_replica=TARGET)
    step_factories = factories(figures, min_replicas=1, max_replicas=LARGEST)
    steps = {name: summary(responses(step_factories[policy])) for name, policy in POLICIES.items()}
    with ProcessPoolExecutor() as processes:
        traces = {name: processes.submit(of_trace, name) for name in builtin.NAMES}
        for done in as_completed(traces.values()):
            say(f"simulated: {sum(trace.done() for trace in traces.values())} of {len(traces)} traces")
            done.result()
    return {
        "step_response_seconds": {name: step["median_seconds"] for name, step in steps.items()},
        "steps": steps,
        "traces": {name: trace.result() for name, trace in traces.items()},
    }


def responses(make: PolicyFactory) -> list[StepResponse]:
    """How a policy answers the step, for each moment at which it may come."""
    period = make(NothingElse()).period_seconds
    return [
        step_response(
            make,
            target_per_replica=TARGET,
            factor=STEP,
            ready_seconds=READY_SECONDS,
            late_seconds=period * moment / MOMENTS,
        )
        for moment in range(MOMENTS)
    ]


def summary(found: Sequence[StepResponse]) -> dict[str, float | None]:
    """Of the responses; the seconds are None where one of them never came."""
    seconds = [response.seconds for response in found if response.seconds is not None]
    whole = len(seconds) == len(found)
    times: Mapping[str, Callable[[list[float]], float]] = {"median": statistics.median, "least": min, "most": max}
    return {f"{name}_seconds": round(of(seconds), 2) if whole else None for name, of in times.items()} | {
        "most_wanted": max(response.peak for response in found)
    }


def of_trace(name: str) -> dict[str, Any]:
    """All figures of one trace by policy, with the smallest fleet of fixed size that stalls no more than the first."""
    trace = builtin.load_trace(name)
    return compare(trace, factories_for(trace), name=name, on_progress=first_of_each(name, say=timed_lines())).as_json()


def first_of_each(trace: str, *, say: Say) -> OnProgress:
    """Return a progress callback that says when another run begins."""
    told = ""

    def on_progress(what: str, share: float) -> None:
        nonlocal told
        if what != told:
            told = what
            say(f"{trace}: {what}")

    return on_progress
