"""A pool's whole surroundings: API server, a node's stand-in, and the operator as a process."""

import os
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from signal import SIGTERM
from typing import Any
from urllib.parse import quote

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from support.api_server import new_control_plane
from support.cable import Cable
from support.env_vars import env_vars
from support.fleet import server_python
from support.loopback_kubelet import LoopbackKubelet
from support.operator_process import operator_process, restricted_kubeconfig
from support.ports import free_port
from support.processes import RealProcess

from cluster.control_plane import ControlPlane
from rewardpool_api import names
from rewardpool_operator.main import RUNNING

NAMESPACE = "pools"
LOOK_SECONDS = 0.15
"""Between two looks at the API server while a test waits: a look costs some milliseconds of its CPU and of etcd's."""
PATHS = {
    kind: f"{group}/namespaces/{{}}/{plural or kind + 's'}"
    for group, kinds in {
        "/api/v1": {"configmap": "", "pod": "", "secret": "", "service": ""},
        "/apis/apps/v1": {"deployment": "", "replicaset": ""},
        "/apis/autoscaling/v2": {"hpa": "horizontalpodautoscalers"},
        "/apis/coordination.k8s.io/v1": {"lease": ""},
        "/apis/policy/v1": {"pdb": "poddisruptionbudgets"},
        f"/apis/{names.API_VERSION}": {"rewardpool": ""},
    }.items()
    for kind, plural in kinds.items()
}
"""Where the API server has the objects of a kind, but for the namespace."""
OWNED = ("pod", "service", "secret", "configmap", "pdb")
FUNCTIONS = Path(__file__).resolve().parent


