"""warm_bursts: jobs on the cluster that announce their bursts to function pools, and what each burst finds."""

from collections.abc import Callable
from typing import Any, Final

from cluster.contract import Cluster
from first_score.asking import until
from first_score.burst_job import JOB
from first_score.bursts import Burst, read, warm_bursts
from first_score.cluster import (
    ACCOUNT,
    NAMESPACE,
    PROGRAMS_DIR,
    PROGRAMS_MOUNT,
    PROGRAMS_VOLUME,
    Manifest,
    applied,
    function_pool,
    requests,
)
from installation import IMAGE
from scene import Scene, StoryError

POOLS: Final = tuple(f"bursts-{number}" for number in range(5))
LEARNED_FROM: Final = 2
"""Bursts after which the beat is known."""
BURSTS: Final = 10
"""Of each job that are announced."""
GAP_SECONDS: Final = 20.0
"""More than twice what the pool plans for a start, or it keeps its replica: 6 s where the slowest took 3 s."""
JITTER: Final = 0.1
LONGEST_SECONDS: Final = (LEARNED_FROM + BURSTS + 2) * (GAP_SECONDS * (1 + JITTER) + 5)
POD: Final = "job"
LOOK_SECONDS: Final = 5.0
"""At the jobs' output: kubectl takes of the cores that are measured on."""


def trainers() -> list[dict[str, Any]]:
    """Value `trainers` of the chart: the pod's right to use the pools and to announce."""
    accounts = [{"namespace": NAMESPACE, "name": ACCOUNT}]
    return [{"namespace": NAMESPACE, "pools": list(POOLS), "jobs": [JOB], "serviceAccounts": accounts}]


def pool(name: str) -> Manifest:
    """A function pool that goes by what its job says."""
    made = function_pool()
    made["metadata"]["name"] = name
    scaling = made["spec"]["autoscaling"]
    scaling["policies"] = [scaling.pop("policy"), {"type": "Demand", "demand": {}}]
    return made


def job() -> Manifest:
    """The pod with all jobs in it."""
    shape = [f"--bursts={LEARNED_FROM + BURSTS}", f"--gap-seconds={GAP_SECONDS:g}", f"--jitter={JITTER:g}"]
    container = {
        "name": POD,
        "image": IMAGE,
        "command": ["python3", "-m", "first_score.burst_job", *(f"{NAMESPACE}/{name}" for name in POOLS), *shape],
        "env": [{"name": "PYTHONPATH", "value": PROGRAMS_DIR}],
        "volumeMounts": [PROGRAMS_MOUNT],
        "resources": requests("50m", "64Mi"),
    }
    spec = {
        "serviceAccountName": ACCOUNT,
        "restartPolicy": "Never",
        "containers": [container],
        "volumes": [PROGRAMS_VOLUME],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": POD, "namespace": NAMESPACE}, "spec": spec}


def measure(cluster: Cluster, *, say: Callable[[str], None]) -> dict[str, Any]:
    """The entry.

    Raises:
        StoryError: the jobs fail.
        TooLateError: they do not end in time.
    """
    scene = Scene(cluster, namespace=NAMESPACE, name=POOLS[0], say=say)
    told: list[Burst] = []
    with applied(scene, *map(pool, POOLS), job()):
        try:
            until(
                lambda: _is_over(scene, told), what="all bursts are over", seconds=LONGEST_SECONDS, pause=LOOK_SECONDS
            )
        finally:
            scene.attempt("delete", "pod", POD, "--ignore-not-found", "--wait=false")
    return warm_bursts(told) | {"gap_seconds": GAP_SECONDS, "jitter": JITTER}


def _is_over(scene: Scene, told: list[Burst]) -> bool:
    phase = scene.phase(POD)
    if phase == "Failed":
        raise StoryError(f"the jobs failed:\n{scene.kubectl('logs', POD, '--tail=20')}")
    if phase in ("Running", "Succeeded"):
        now = read(scene.kubectl("logs", POD))
        for burst in now[len(told) :]:
            words = "warm" if burst.is_warm else "not warm"
            served = f"{burst.ready} ready (fewest in the gap {burst.least_ready})"
            scene.say(f"{burst.pool}, burst {burst.burst}: {words}, {served}, first score {burst.first_seconds:.2f} s")
        told[:] = now
    return phase == "Succeeded"
