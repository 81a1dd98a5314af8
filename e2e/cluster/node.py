"""A cluster of one node that really runs pods, on a machine without Docker.

The control plane runs on the host; containerd, kubelet, kube-proxy and CoreDNS run in namespaces of their own
(`cluster.namespaces`), joined to it by a virtual wire (`cluster.network`). From the host, pods answer at their
addresses and Services at theirs; `kubectl logs`, `exec` and `port-forward` work; pods find Services by name and the API
server by its Service. Pods cannot leave the machine: what they need is in their image or mounted with hostPath, and
hostPath sees the host's files. Needs Linux, root and Go; what is missing of Debian's packages is installed.
"""

import os
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from cluster import binaries, images, leftovers, network, node_files, packages
from cluster.contract import Cluster
from cluster.control_plane import ControlPlane
from cluster.folders import STATE
from cluster.gpus import fake_gpus
from cluster.leftovers import Record
from cluster.locks import locked
from cluster.namespaces import INSIDE, Machine
from cluster.network import Network
from cluster.processes import ClusterError, Daemon, wait_until
from cluster.progress import Say, timed_lines

NODE = "node-1"

START_SECONDS = 90.0
"""Deadline for each part of the node; idle on two cores all of them take about ten seconds."""

_IMPORT_SECONDS = 300.0
_CTR = ("ctr", f"--address={node_files.SOCKET}")


class NodeCluster(Cluster):
    """One node and its control plane.

    Start it from the main thread: the kernel ends a cluster together with the thread that started it.
    """

    description = f"Kubernetes built from source, {NODE} in namespaces of this machine"

    def __init__(self, *, say: Say | None = None) -> None:
        self._say = say or timed_lines()
        self._undo = ExitStack()
        self._running: tuple[ControlPlane, Machine] | None = None

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self._parts()[0].kubeconfig

    def kubectl(self, *args: str, input: str | None = None, deadline_seconds: float = 60.0) -> str:  # noqa: A002
        """See `Cluster.kubectl`."""
        return self._parts()[0].kubectl(*args, input=input, deadline_seconds=deadline_seconds)

    def load_image(self, archive: Path) -> None:
        """Give the node the image of a docker-archive, such as `cluster.images.build` writes."""
        began = time.monotonic()
        _import(self._parts()[1], archive)
        self._say(f"the node has the image of {archive.name} ({time.monotonic() - began:.1f} s)")

    def fake_gpus(self, count: int) -> None:
        """Let the node say that it has `count` GPUs."""
        fake_gpus(self.kubectl, NODE, count)

    def start(self) -> None:
        """Build what is missing, sweep what dead runs left, and return when the node is ready."""
        if os.geteuid() != 0:
            raise ClusterError("a node needs root for its namespaces: run as root, or set KUBECONFIG to a cluster")
        packages.require(packages.NODE_PACKAGES, say=self._say)
        programs = binaries.ensure(*binaries.CONTROL_PLANE, *binaries.NODE, say=self._say)
        sandbox = images.pause_archive(say=self._say)
        began = time.monotonic()
        with ExitStack() as undo:
            wire, machine = self._make_machine(undo)
            plane = ControlPlane(
                machine.directory / "control-plane",
                scheduler=True,
                address=str(wire.host),
                service_network=str(wire.services),
                nodes=[NODE],
                say=self._say,
            )
            undo.callback(plane.stop)
            plane.start()
            _start_programs(machine, wire, plane, programs, sandbox)
            self._undo = undo.pop_all()
        self._running = plane, machine
        self._say(f"{NODE} runs pods after {time.monotonic() - began:.1f} s")

    def close(self) -> None:
        """Remove everything: pods, programs, mounts, interfaces, control groups and files."""
        self._running = None
        self._undo.close()

    def _parts(self) -> tuple[ControlPlane, Machine]:
        if self._running is None:
            raise ClusterError("the cluster is not started: enter its context, or call start()")
        return self._running

    def _make_machine(self, undo: ExitStack) -> tuple[Network, Machine]:
        # One start at a time: between looking for a free network and using it, another run would find the same one.
        with locked(STATE / "lock", say=self._say, deadline_seconds=60):
            leftovers.sweep(say=self._say)
            wire = network.free_network(network.routed_destinations())
            # A name of its own: the last owner of these addresses may still be removing its files.
            directory = Path(tempfile.mkdtemp(prefix=f"node-{wire.number}-", dir=STATE))
            record = Record.of_this_process(interface=wire.interface, cgroup=f"rewardpool-{directory.name}")
            record.write(directory)
            undo.callback(leftovers.remove, directory, record)
            machine = Machine(directory, pause=images.pause_program())
            undo.callback(machine.close)
            network.connect(wire, namespace_pid=machine.pid)
        for command in network.node_commands(wire):
            machine.run(*command)
        return wire, machine


