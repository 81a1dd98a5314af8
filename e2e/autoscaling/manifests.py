"""The objects of these stories: two pools at zero, the files that pods run, and the pods that ask."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from autoscaling.job import JOB
from faults import manifests
from faults.manifests import ACCOUNT, asking_pod, requests
from installation import IMAGE
from machine import ENGINE_IMAGE, QUICKSTART, environment
from overlay import quick_start_on_this_machine

Manifest = dict[str, Any]

NAMESPACE: Final = "rewardpool-autoscaling"
MODEL: Final = "judge"
"""The pool on vLLM."""
FUNCTION: Final = "verifier"
"""The pool of the training job. Its workers start in about ten seconds, so that a test has the time to see them come
and go several times; vLLM takes a minute on two cores, and the gaps are as much longer where the job trains on that."""
PROGRAMS: Final = "autoscaling-programs"

LARGEST: Final = 3
IDLE_SECONDS: Final = 30
LEAVING_SECONDS: Final = 45.0
"""For replicas that nobody wants any more: off the routers, at work no more, gone."""
CALLS_PER_REPLICA: Final = 4
CALLERS: Final = 48
"""Four times as many as three replicas are wanted for: an engine answers them all at once, and until the callers, which
share its cores, have asked again, most are with nobody."""

START_SECONDS: Final = 6
"""What the function takes to load. A bare Python starts in 3 s or, on a busy machine, in 6: that is twice as much. With
these it is about as much each time, as with a model that is loaded, and the autoscaler can go by experience."""
SERVICE_SECONDS: Final = 0.25
CALLS_AT_ONCE: Final = 4
SAMPLES: Final = 320
SPREAD_SECONDS: Final = 2.0
"""A replica answers 16 samples per second. Those of a burst, within its two seconds and the five that the policy gives
it, take 320 / (16 x 7) = 2.9 replicas."""
NEEDED: Final = 3
SAMPLES_PER_REPLICA: Final = 110
"""What policy QueueDepth uses, which comes to the same; it stands in for the rate until that is known."""


def namespace() -> list[Manifest]:
    """The namespace, the programs in it, and whom the pods are."""
    folder = Path(__file__).parent
    modules = {f"{module}.py": (folder / f"{module}.py").read_text() for module in ("callers", "job")}
    metadata = {"name": PROGRAMS, "namespace": NAMESPACE}
    account = {"name": ACCOUNT, "namespace": NAMESPACE}
    return [
        *manifests.namespace(NAMESPACE),
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"__init__.py": "", **modules}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account},
    ]


def chart_values() -> Mapping[str, Any]:
    """Values of the chart: the image that was just built, and the pods' right to use the pools and to announce."""
    account = {"namespace": NAMESPACE, "name": ACCOUNT}
    trainer = {"namespace": NAMESPACE, "pools": [MODEL, FUNCTION], "jobs": [JOB], "serviceAccounts": [account]}
    return {**manifests.chart_values(), "trainers": [trainer]}


def model_pool(*, most: int = LARGEST) -> Manifest:
    """The quick start's pool on vLLM, at zero."""
    quick_start = yaml.safe_load((QUICKSTART / "pool.yaml").read_text())
    made = quick_start_on_this_machine(quick_start, server=environment("server"), image=ENGINE_IMAGE)
    made["metadata"] = {"name": MODEL, "namespace": NAMESPACE}
    router = {"name": "router", "resources": requests(cpu="50m", memory="128Mi")}
    made["spec"]["router"] = {"image": IMAGE, "podTemplate": {"spec": {"containers": [router]}}}
    return _autoscaled(made, target=CALLS_PER_REPLICA, most=most)


def function_pool() -> Manifest:
    """A pool of functions with a fixed service time, at zero."""
    made = manifests.pool(FUNCTION, in_namespace=NAMESPACE, workers=0, routers=1)
    made["spec"]["sandbox"]["concurrency"] = CALLS_AT_ONCE
    times = {"SERVICE_SECONDS": SERVICE_SECONDS, "START_SECONDS": START_SECONDS}
    made["spec"]["engine"]["env"] += [{"name": name, "value": str(seconds)} for name, seconds in times.items()]
    return _autoscaled(made, target=SAMPLES_PER_REPLICA)


def callers(name: str, folder: Path, *, at_once: int, samples: int | None = None) -> Manifest:
    """The pod that asks the model: so many samples, or until it is deleted."""
    further = [] if samples is None else [f"--samples={samples}"]
    return _pod(name, "autoscaling.callers", f"{NAMESPACE}/{MODEL}", str(folder), f"--callers={at_once}", *further)


def job(name: str, folder: Path, *, pool: str, bursts: int, gap_seconds: float) -> Manifest:
    """The training job's pod."""
    shape = [f"--bursts={bursts}", f"--samples={SAMPLES}"]
    times = [f"--spread-seconds={SPREAD_SECONDS:g}", f"--gap-seconds={gap_seconds:g}"]
    return _pod(name, "autoscaling.job", f"{NAMESPACE}/{pool}", str(folder), *shape, *times)


def silent(name: str, folder: Path, *, pool: str, rate: float) -> Manifest:
    """The pod of a job that asks at a steady rate and announces nothing."""
    return _pod(name, "faults.traffic", f"{NAMESPACE}/{pool}", str(folder), f"--rate={rate:g}", "--silent")


def _autoscaled(pool: Manifest, *, target: int, most: int = LARGEST) -> Manifest:
    policies: Sequence[Manifest] = (
        {"type": "QueueDepth", "queueDepth": {"targetPerReplica": target}},
        {"type": "Demand", "demand": {}},
    )
    del pool["spec"]["replicas"]
    pool["spec"]["autoscaling"] = {
        "minReplicas": 0,
        "maxReplicas": most,
        "policies": list(policies),
        "cooldownSeconds": IDLE_SECONDS,
        # A job that dies is believed for up to 15 s. Then this begins, and it is over before cooldownSeconds.
        "scaleDown": {"stabilizationWindowSeconds": 10},
    }
    return pool


def _pod(name: str, module: str, pool: str, folder: str, *arguments: str) -> Manifest:
    packages = {"faults": manifests.PROGRAMS, "autoscaling": PROGRAMS}
    return asking_pod(name, (module, pool, folder, *arguments), packages, Path(folder), in_namespace=NAMESPACE)
