"""Explanations of why a pool is not ready, or has the size it has, and of what to do next.

`explain` is a function of what was read: the pool, its pods and Deployments, and the warnings about them. The
operator's conditions say that something is wrong; this reads more, for a person who wants all of it. The words are in
`advice.yaml`; the modules choose its rows and fill them in.
"""

from rewardpool_api import names
from rewardpool_cli.explain.advice import CAUSES, Explanation, explanation
from rewardpool_cli.explain.declared import (
    condition_explanations,
    operator_explanations,
    rollout_explanations,
    spec_explanations,
)
from rewardpool_cli.explain.evidence import Evidence, newest_warnings
from rewardpool_cli.explain.pods import pod_explanations
from rewardpool_cli.explain.scaling import scaling_explanations

__all__ = ["Evidence", "Explanation", "explain", "newest_warnings"]


def explain(evidence: Evidence) -> list[Explanation]:
    """Everything that is the matter with the pool, the cause of the rest first; notes on its size and rights last."""
    found = spec_explanations(evidence)
    found += operator_explanations(evidence)
    found += pod_explanations(evidence, names.COMPONENT_ROUTER)
    found += pod_explanations(evidence, names.COMPONENT_WORKER)
    found += rollout_explanations(evidence)
    found += condition_explanations(
        evidence, has_problem=any(item.kind == "problem" for item in found), has_any=bool(found)
    )
    if leaving := evidence.pool.status.draining_replicas:
        workers = "1 worker leaves" if leaving == 1 else f"{leaving} workers leave"
        found.append(explanation(evidence, "Draining", workers=workers))
    found += scaling_explanations(evidence)
    found += [explanation(evidence, "Unreadable", said=why, kinds=kinds) for kinds, why in evidence.unreadable.items()]
    return sorted(found, key=lambda item: CAUSES.index(item.cause))
