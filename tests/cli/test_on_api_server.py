"""The command line on a real API server, scheduler and controllers, run by a real kubectl as its plugin.

There is no operator, so statuses of pools are written by hand; and no kubelet, so two pods' statuses are written in a
kubelet's words, and a stand-in for one answers the API server with logs. What the scheduler says of pods is its own.
"""

import json
import os
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.api_server import CRD

from cluster import binaries
from cluster.control_plane import ControlPlane
from rewardpool_api import names

pytestmark = pytest.mark.real

NAMESPACE = "rl"
TIME = "2026-01-01T12:00:00Z"
NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node"}}
NODE_STATUS = {
    "capacity": {"cpu": "4", "memory": "8Gi", "pods": "100"},
    "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "100"},
    "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": TIME}],
}


class StandInKubelet(BaseHTTPRequestHandler):
    """Answers `GET /containerLogs/NAMESPACE/POD/CONTAINER` with the request itself, as two lines."""

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        body = f"{path}\n{query}\n".encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


class Machine:
    """A user's machine: a kubeconfig, kubectl, and the plugin on its PATH."""

    def __init__(self, plane: ControlPlane, home: Path, kubectl: Path) -> None:
        self.plane = plane
        self._kubectl = kubectl
        self._home = home
        self._environ = {
            "HOME": str(home),
            "KUBECONFIG": str(plane.kubeconfig),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            names.ENV_STATE_DIR: str(home / "state"),
        }

    def kubectl_rewardpool(self, *arguments: str, kubeconfig: Path | None = None) -> tuple[int, str, str]:
        """Exit code, standard output and standard error of `kubectl rewardpool …`."""
        environ = self._environ | ({"KUBECONFIG": str(kubeconfig)} if kubeconfig else {})
        command = [str(self._kubectl), "rewardpool", *arguments]
        done = subprocess.run(
            command, env=environ, cwd=self._home, capture_output=True, text=True, timeout=60, check=False
        )
        return done.returncode, done.stdout, done.stderr

    def says(self, *arguments: str) -> str:
        """What the plugin prints when it succeeds."""
        code, out, err = self.kubectl_rewardpool(*arguments)
        assert code == 0, err
        return out

    def apply(self, *manifests: dict[str, Any]) -> None:
        self.plane.kubectl("apply", "-f", "-", input=yaml.safe_dump_all(manifests))

    def write_status(self, kind: str, name: str, status: dict[str, Any]) -> None:
        patch = json.dumps({"status": status})
        self.plane.kubectl("patch", kind, name, "-n", NAMESPACE, "--subresource=status", "--type=merge", "-p", patch)

    def get(self, kind: str, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.plane.kubectl("get", kind, name, "-n", NAMESPACE, "-o", "json"))
        return found

    def pool(self, name: str, *conditions: dict[str, Any], desired: int = 1, status: Any = None, **spec: Any) -> None:
        """A pool with a status as an operator leaves it."""
        body = {"model": {"source": "hf://org/model"}, **({} if "autoscaling" in spec else {"replicas": 1}), **spec}
        metadata = {"name": name, "namespace": NAMESPACE}
        self.apply({"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": metadata, "spec": body})
        written = {
            "observedGeneration": 1,
            "replicas": desired,
            "currentRevision": "new",
            "url": f"http://{name}-router.{NAMESPACE}.svc:8080",
            "scaling": {"desired": desired, "reason": "said so"},
            "conditions": list(conditions) or [condition("Serving", "False", "Starting")],
            **(status or {}),
        }
        self.write_status("rewardpool", name, written)

    def workers(
        self, pool: str, *, revision: str = "new", annotations: Any = None, replicas: int = 1, **pod: Any
    ) -> None:
        """A Deployment of workers, as the operator makes it; `pod` is merged over its pods' spec."""
        labels = {names.LABEL_POOL: pool, names.LABEL_COMPONENT: "worker", names.LABEL_REVISION: revision}
        metadata = {"name": f"{pool}-worker-{revision}", "namespace": NAMESPACE, "labels": labels}
        spec = {"containers": [{"name": "worker", "image": "engine:1"}], **pod}
        template = {"metadata": {"labels": labels}, "spec": spec}
        self.apply(
            {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "metadata": {**metadata, "annotations": annotations or {}},
                "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template},
            }
        )

    def pod_of(self, pool: str, *, scheduled: str = "True") -> str:
        """The name of the pool's pod once the scheduler has looked at it."""
        selector = f"{names.LABEL_POOL}={pool}"
        self.plane.kubectl("wait", "--for=create", "pod", "-l", selector, "-n", NAMESPACE, "--timeout=60s")
        looked = f"--for=condition=PodScheduled={scheduled}"
        self.plane.kubectl("wait", looked, "pod", "-l", selector, "-n", NAMESPACE, "--timeout=60s")
        return (
            self.plane.kubectl("get", "pods", "-l", selector, "-n", NAMESPACE, "-o", "name")
            .strip()
            .removeprefix("pod/")
        )

    def container_waits(self, pod: str, reason: str, message: str) -> None:
        """As a kubelet tells that it cannot start the container."""
        state = {"waiting": {"reason": reason, "message": message}}
        container = {"name": "worker", "image": "engine:1", "imageID": "", "ready": False, "restartCount": 0}
        status = {"phase": "Pending", "containerStatuses": [{**container, "started": False, "state": state}]}
        self.write_status("pod", pod, status)

    def container_runs(self, pod: str) -> None:
        """As a kubelet tells that the container runs, for the second time."""
        container = {"name": "worker", "image": "engine:1", "imageID": "", "ready": True, "restartCount": 1}
        states = {"state": {"running": {}}, "lastState": {"terminated": {"exitCode": 1}}}
        self.write_status("pod", pod, {"phase": "Running", "containerStatuses": [container | states]})


