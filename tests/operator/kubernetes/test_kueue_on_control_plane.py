"""Pools and the Jobs of their trainers in a queue of Kueue's, with its own controller on a real control plane."""

import json
import random
from collections.abc import Iterator
from typing import Any, Final

import pytest
import yaml
from support.api_server import CRD
from support.operator_process import operator_process, restricted_kubeconfig
from support.ports import free_port
from support.processes import RealProcess

from cluster.control_plane import ControlPlane
from cluster.kueue import Kueue
from cluster.kwok import PATIENT, Kwok
from rewardpool_api import names

pytestmark = [pytest.mark.real, pytest.mark.long]

NAMESPACE: Final = "rl"
QUEUE: Final = "gpus"
WORKERS, TRAINERS = 2, 1
QUOTA: Final = WORKERS + TRAINERS
"""Of GPUs: a pool and its trainer have one in each of their pods, so there is room for one of each, and no more."""
GATE: Final = "kueue.x-k8s.io/admission"
SECONDS: Final = 90.0
QUEUES: Final = f"""
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {{name: any}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {{name: {QUEUE}}}
spec:
  namespaceSelector: {{}}
  resourceGroups:
  - coveredResources: [nvidia.com/gpu, cpu, memory]
    flavors:
    - name: any
      resources:
      - {{name: nvidia.com/gpu, nominalQuota: {QUOTA}}}
      - {{name: cpu, nominalQuota: 1000}}
      - {{name: memory, nominalQuota: 1Ti}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {{name: {QUEUE}, namespace: {NAMESPACE}}}
spec: {{clusterQueue: {QUEUE}}}
"""


class Queue:
    """What the tests make in the namespace, and see of it."""

    def __init__(self, plane: ControlPlane, operator: RealProcess) -> None:
        self._plane = plane
        self._operator = operator

    def kubectl(self, *args: str, data: str | None = None) -> str:
        return self._plane.kubectl("--namespace", NAMESPACE, *args, input=data)

    def create(self, *manifests: dict[str, Any]) -> None:
        self.kubectl("create", "-f", "-", data=yaml.safe_dump_all(manifests))

    def pods(self, run: str) -> list[dict[str, Any]]:
        """Those with GPUs of a pool and its Job."""
        found = self._plane.read(f"/api/v1/namespaces/{NAMESPACE}/pods?labelSelector=run={run}") or {"items": []}
        items: list[dict[str, Any]] = found["items"]
        return items

    def running(self, run: str) -> int:
        return sum(pod["status"].get("phase") == "Running" for pod in self.pods(run))

    def waiting(self, run: str) -> int:
        return sum(GATE in {gate["name"] for gate in pod["spec"].get("schedulingGates", [])} for pod in self.pods(run))

    def workloads(self) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = json.loads(self.kubectl("get", "workloads", "-o", "json"))["items"]
        return items

    def until(self, holds: Any, what: str) -> None:
        self._operator.until(holds, seconds=SECONDS, what=what, every=0.2)

    def end(self, run: str) -> None:
        """The trainer is done, and its pool is not needed any more."""
        for pod in self.pods(run):
            if "job-name" in pod["metadata"]["labels"]:
                succeeded = '{"status": {"phase": "Succeeded"}}'
                name = pod["metadata"]["name"]
                self.kubectl("patch", "pod", name, "--subresource=status", "--type=merge", f"--patch={succeeded}")
        self.kubectl("delete", f"rewardpool/{run}", f"job/{run}")


@pytest.fixture(scope="module")
def queue(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Queue]:
    folder = tmp_path_factory.mktemp("kueue")
    with (
        ControlPlane(folder / "plane", scheduler=True, manifests=[CRD], flags=PATIENT) as plane,
        Kwok(plane, nodes=1, gpus=100, pods="127.77.0.0/16"),
        Kueue(plane),
    ):
        plane.kubectl("create", "namespace", NAMESPACE)
        plane.kubectl("create", "-f", "-", input=QUEUES)
        credentials = restricted_kubeconfig(plane, NAMESPACE, url=plane.url)
        log, port = folder / "operator.log", free_port()
        with operator_process(credentials, namespace=NAMESPACE, health_port=port, log=log) as operator:
            yield Queue(plane, operator)


def pool(run: str, labels: dict[str, str], annotations: dict[str, str]) -> dict[str, Any]:
    worker = {"gpus": 1, "drainSeconds": 1, "labels": {"run": run, **labels}, "annotations": annotations}
    spec = {"model": {"source": "python://rewards:compute_score"}, "replicas": WORKERS, "worker": worker}
    return {"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": {"name": run}, "spec": spec}


def job(run: str, labels: dict[str, str], annotations: dict[str, str], queue: dict[str, str]) -> dict[str, Any]:
    container = {"name": "trainer", "image": "trainer", "resources": {"limits": {"nvidia.com/gpu": 1}}}
    template = {
        "metadata": {"labels": {"run": run, **labels}, "annotations": annotations},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }
    # A Job without a label gets those of its pods, and Kueue would take it for a workload of its own.
    metadata = {"name": run, "labels": {"run": run, **queue}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"template": template}}


def grouped(run: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """A pool and its Job whose pods are one group of Kueue's."""
    labels = {"kueue.x-k8s.io/queue-name": QUEUE, "kueue.x-k8s.io/pod-group-name": run}
    annotations = {"kueue.x-k8s.io/pod-group-total-count": str(QUOTA), "kueue.x-k8s.io/retriable-in-group": "false"}
    return pool(run, labels, annotations), job(run, labels, annotations, {})


@pytest.mark.parametrize("seed", range(20))
def test_of_two_pools_with_their_jobs_one_is_admitted_whole_and_the_other_after_it(queue: Queue, seed: int) -> None:
    runs = {f"a{seed}", f"b{seed}"}
    made = [manifest for run in sorted(runs) for manifest in grouped(run)]
    random.Random(seed).shuffle(made)
    queue.create(*made)

    queue.until(lambda: any(queue.running(run) == QUOTA for run in runs), "one runs, its trainer too")
    [first] = [run for run in runs if queue.running(run)]
    [second] = runs - {first}
    queue.until(lambda: queue.waiting(second) == QUOTA, "all pods of the other wait")

    queue.end(first)
    queue.until(lambda: queue.running(second) == QUOTA, "the other runs")
    queue.end(second)
    queue.until(lambda: not any(queue.pods(run) for run in runs) and not queue.workloads(), "nothing is left")


def test_without_a_group_two_pools_take_what_both_jobs_wait_for(queue: Queue) -> None:
    label = {"kueue.x-k8s.io/queue-name": QUEUE}
    runs = ("c", "d")
    queue.create(*(pool(run, label, {}) for run in runs))
    queue.until(lambda: sum(queue.running(run) for run in runs) == QUOTA, "the pools have all of the quota")
    queue.create(*(job(run, {}, {}, label) for run in runs))
    jobs = lambda: [one for one in queue.workloads() if one["metadata"]["name"].startswith("job-")]  # noqa: E731

    def refused(workload: dict[str, Any]) -> bool:
        conditions = workload.get("status", {}).get("conditions", [])
        return any("insufficient unused quota" in condition["message"] for condition in conditions)

    queue.until(lambda: sum(map(refused, jobs())) == len(runs), "no Job gets a GPU")
