"""Workers as sandboxes of agent-sandbox: a SandboxClaim for each replica of a worker Deployment that is paused. Pure.

    Deployment POOL-worker-REV       paused; declares the size, and owns the others as it would own a ReplicaSet
    SandboxTemplate POOL-worker-REV  its pod template, so that a sandbox has key, code and revision from its start
    SandboxWarmPool POOL-worker-REV  what claims name; empty
    SandboxClaim POOL-worker-REV-…   one for a replica, for as long as that serves

The pool is RewardPool's own, since agent-sandbox lets a claim bring neither a Secret nor, by default, a label into a
sandbox that runs already. What the pods do is seen in the pods.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from rewardpool_api import names
from rewardpool_api.status import MAX_MESSAGE
from rewardpool_api.times import from_rfc3339
from rewardpool_kube.resources import SANDBOX_CLAIMS, Object
from rewardpool_operator.kubernetes.workload import pods
from rewardpool_operator.kubernetes.workload.scale_down_order import COST_STOPPED
from rewardpool_runtime.untrusted import printable

API_VERSION: Final = f"{SANDBOX_CLAIMS.group}/{SANDBOX_CLAIMS.version}"
ENDED: Final = frozenset({"ClaimExpired", "SandboxExpired", "PodFailed", "PodSucceeded"})
"""Reasons of a claim whose sandbox is over for good: another claim takes its place."""
REFUSED: Final = ENDED | {
    "InvalidMetadata",
    "EnvVarsInjectionRejected",
    "VolumeClaimTemplatesError",
    "InvalidConfiguration",
    "TemplateNotFound",
    "WarmPoolNotFound",
    "ReconcilerError",
}
"""Reasons of a claim that has no sandbox, and gets none while nothing else changes."""
AGAIN: Final = timedelta(seconds=10)  # what fails at once is not made again and again


@dataclass(frozen=True, kw_only=True)
class ClaimChanges:
    """Changes that bring a Deployment's claims to its size."""

    delete: tuple[str, ...]
    make: int
    waits: bool
    """True if a claim is to be replaced later, which no event reports."""


def changes(
    claims: Sequence[Object], workers: Sequence[Object], *, replicas: int, stop: Collection[str], now: datetime
) -> ClaimChanges:
    """Return how so many claims are reached; one whose worker serves is never deleted.

    Args:
        workers: the pods of the pool's workers.
        stop: workers, by name, that have left every router.
        now: for the age of claims that ended.
    """
    there = [claim for claim in claims if "deletionTimestamp" not in claim["metadata"]]
    by_sandbox = {pods.sandbox_of(pod): pod for pod in workers}
    over: list[Object] = []
    waiting: list[Object] = []
    leaving: list[Object] = []
    kept = 0
    for claim in there:
        pod = by_sandbox.get(claim["status"]["sandbox"].get("name", ""))
        is_young = now - from_rfc3339(claim["metadata"]["creationTimestamp"]) < AGAIN
        if pod is not None and pods.is_deleting(pod):
            over.append(claim)
        elif _ready(claim).get("reason") in ENDED:
            (waiting if is_young else over).append(claim)
        elif pod is None or pod["metadata"]["name"] in stop or _is_stopped(pod):
            leaving.append(claim)
        else:
            kept += 1
    staying = len(waiting) + len(leaving) + kept
    # Those that have a worker to stop before those that are still on their way to one.
    leaving.sort(key=lambda claim: claim["status"]["sandbox"].get("name", "") not in by_sandbox)
    surplus = [*waiting, *leaving][: max(0, staying - replicas)]
    return ClaimChanges(
        delete=tuple(claim["metadata"]["name"] for claim in [*over, *surplus]),
        make=max(0, replicas - staying),
        waits=bool(waiting),
    )


def refusal_of(claims: Sequence[Object]) -> str | None:
    """Return why agent-sandbox gives one of the claims no sandbox, in its words; None when it does."""
    for claim in claims:
        ready = _ready(claim)
        if ready.get("status") == "False" and ready.get("reason") in REFUSED:
            words = f"SandboxClaim {claim['metadata']['name']}: {ready['reason']}: {ready['message']}"
            return printable(words, most=MAX_MESSAGE)
    return None


def are_pods_of(template: Object) -> bool:
    """Return whether the pods of a worker's template are sandboxes."""
    return names.ANNOTATION_RUNTIME in (template["metadata"].get("annotations") or {})


def template(deployment: Object) -> Object:
    """The SandboxTemplate of a Deployment's pods."""
    pod = deployment["spec"]["template"]
    metadata = {name: pod["metadata"][name] for name in ("labels", "annotations") if name in pod["metadata"]}
    spec = {
        "podTemplate": {"metadata": metadata, "spec": pod["spec"]},
        # The policy is the pool's own: agent-sandbox's lets in only a router of its own.
        "networkPolicyManagement": "Unmanaged",
        "service": False,
    }
    return _owned(deployment, "SandboxTemplate", {"name": deployment["metadata"]["name"]}, spec)


def warm_pool(deployment: Object) -> Object:
    """The SandboxWarmPool that the claims name."""
    name = deployment["metadata"]["name"]
    return _owned(deployment, "SandboxWarmPool", {"name": name}, {"replicas": 0, "sandboxTemplateRef": {"name": name}})


def claim(deployment: Object) -> Object:
    """One more SandboxClaim of the Deployment."""
    name = deployment["metadata"]["name"]
    return _owned(deployment, "SandboxClaim", {"generateName": f"{name}-"}, {"warmPoolRef": {"name": name}})


def _owned(deployment: Object, kind: str, named: Mapping[str, str], spec: Mapping[str, Any]) -> Object:
    metadata = deployment["metadata"]
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": metadata["name"], "uid": metadata["uid"]}
    return {
        "apiVersion": API_VERSION,
        "kind": kind,
        "metadata": {
            **named,
            "namespace": metadata["namespace"],
            "labels": deployment["spec"]["selector"]["matchLabels"],
            "ownerReferences": [{**owner, "controller": True}],
        },
        "spec": dict(spec),
    }


def _ready(claim: Object) -> Object:
    return next(iter(claim["status"]["conditions"]), {})


def _is_stopped(pod: Object) -> bool:
    annotations = pod["metadata"].get("annotations") or {}
    return bool(annotations.get(pods.ANNOTATION_DELETION_COST) == str(COST_STOPPED))