def condition(kind: str, status: str, reason: str, message: str = "") -> dict[str, Any]:
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": TIME}


SERVING = condition("Serving", "True", "Serving", "1 of 1 replicas serve")


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    kubectl = binaries.ensure("kubectl")["kubectl"]
    # Nobody is the node's kubelet, whose silence the controllers would notice.
    flags = {"kube-controller-manager": ("--node-monitor-grace-period=1h",)}
    folder = tmp_path_factory.mktemp("cli")
    with ControlPlane(folder / "plane", scheduler=True, manifests=[CRD], flags=flags) as plane:
        plane.kubectl("create", "namespace", NAMESPACE)
        plane.kubectl("config", "set-context", "--current", f"--namespace={NAMESPACE}")
        plane.kubectl("apply", "-f", "-", input=yaml.safe_dump(NODE))
        plane.kubectl(
            "patch", "node", "node", "--subresource=status", "--type=merge", "-p", json.dumps({"status": NODE_STATUS})
        )
        yield Machine(plane, folder, kubectl)


def explained(machine: Machine, pool: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(machine.says("explain", pool, "--json"))["explanations"]
    return found


def test_kubectl_runs_it_as_a_plugin_and_its_help_says_so(machine: Machine) -> None:
    assert "Usage: kubectl rewardpool [OPTIONS] COMMAND" in machine.says("--help")


def test_kubectl_finds_the_plugin(machine: Machine) -> None:
    machine.pool("found", SERVING)
    assert "found" in machine.plane.kubectl("get", "rewardpools", "-n", NAMESPACE)
    shown = machine.says("status", "found")
    assert "rl/found" in shown
    assert "in the cluster" in shown


def test_status_of_all_is_a_list_for_machines(machine: Machine) -> None:
    machine.pool("one", SERVING)
    items = json.loads(machine.says("status", "--json"))["items"]
    assert "one" in {item["metadata"]["name"] for item in items}


def test_a_pool_that_is_not_there_is_told_with_those_that_are(machine: Machine) -> None:
    machine.pool("there", SERVING)
    code, _, err = machine.kubectl_rewardpool("status", "not-there")
    assert code == 1
    assert "there is no RewardPool not-there in namespace rl" in err
    assert "there" in err


def test_top_shows_every_pool_once(machine: Machine) -> None:
    machine.pool("busy", SERVING, status={"load": {"inFlight": 9, "waiting": 4}})
    rows = {row["pool"]: row for row in json.loads(machine.says("top", "--json"))["pools"]}
    assert (rows["rl/busy"]["in_flight"], rows["rl/busy"]["waiting"]) == (9, 4)
    assert rows["rl/busy"]["samples_per_second"] is None


def test_restart_marks_the_pool(machine: Machine) -> None:
    machine.pool("again", SERVING)
    machine.says("restart", "again", "--no-wait")
    metadata = machine.get("rewardpool", "again")["metadata"]
    assert metadata["annotations"][names.ANNOTATION_RESTARTED_AT].endswith("Z")
    assert metadata["generation"] == 1


def test_rotate_key_asks_for_new_keys(machine: Machine) -> None:
    machine.pool("rotated", SERVING)
    machine.says("rotate-key", "rotated", "--no-wait")
    metadata = machine.get("rewardpool", "rotated")["metadata"]
    assert metadata["annotations"][names.ANNOTATION_ROTATE_KEY].endswith("Z")
    assert metadata["generation"] == 1


def test_rollback_gives_the_pool_the_earlier_spec(machine: Machine) -> None:
    parts = {"model": {"source": "hf://org/old"}, "worker": {"gpus": 0}}
    machine.pool(
        "back",
        SERVING,
        model={"source": "hf://org/new"},
        engine={"args": ["--no-such"]},
        status={"rollout": {"targetRevision": "new", "stableRevision": "new", "previousRevision": "old"}},
    )
    machine.workers("back", revision="old", replicas=0, annotations={names.ANNOTATION_SPEC: json.dumps(parts)})
    machine.says("rollback", "back", "--no-wait")
    spec = machine.get("rewardpool", "back")["spec"]
    assert spec["model"]["source"] == "hf://org/old"
    assert spec["worker"]["gpus"] == 0
    assert "args" not in spec["engine"] or spec["engine"]["args"] == []
    assert spec["replicas"] == 1


def test_a_rollback_without_an_earlier_revision_is_refused(machine: Machine) -> None:
    machine.pool("first", SERVING, status={"rollout": {"targetRevision": "new", "stableRevision": "new"}})
    code, _, err = machine.kubectl_rewardpool("rollback", "first")
    assert code == 2
    assert "has served with no other revision than new" in err


def test_scale_writes_the_number(machine: Machine) -> None:
    machine.pool("grows", SERVING)
    machine.says("scale", "grows", "3", "--no-wait")
    assert machine.get("rewardpool", "grows")["spec"]["replicas"] == 3


QUEUE = {
    "minReplicas": 0,
    "maxReplicas": 2,
    "policy": {"type": "QueueDepth", "queueDepth": {"targetPerReplica": 8}},
}


def test_scale_is_refused_where_a_policy_decides(machine: Machine) -> None:
    machine.pool("policy", SERVING, autoscaling=QUEUE)
    code, _, err = machine.kubectl_rewardpool("scale", "policy", "3")
    assert code == 2
    assert "is scaled by policy QueueDepth" in err


def test_a_wait_ends_when_nobody_does_what_was_asked(machine: Machine) -> None:
    failed = {"revision": "new", "reason": "ProgressDeadlineExceeded", "message": "no score", "time": TIME}
    rolled_back = condition("Progressing", "False", "RolledBack", "revision old serves")
    status = {"observedGeneration": 2, "rollout": {"targetRevision": "old", "stableRevision": "old", "failed": failed}}
    machine.pool("waits", SERVING, rolled_back, status=status)
    code, _, err = machine.kubectl_rewardpool("scale", "waits", "2")
    assert code == 1
    assert "RolledBack: revision old serves" in err
    assert "kubectl rewardpool explain rl/waits says why" in err


def test_explain_names_the_resource_that_no_node_has(machine: Machine) -> None:
    machine.pool("no-gpu")
    limits = {"nvidia.com/gpu": "1"}
    machine.workers("no-gpu", containers=[{"name": "worker", "image": "engine:1", "resources": {"limits": limits}}])
    machine.pod_of("no-gpu", scheduled="False")
    (problem, *_) = explained(machine, "no-gpu")
    assert problem["cause"] == "Unschedulable"
    assert problem["what"] == "The worker pod waits for a node: there is not enough nvidia.com/gpu"


def test_explain_names_the_claim_that_is_missing(machine: Machine) -> None:
    machine.pool("no-claim", model={"source": "pvc://weights/rm"})
    machine.workers("no-claim", volumes=[{"name": "m", "persistentVolumeClaim": {"claimName": "weights"}}])
    machine.pod_of("no-claim", scheduled="False")
    (problem, *_) = explained(machine, "no-claim")
    assert problem["cause"] == "MissingClaim"
    assert '"weights", which does not exist' in problem["what"]


@pytest.mark.parametrize(
    ("pool", "reason", "message", "cause"),
    [
        ("no-image", "ImagePullBackOff", 'Back-off pulling image "engine:1"', "Image"),
        ("no-secret", "CreateContainerConfigError", 'secret "hub" not found', "MissingSecret"),
    ],
)
def test_explain_passes_on_what_a_kubelet_says(
    machine: Machine, pool: str, reason: str, message: str, cause: str
) -> None:
    machine.pool(pool)
    machine.workers(pool)
    machine.container_waits(machine.pod_of(pool), reason, message)
    (problem, *_) = explained(machine, pool)
    assert problem["cause"] == cause
    assert message in problem["said"]


def test_explain_says_what_a_quota_forbids(machine: Machine) -> None:
    machine.plane.kubectl("create", "namespace", "full")
    machine.plane.kubectl("create", "quota", "none", "--hard=pods=0", "-n", "full")
    machine.pool("quota")
    pool = machine.get("rewardpool", "quota")
    metadata = {"name": "quota", "namespace": "full"}
    machine.apply({**pool, "metadata": metadata})
    labels = {names.LABEL_POOL: "quota", names.LABEL_COMPONENT: "worker", names.LABEL_REVISION: "new"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "worker", "image": "engine:1"}]}}
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    machine.apply(
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {**metadata, "labels": labels}, "spec": spec}
    )
    machine.plane.kubectl("wait", "--for=condition=ReplicaFailure", "deployment/quota", "-n", "full", "--timeout=60s")
    found = {item["cause"]: item for item in explained(machine, "full/quota")}
    assert "exceeded quota" in found["NoPodsMade"]["said"]


