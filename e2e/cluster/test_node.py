"""What the node promises, on real pods. Needs root: `pytest e2e/cluster`; not part of `make test`."""

# ruff: noqa: D103  (the names of tests are sentences)

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from cluster import images, leftovers
from cluster.folders import CACHE, REPOSITORY, STATE
from cluster.node import NodeCluster
from cluster.processes import ClusterError, output_of, wait_until
from cluster.progress import timed_lines

pytestmark = pytest.mark.real

IMAGE = "localhost/rewardpool-test-server:1"

SERVER = """
apiVersion: v1
kind: Pod
metadata: {name: server, labels: {app: server}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
    - name: server
      image: localhost/rewardpool-test-server:1
      command: [python, -u, -m, http.server, "8000", --directory, /etc]
      resources: {limits: {nvidia.com/gpu: 1}}
      readinessProbe: {httpGet: {path: /hostname, port: 8000}, periodSeconds: 1}
---
apiVersion: v1
kind: Pod
metadata: {name: client}
spec:
  nodeName: node-2
  terminationGracePeriodSeconds: 1
  containers: [{name: client, image: "localhost/rewardpool-test-server:1", command: [sleep, "600"]}]
---
apiVersion: v1
kind: Service
metadata: {name: server}
spec: {selector: {app: server}, ports: [{port: 80, targetPort: 8000}]}
"""

ASK_API_SERVER = """
import json, os, ssl, urllib.request
folder = "/var/run/secrets/kubernetes.io/serviceaccount"
token = open(folder + "/token").read()
url = "https://kubernetes.default.svc/apis/authentication.k8s.io/v1/selfsubjectreviews"
review = json.dumps({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}).encode()
headers = {"Authorization": "Bearer " + token, "Content-Type": "application/json"}
request = urllib.request.Request(url, review, headers)
answer = urllib.request.urlopen(request, context=ssl.create_default_context(cafile=folder + "/ca.crt"), timeout=10)
print(json.load(answer)["status"]["userInfo"]["username"])
"""


def traces() -> dict[str, list[str]]:
    """What a node could leave on the machine: mounts, interfaces, routes, firewall rules, control groups, files."""
    return {
        "mounts": Path("/proc/self/mounts").read_text().splitlines(),
        "interfaces": [link["ifname"] for link in json.loads(output_of("ip", "-json", "link"))],
        "routes": output_of("ip", "route").splitlines(),
        "rules": [line for line in output_of("iptables-save").splitlines() if not line.startswith("#")],
        "cgroups": sorted(map(str, Path("/sys/fs/cgroup").rglob("rewardpool-*"))),
        "files": sorted(path.name for path in STATE.glob("node-*")),
        "sysctls": [Path("/proc/sys", name).read_text() for name in ("vm/overcommit_memory", "net/ipv4/ip_forward")],
    }


def programs() -> list[psutil.Process]:
    """Every process that this one started, and those that they did, containers included."""
    return psutil.Process().children(recursive=True)


@pytest.fixture(scope="module")
def archive() -> Path:
    say = timed_lines()
    folder = CACHE / "images" / "test-server"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "Containerfile").write_text("ARG BASE\nFROM ${BASE}\nRUN pip install --no-cache-dir tomli-w\n")
    return images.build(
        folder / "Containerfile",
        context=folder,
        tag=IMAGE,
        archive=folder / "image.tar",
        arguments={"BASE": images.base_image(say=say)},
        say=say,
    )


@pytest.fixture(scope="module")
def cluster(archive: Path) -> Iterator[NodeCluster]:
    leftovers.sweep(say=timed_lines())
    before = traces()
    with NodeCluster(nodes=2) as running:
        running.load_image(archive)
        running.fake_gpus(2)
        running.kubectl("apply", "-f", "-", input=SERVER)
        running.kubectl(
            "wait", "--for=condition=Ready", "pod/server", "pod/client", "--timeout=60s", deadline_seconds=70
        )
        yield running
        started = programs()
    assert psutil.wait_procs(started, timeout=2)[1] == []
    assert traces() == before


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=5) as response:
        return str(response.read().decode())


def address(cluster: NodeCluster, kind: str, path: str) -> str:
    return cluster.kubectl("get", kind, "server", "-o", f"jsonpath={{{path}}}")


def python_in_client(cluster: NodeCluster, code: str) -> str:
    return cluster.kubectl("exec", "client", "--", "python", "-c", code)


def test_the_host_reaches_a_pod_at_its_address(cluster: NodeCluster) -> None:
    assert get(f"http://{address(cluster, 'pod', '.status.podIP')}:8000/hostname").strip() == "server"


def test_the_host_reaches_a_service_at_its_address(cluster: NodeCluster) -> None:
    assert get(f"http://{address(cluster, 'service', '.spec.clusterIP')}/hostname").strip() == "server"


def test_a_pod_reaches_a_service_of_another_node_by_name(cluster: NodeCluster) -> None:
    code = (
        "import urllib.request as r; print(r.urlopen('http://server.default.svc/hostname', timeout=5).read().decode())"
    )

    assert python_in_client(cluster, code).strip() == "server"


def test_a_pod_reaches_itself_through_its_service(cluster: NodeCluster) -> None:
    code = (
        "import urllib.request as r; print(r.urlopen('http://server.default.svc/hostname', timeout=5).read().decode())"
    )

    assert cluster.kubectl("exec", "server", "--", "python", "-c", code).strip() == "server"