class Cluster:
    """What the tests do and look at, in few words."""

    def __init__(self, plane: ControlPlane, kubelet: LoopbackKubelet, *, cable: Cable, folder: Path) -> None:
        self.plane = plane
        self.cable = cable
        """Between the operator, and nobody else, and the API server."""
        self.health_port, self.metrics_port = free_port(), free_port()
        self.kubelet = kubelet
        self._kubeconfig = restricted_kubeconfig(plane, NAMESPACE, url=cable.url)
        self._folder = folder
        self._starts = 0
        self.operator: RealProcess

    def start_operator(self, **env: str) -> None:
        """Start it, with these environment variables."""
        self._starts += 1
        log = self._folder / f"operator-{self._starts}.log"
        self.operator = operator_process(
            self._kubeconfig,
            namespace=NAMESPACE,
            health_port=self.health_port,
            log=log,
            flags=[f"--metrics-port={self.metrics_port}"],
            env=env,
        )
        self.operator.__enter__()
        self.operator.until(lambda: RUNNING in log.read_text(), seconds=30, what="the operator runs")

    def stop_operator(self) -> None:
        self.operator.signal(SIGTERM)
        assert self.operator.exit_code(seconds=15) == 0
        self.kill_operator()

    def kill_operator(self) -> None:
        self.operator.__exit__(None, None, None)

    def logs(self) -> list[Path]:
        """What every operator of these tests wrote."""
        return sorted(self._folder.glob("operator-*.log"))

    def kubectl(self, *args: str, data: str | None = None) -> str:
        return self.plane.kubectl("--namespace", NAMESPACE, *args, input=data)

    def apply(self, name: str, **spec: Any) -> None:
        """Apply a pool of Python functions; `spec` as in a manifest."""
        self.kubectl("apply", "-f", "-", data=self.manifest(name, **spec))

    def manifest(self, name: str, **spec: Any) -> str:
        """What `apply` applies, as YAML."""
        manifest = {
            "apiVersion": names.API_VERSION,
            "kind": names.KIND,
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {
                "model": {"source": "python://reward_functions:compute_score"},
                "engine": {"env": env_vars({"PYTHONPATH": str(FUNCTIONS)})},
                "worker": {"gpus": 0, "drainSeconds": 10},
                "router": {"requestTimeoutSeconds": 10},
                **spec,
            },
        }
        return yaml.safe_dump(manifest)

    def get(self, kind: str, name: str) -> dict[str, Any] | None:
        """An object by its kind as `PATHS` has it, or None if it is not there."""
        return self.plane.read(f"{PATHS[kind].format(NAMESPACE)}/{name}")

    def all(self, kind: str, selector: str = "") -> list[dict[str, Any]]:
        """All objects of a kind that a label selector selects."""
        found = self.plane.read(f"{PATHS[kind].format(NAMESPACE)}?labelSelector={quote(selector)}") or {"items": []}
        items: list[dict[str, Any]] = found["items"]
        return items

    def status(self, pool: str) -> dict[str, Any]:
        return (self.get("rewardpool", pool) or {}).get("status") or {}

    def condition(self, pool: str, kind: str) -> dict[str, Any]:
        return next((item for item in self.status(pool).get("conditions", []) if item["type"] == kind), {})

    def pods(self, pool: str, component: str) -> list[dict[str, Any]]:
        return self.all("pod", f"{names.LABEL_POOL}={pool},{names.LABEL_COMPONENT}={component}")

    def is_ready(self, pool: str, *, replicas: int) -> bool:
        """Whether that many workers serve, nothing is under way, and the status says so of this very spec."""
        found = self.get("rewardpool", pool) or {}
        status = found.get("status") or {}
        current = status.get("observedGeneration") == found["metadata"]["generation"]
        counts = (status.get("readyReplicas"), status.get("replicas"), status.get("drainingReplicas"))
        settled = ("Progressing", "False") in {(item["type"], item["status"]) for item in status.get("conditions", [])}
        return current and settled and counts == (replicas, replicas, 0)

    def samples(self) -> list[Any]:
        """All samples that the operator's metrics have."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}/metrics", timeout=5) as response:
            text = response.read().decode()
        return [sample for family in text_string_to_metric_families(text) for sample in family.samples]

    def metric(self, name: str, **labels: str) -> float | None:
        """The value of the one with these labels; None when there is none."""
        return next((item.value for item in self.samples() if item.name == name and item.labels == labels), None)

    def eventually(self, holds: Callable[[], object], *, seconds: float, what: str) -> None:
        self.operator.until(lambda: bool(holds()), seconds=seconds, what=what, every=LOOK_SECONDS)

    def clear(self) -> None:
        """Remove all pools, what belongs to them and what scales them; their pods end at once."""
        self.kubectl("delete", "rewardpools,leases,horizontalpodautoscalers", "--all")
        sets = lambda: [*self.all("deployment"), *self.all("replicaset")]  # noqa: E731
        self.eventually(lambda: not sets(), seconds=30, what="nobody makes pods any more")
        self.kubectl("delete", "pods", "--all", "--force", "--grace-period=0")
        owned = lambda: [one for kind in OWNED for one in self.all(kind, names.LABEL_POOL)]  # noqa: E731
        self.eventually(lambda: not owned() and self.kubelet.is_idle, seconds=30, what="nothing is left of the pools")


@pytest.fixture(scope="session")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The cluster of all modules that leave the operator and the API server as they were."""
    with new_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def cluster(shared_cluster: Cluster) -> Iterator[Cluster]:
    """The operator runs, and there is no pool yet."""
    yield shared_cluster
    shared_cluster.clear()


@contextmanager
def new_cluster(folder: Path) -> Iterator[Cluster]:
    """The operator runs; nothing else does yet. With an API server of its own: the node runs all pods that one has."""
    pythons = {**dict.fromkeys(("worker", "download", "gateway"), sys.executable), "router": server_python()}
    own = {"gateway": {"PYTHONPATH": os.environ.get("PYTHONPATH", "")}}
    with ExitStack() as stack:
        control_plane = stack.enter_context(new_control_plane(folder / "control-plane"))
        control_plane.kubectl("create", "namespace", NAMESPACE)
        kubelet = stack.enter_context(
            LoopbackKubelet(control_plane, folder / "pods", pythons=pythons, environments=own)
        )
        cable = stack.enter_context(Cable(control_plane.url))
        cluster = Cluster(control_plane, kubelet, cable=cable, folder=folder)
        cluster.start_operator()
        stack.callback(lambda: cluster.kill_operator())
        yield cluster


def seconds_until(holds: Callable[[], object], *, limit: float) -> float:
    """Seconds until it holds; the limit, when it never did."""
    began = time.monotonic()
    while not holds() and time.monotonic() - began < limit:
        time.sleep(0.05)
    return time.monotonic() - began


def names_of(objects: Sequence[dict[str, Any]]) -> set[str]:
    return {item["metadata"]["name"] for item in objects}