@pytest.mark.parametrize(
    ("name", "state", "cause"),
    [
        ("suspended", {"suspend": True, "desired": 0}, "Suspended"),
        ("idle", {"autoscaling": QUEUE, "desired": 0}, "AtZero"),
        ("blind", {"autoscaling": QUEUE, "figures": "missing"}, "MetricsUnavailable"),
    ],
)
def test_explain_says_why_a_pool_has_its_size(machine: Machine, name: str, state: dict[str, Any], cause: str) -> None:
    missing = state.pop("figures", None)
    conditions = [SERVING, condition("ScalingActive", "False", "MetricsUnavailable", "held")] if missing else []
    machine.pool(name, *conditions, **state)
    assert cause in {item["cause"] for item in explained(machine, name)}


@pytest.fixture(scope="module")
def onlooker(machine: Machine) -> Path:
    """The kubeconfig of somebody who may see pools, and nothing else."""
    kubectl = machine.plane.kubectl
    kubectl("create", "serviceaccount", "onlooker", "-n", NAMESPACE)
    resource = f"{names.PLURAL}.{names.GROUP}"
    kubectl("create", "role", "onlooker", "--verb=get,list", f"--resource={resource}", "-n", NAMESPACE)
    account = f"--serviceaccount={NAMESPACE}:onlooker"
    kubectl("create", "rolebinding", "onlooker", "--role=onlooker", account, "-n", NAMESPACE)
    token = kubectl("create", "token", "onlooker", "-n", NAMESPACE).strip()
    return machine.plane.kubeconfig_for("onlooker", token)


