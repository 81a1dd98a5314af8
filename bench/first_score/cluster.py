"""function_cluster, parked_cluster: function pools of a real Kubernetes of one node that go to zero and are asked.

The node is made here (`e2e/cluster`), so requests go to the router's pod from this process, with nothing between.
"""

import base64
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
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
PROGRAMS_MOUNT: Final = {"name": PROGRAMS, "mountPath": f"{PROGRAMS_DIR}/first_score", "readOnly": True}
PROGRAMS_VOLUME: Final = {"name": PROGRAMS, "configMap": {"name": PROGRAMS}}
ACCOUNT: Final = "trainer"
LOOK_SECONDS: Final = 0.3

Manifest = dict[str, Any]


def namespace() -> list[Manifest]:
    """The namespace, what its pods run of this folder, and whom the job's pod is."""
    files = {f"{module}.py": Path(__file__).with_name(f"{module}.py").read_text() for module in ("reward", "burst_job")}
    metadata = {"name": PROGRAMS, "namespace": NAMESPACE}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"__init__.py": "", **files}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT, "namespace": NAMESPACE}},
    ]


def function_pool(*, parked: int = 0) -> Manifest:
    """The pool of `local`, on RewardPool's own image."""
    made = local.manifest(parked=parked)
    made["metadata"]["namespace"] = NAMESPACE
    worker = {"name": "worker", "volumeMounts": [PROGRAMS_MOUNT], "resources": requests("50m", "64Mi")}
    made["spec"]["engine"] = {"image": IMAGE, "env": [{"name": "PYTHONPATH", "value": PROGRAMS_DIR}]}
    made["spec"]["worker"]["podTemplate"] = {"spec": {"containers": [worker], "volumes": [PROGRAMS_VOLUME]}}
    made["spec"]["router"] = router()
    return made


def router() -> Manifest:
    """`spec.router` of a pool here."""
    container = {"name": "router", "resources": requests("50m", "128Mi")}
    return {"image": IMAGE, "podTemplate": {"spec": {"containers": [container]}}}


def measure_functions(cluster: Cluster, *, rounds: int, parked: int, say: Callable[[str], None]) -> dict[str, Any]:
    """The entry of a function pool."""
    scene = Scene(cluster, namespace=NAMESPACE, name=local.NAME, say=say)
    alone = [] if parked else [function_start() for _ in range(rounds)]
    title = "parked_cluster" if parked else "function_cluster"
    found: list[Round] = []
    with applied(scene, function_pool(parked=parked)):
        for number in range(rounds):
            body = body_of(scene.name, local.TEXT)
            found.append(one_round(scene, body, known=[one.first for one in found], parked=parked))
            if found[-1].score != len(local.TEXT):
                raise RuntimeError(f"the score of {local.TEXT!r} is {found[-1].score}, not {len(local.TEXT)}")
            say(f"{title} {number + 1}/{rounds}: {found[-1].seconds:.2f} s, {found[-1].first['parts']}")
    return entry([one.seconds for one in found], [one.first for one in found], alone)


@dataclass(frozen=True, kw_only=True)
class Round:
    """One request at a pool at zero."""

    seconds: float
    """That the caller waited."""
    score: float
    answered: float
    """When the score came, in seconds since 1970."""
    first: Mapping[str, Any]
    """What the pool said of it: `status.firstScore`."""


def one_round(scene: Scene, body: bytes, *, known: Sequence[Mapping[str, Any]], parked: int = 0) -> Round:
    """Wait until the pool is at zero, ask, and wait until its status has the first score.

    Args:
        scene: the pool.
        body: of the request.
        known: `status.firstScore` of the rounds before.
        parked: replicas that the pool keeps at zero.
    """
    until_at_zero(scene, parked=parked)
    time.sleep(local.SETTLE_SECONDS)
    seconds, score = ask(_url(scene), key=_key(scene), body=body)
    answered = time.time()
    until(lambda: local.is_told(_status(scene), known), what="the status has the first score", pause=LOOK_SECONDS)
    return Round(seconds=seconds, score=score, answered=answered, first=_status(scene)["firstScore"])


def until_at_zero(scene: Scene, *, parked: int = 0) -> None:
    """Wait until nobody serves, leaves or is wanted, and a router answers.

    Raises:
        TooLateError: that does not come.
    """
    until(lambda: _is_at_zero(_status(scene), parked), what="the pool is at zero", pause=LOOK_SECONDS)


@contextmanager
def applied(scene: Scene, *manifests: Manifest) -> Iterator[None]:
    """Objects of which the pools are deleted in the end."""
    scene.apply(*manifests)
    try:
        yield
    finally:
        scene.attempt("delete", "rewardpools", "--all", "--timeout=60s")


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


def requests(cpu: str, memory: str) -> Manifest:
    """Resource requests of a container."""
    return {"requests": {"cpu": cpu, "memory": memory}}
