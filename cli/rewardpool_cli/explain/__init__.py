"""Explanations of why a pool is not ready, or has the size it has, and of what to do next.

`explain` is a function of what was read: the pool, its pods and Deployments, and the warnings about them. The
operator's conditions say that something is wrong; this reads more, for a person who wants all of it.
"""

from rewardpool_api import names
from rewardpool_cli.explain.declared import (
    condition_explanations,
    failing_explanations,
    refused_explanations,
    rollout_explanations,
    spec_explanations,
)
from rewardpool_cli.explain.evidence import Cause, Evidence, Explanation, newest_warnings
from rewardpool_cli.explain.pods import pod_explanations
from rewardpool_cli.explain.scaling import scaling_explanations

__all__ = ["Cause", "Evidence", "Explanation", "explain", "newest_warnings"]

_ORDER = {cause: place for place, cause in enumerate(Cause)}


def explain(evidence: Evidence) -> list[Explanation]:
    """Everything that is the matter with the pool, the cause of the rest first; notes on its size and rights last."""
    found = spec_explanations(evidence)
    found += failing_explanations(evidence)
    found += refused_explanations(evidence)
    found += pod_explanations(evidence, names.COMPONENT_ROUTER)
    found += pod_explanations(evidence, names.COMPONENT_WORKER)
    found += rollout_explanations(evidence)
    found += condition_explanations(
        evidence, has_problem=any(item.kind == "problem" for item in found), has_any=bool(found)
    )
    found += _draining(evidence)
    found += scaling_explanations(evidence)
    found += [
        Explanation(cause=Cause.UNREADABLE, kind="note", what=f"The {what} could not be looked at", said=why)
        for what, why in evidence.unreadable.items()
    ]
    return sorted(found, key=lambda item: _ORDER[item.cause])


def _draining(evidence: Evidence) -> list[Explanation]:
    leaving = evidence.pool.status.draining_replicas
    if not leaving:
        return []
    seconds = evidence.pool.spec.worker.drain_seconds
    who = "1 worker leaves" if leaving == 1 else f"{leaving} workers leave"
    what = f"{who} and may take {seconds} s to finish the requests in flight"
    return [Explanation(cause=Cause.DRAINING, kind="waiting", what=what)]
