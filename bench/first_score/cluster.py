"""function_cluster, parked_cluster: function pools of a real Kubernetes of one node that go to zero and are asked.

The node is made here (`e2e/cluster`), so requests go to the router's pod from this process, with nothing between.
"""

import base64
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from cluster.contract import Cluster
from first_score import local
from first_score.alone import function_start
from first_score.asking import ask, body_of, until
from first_score.figures import entry
from installation import IMAGE
from rewardpool_api import names
from scene import Scene

NAMESPACE: Final = "first-score"
PROGRAMS: Final = "first-score-programs"
PROGRAMS_DIR: Final = "/opt/first-score"
LOOK_SECONDS: Final = 0.3

Manifest = dict[str, Any]


def namespace() -> list[Manifest]:
    """The namespace, and the reward function that pods mount."""
    files = {"__init__.py": "", "reward.py": Path(__file__).with_name("reward.py").read_text()}
    metadata = {"name": PROGRAMS, "namespace": NAMESPACE}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": files},
    ]


def function_pool(*, parked: int = 0) -> Manifest:
    """The pool of `local`, on RewardPool's own image."""
    made = local.manifest(parked=parked)
    made["metadata"]["namespace"] = NAMESPACE
    mount = {"name": PROGRAMS, "mountPath": f"{PROGRAMS_DIR}/first_score", "readOnly": True}
    volume = {"name": PROGRAMS, "configMap": {"name": PROGRAMS}}
    worker = {"name": "worker", "volumeMounts": [mount], "resources": _requests("50m", "64Mi")}
    router = {"name": "router", "resources": _requests("50m", "128Mi")}
    made["spec"]["engine"] = {"image": IMAGE, "env": [{"name": "PYTHONPATH", "value": PROGRAMS_DIR}]}
    made["spec"]["worker"]["podTemplate"] = {"spec": {"containers": [worker], "volumes": [volume]}}
    made["spec"]["router"] = {"image": IMAGE, "podTemplate": {"spec": {"containers": [router]}}}
    return made


def measure_functions(cluster: Cluster, *, rounds: int, parked: int, say: Callable[[str], None]) -> dict[str, Any]:
    """The entry of a function pool."""
    scene = Scene(cluster, namespace=NAMESPACE, name=local.NAME, say=say)
    alone = [] if parked else [function_start() for _ in range(rounds)]
    title = "parked_cluster" if parked else "function_cluster"
    seconds, firsts = rounds_of(scene, function_pool(parked=parked), title=title, rounds=rounds, parked=parked)
    return entry(seconds, firsts, alone)


def rounds_of(
    scene: Scene, manifest: Manifest, *, title: str, rounds: int, parked: int = 0
) -> tuple[list[float], list[Mapping[str, Any]]]:
    """Seconds that each round's caller waited, and what the pool said of it; the pool is deleted in the end."""
    seconds: list[float] = []
    firsts: list[Mapping[str, Any]] = []
    scene.apply(manifest)
    try:
        for number in range(rounds):
            until(lambda: _is_at_zero(_status(scene), parked), what="the pool is at zero", pause=LOOK_SECONDS)
            time.sleep(local.SETTLE_SECONDS)
            waited, score = ask(_url(scene), key=_key(scene), body=body_of(scene.name, local.TEXT))
            if score != len(local.TEXT):
                raise RuntimeError(f"the score of {local.TEXT!r} is {score}, not {len(local.TEXT)}")
            until(
                lambda: local.is_told(_status(scene), firsts), what="the status has the first score", pause=LOOK_SECONDS
            )
            seconds.append(waited)
            firsts.append(_status(scene)["firstScore"])
            scene.say(f"{title} {number + 1}/{rounds}: {waited:.2f} s, {firsts[-1]['parts']}")
    finally:
        scene.attempt("delete", "rewardpool", scene.name, "--timeout=60s")
    return seconds, firsts


def _status(scene: Scene) -> dict[str, Any]:
    status: dict[str, Any] = scene.pool().get("status", {})
    return status


def _is_at_zero(status: Mapping[str, Any], parked: int) -> bool:
    exposed = any(one["type"] == "RouterReady" and one["status"] == "True" for one in status.get("conditions", ()))
    counts = (status.get("replicas", 0), status.get("drainingReplicas", 0), status.get("scaling", {}).get("desired"))
    return exposed and counts == (0, 0, 0) and status.get("parkedReplicas", 0) == parked


def _url(scene: Scene) -> str:
    (router,) = scene.pods("router")
    return f"http://{router['status']['podIP']}:{names.ROUTER_PORT}"


def _key(scene: Scene) -> str:
    secret = json.loads(scene.kubectl("get", "secret", names.key_secret(scene.name), "-o", "json"))
    return base64.b64decode(secret["data"][names.SECRET_KEY]).decode()


def _requests(cpu: str, memory: str) -> Manifest:
    return {"requests": {"cpu": cpu, "memory": memory}}