def test_a_pod_reaches_a_pod_of_another_node(cluster: NodeCluster) -> None:
    url = f"http://{address(cluster, 'pod', '.status.podIP')}:8000/hostname"
    code = f"import urllib.request as r; print(r.urlopen({url!r}, timeout=5).read().decode())"

    assert python_in_client(cluster, code).strip() == "server"


def test_every_node_pulls_images_of_the_registry(cluster: NodeCluster) -> None:
    with cluster.registry() as registry:
        image = f"{registry.address}/test/server:1"
        images.push(IMAGE, image)
        for node in ("node-1", "node-2"):
            overrides = json.dumps({"spec": {"nodeName": node}})
            run = ["run", f"puller-of-{node}", f"--image={image}", f"--overrides={overrides}", "--attach", "--rm"]
            said = cluster.kubectl(*run, "--restart=Never", "--quiet", "--", "python", "-c", "import tomli_w; print(1)")
            assert said.strip() == "1"


def test_the_api_server_comes_back(cluster: NodeCluster) -> None:
    pod = address(cluster, "pod", ".status.podIP")
    with cluster.api_server_away():
        with pytest.raises(ClusterError, match="refused"):
            cluster.kubectl("get", "nodes")
        assert get(f"http://{pod}:8000/hostname").strip() == "server"

    assert "node-2" in cluster.kubectl("get", "nodes")


def test_a_killed_container_is_started_again(cluster: NodeCluster) -> None:
    container = "jsonpath={.status.containerStatuses[0].containerID}"
    before = cluster.kubectl("get", "pod", "client", "-o", container)
    cluster.kill_container("node-2", before.removeprefix("containerd://"))

    wait_until(
        lambda: cluster.kubectl("get", "pod", "client", "-o", container) not in ("", before),
        what="it runs again",
        deadline_seconds=30,
    )


def test_an_outside_name_is_refused_at_once(cluster: NodeCluster) -> None:
    code = "import socket, time\nbegan = time.time()\ntry: socket.getaddrinfo('example.com', 80)\n"
    code += "except socket.gaierror as error: print(error.errno == socket.EAI_NONAME and time.time() - began < 2)"

    assert python_in_client(cluster, code).strip() == "True"


def test_a_pods_service_account_is_known_to_the_api_server(cluster: NodeCluster) -> None:
    assert python_in_client(cluster, ASK_API_SERVER).strip() == "system:serviceaccount:default:default"


def test_the_scheduler_counts_the_faked_gpus(cluster: NodeCluster) -> None:
    override = {"spec": {"containers": [{"name": "x", "image": IMAGE, "resources": {"limits": {"nvidia.com/gpu": 2}}}]}}
    cluster.kubectl("run", "greedy", f"--image={IMAGE}", f"--overrides={json.dumps(override)}")

    waited = cluster.kubectl("wait", "--for=condition=PodScheduled=False", "pod/greedy", "--timeout=10s")

    assert "condition met" in waited
    assert "Insufficient nvidia.com/gpu" in cluster.kubectl("get", "pod", "greedy", "-o", "yaml")


def test_logs_come_through(cluster: NodeCluster) -> None:
    get(f"http://{address(cluster, 'pod', '.status.podIP')}:8000/hostname?in-the-log")

    assert "in-the-log" in cluster.kubectl("logs", "server")


def test_what_pip_was_lent_is_not_in_the_image(cluster: NodeCluster) -> None:
    code = "import tomli_w, pathlib; p = pathlib.Path('/etc/pip.conf'); print(p.exists() and p.read_text())"

    assert python_in_client(cluster, code).strip() in ("False", "")


def test_a_deleted_pod_is_gone_soon_and_its_address_goes_silent(cluster: NodeCluster) -> None:
    override = {"spec": {"containers": [{"name": "x", "image": IMAGE, "command": ["python", "-m", "http.server"]}]}}
    cluster.kubectl("run", "brief", f"--image={IMAGE}", f"--overrides={json.dumps(override)}")
    cluster.kubectl("wait", "--for=condition=Ready", "pod/brief", "--timeout=30s")
    pod = cluster.kubectl("get", "pod", "brief", "-o", "jsonpath={.status.podIP}")
    began = time.monotonic()

    cluster.kubectl("delete", "pod", "brief", "--grace-period=1", "--timeout=20s")

    assert time.monotonic() - began < 8
    with pytest.raises(OSError, match="timed out"):
        urllib.request.urlopen(f"http://{pod}:8000", timeout=2)


def test_a_second_cluster_runs_beside_the_first(cluster: NodeCluster) -> None:
    before = traces()

    with NodeCluster() as second:
        assert second.kubectl("get", "pods", "-o", "name") == ""
        assert "pod/server" in cluster.kubectl("get", "pods", "-o", "name")

    assert traces() == before


def test_what_a_killed_run_left_is_swept_by_the_next(cluster: NodeCluster) -> None:
    before = traces()
    script = "import sys\nfrom cluster.node import NodeCluster\nNodeCluster().start()\n"
    script += "print('up', flush=True)\nsys.stdin.read()\n"
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY / "e2e")}
    run = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )
    assert run.stdout is not None
    assert run.stdout.readline() == "up\n"
    started = psutil.Process(run.pid).children(recursive=True)
    run.kill()
    run.wait()

    leftovers.sweep(say=timed_lines())

    assert len(started) > 8
    assert psutil.wait_procs(started, timeout=5)[1] == []
    assert traces() == before