def test_who_may_not_see_pods_sees_the_pool_and_why_not_more(machine: Machine, onlooker: Path) -> None:
    machine.pool("seen", SERVING)
    code, out, err = machine.kubectl_rewardpool("status", "rl/seen", kubeconfig=onlooker)
    assert code == 0
    assert "rl/seen" in out
    assert "may not list pods in namespace rl (403)" in err


def test_who_may_not_change_a_pool_is_told_so_in_words(machine: Machine, onlooker: Path) -> None:
    machine.pool("kept", SERVING)
    code, _, err = machine.kubectl_rewardpool("restart", "rl/kept", kubeconfig=onlooker)
    assert code == 1
    assert "onlooker may not patch rewardpools in namespace rl (403). Kubernetes' role `edit` allows it" in err


def test_an_api_server_that_is_away_is_named(machine: Machine, tmp_path: Path) -> None:
    text = machine.plane.kubeconfig.read_text().replace(machine.plane.url, "https://127.0.0.1:1")
    kubeconfig = tmp_path / "away.kubeconfig"
    kubeconfig.write_text(text)
    code, _, err = machine.kubectl_rewardpool("status", kubeconfig=kubeconfig)
    assert code == 1
    assert "the API server https://127.0.0.1:1 does not answer" in err


@pytest.fixture
def kubelet(machine: Machine) -> Iterator[None]:
    """The node has something that speaks as a kubelet does."""
    certificate, key = machine.plane.authority.issue("kubelet", common_name="node", hosts=["127.0.0.1"])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server = ThreadingHTTPServer(("127.0.0.1", 0), StandInKubelet)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    status = {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": server.server_port}},
    }
    machine.write_status("node", "node", status)
    yield
    server.shutdown()
    server.server_close()


def test_logs_come_from_every_started_container_behind_its_pods_name(machine: Machine, kubelet: None) -> None:
    machine.pool("talks")
    machine.workers("talks")
    pod = machine.pod_of("talks")
    machine.container_runs(pod)
    out = machine.says("logs", "talks", "--tail", "7", "--since", "10m", "--previous", "-c", "worker")
    lines = [line.removeprefix(f"{pod} ") for line in out.splitlines()]
    assert lines[0] == f"/containerLogs/{NAMESPACE}/{pod}/worker"
    assert set(lines[1].split("&")) == {"previous=true", "sinceSeconds=600", "tailLines=7"}


def test_logs_of_a_pool_without_a_started_container_say_so(machine: Machine) -> None:
    machine.pool("silent")
    code, out, err = machine.kubectl_rewardpool("logs", "silent")
    assert (code, out) == (0, "")
    assert "no container of silent has a log yet" in err