def _start_programs(
    machine: Machine, wire: Network, plane: ControlPlane, programs: Mapping[str, Path], sandbox: Path
) -> None:
    """Start containerd, kubelet, kube-proxy and CoreDNS, and wait for each."""
    settings = _write_settings(machine, wire, plane)

    containerd = machine.start("containerd", "containerd", "--config", settings / "containerd.toml")
    _wait([containerd], "containerd answers", lambda: _succeeds(machine, *_CTR, "version"))
    _import(machine, sandbox)

    kubelet_kubeconfig = plane.kubeconfig_for("kubelet", plane.node_tokens[NODE])
    kubelet = machine.start(
        "kubelet",
        programs["kubelet"],
        f"--config={settings / 'kubelet.yaml'}",
        f"--kubeconfig={kubelet_kubeconfig}",
        f"--hostname-override={NODE}",
        f"--node-ip={wire.node}",
        f"--root-dir={INSIDE / 'kubelet'}",
    )
    proxy = machine.start("kube-proxy", programs["kube-proxy"], f"--config={settings / 'kube-proxy.yaml'}")
    plane.kubectl("apply", "--server-side", "-f", "-", input=node_files.dns_role())
    dns = machine.start("coredns", programs["coredns"], "-conf", settings / "Corefile")

    _wait([containerd, kubelet], f"{NODE} is ready", lambda: _node_ready(plane))
    _wait([proxy], "kube-proxy has written its rules", lambda: _healthy(wire, node_files.PROXY_HEALTH_PORT, "healthz"))
    _wait([dns], "CoreDNS knows the Services", lambda: _healthy(wire, node_files.DNS_READY_PORT, "ready"))


def _write_settings(machine: Machine, wire: Network, plane: ControlPlane) -> Path:
    settings = machine.directory / "settings"
    cni_settings = settings / "cni"
    cni_settings.mkdir(parents=True)
    certificate, key = plane.authority.issue("kubelet", common_name=f"system:node:{NODE}", hosts=[str(wire.node)])
    cgroup = f"rewardpool-{machine.directory.name}"
    files = {
        "cni/pods.conflist": node_files.cni(wire),
        "containerd.toml": node_files.containerd(
            root=INSIDE / "containerd",
            cni_plugins=packages.cni_folder(),
            cni_settings=cni_settings,
            sandbox_image=images.PAUSE_TAG,
        ),
        "kubelet.yaml": node_files.kubelet(
            wire,
            cgroup=cgroup,
            authority=plane.authority.certificate,
            certificate=certificate,
            key=key,
            logs=INSIDE / "pod-logs",
        ),
        "kube-proxy.yaml": node_files.kube_proxy(wire, kubeconfig=plane.component_kubeconfig("kube-proxy"), node=NODE),
        "Corefile": node_files.corefile(wire, kubeconfig=plane.component_kubeconfig("coredns")),
    }
    for name, text in files.items():
        (settings / name).write_text(text)
    return settings


def _import(machine: Machine, archive: Path) -> None:
    machine.feed(archive, *_CTR, "--namespace=k8s.io", "images", "import", "-", deadline_seconds=_IMPORT_SECONDS)


def _wait(daemons: Sequence[Daemon], what: str, check: Callable[[], bool]) -> None:
    wait_until(check, what=what, deadline_seconds=START_SECONDS, daemons=daemons)


def _succeeds(machine: Machine, *command: str) -> bool:
    try:
        machine.run(*command)
    except ClusterError:  # not yet; the caller's deadline shows the program's log
        return False
    return True


def _node_ready(plane: ControlPlane) -> bool:
    ready = "jsonpath={.items[*].status.conditions[?(@.type=='Ready')].status}"
    return plane.kubectl("get", "nodes", "-o", ready) == "True"


def _healthy(wire: Network, port: int, path: str) -> bool:
    # No proxy of the environment may stand between the host and its own node.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"http://{wire.node}:{port}/{path}", timeout=5) as response:
            return bool(response.status == 200)
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False
