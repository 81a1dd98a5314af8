"""A cluster whose nodes really run pods, on a machine without Docker.

The control plane runs on the host; containerd, kubelet, kube-proxy and CoreDNS of each node run in namespaces of their
own (`cluster.namespaces`), joined to it by a virtual wire (`cluster.network`). From the host, pods answer at their
addresses and Services at theirs; `kubectl logs`, `exec` and `port-forward` work; pods find Services by name and the API
server by its Service. Pods cannot leave the machine: what they need is in their image or mounted with hostPath, and
hostPath sees the host's files. Needs Linux, root and Go; what is missing of Debian's packages is installed.
"""

import os
import re
import tempfile
import time
import urllib.error
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from cluster import binaries, direct, images, leftovers, network, node_files, packages, registry
from cluster.breaking import DISK, DISK_MIB, Breaker
from cluster.contract import Cluster, NotPossibleError
from cluster.control_plane import ControlPlane
from cluster.cpu_share import share_processors
from cluster.folders import STATE
from cluster.gpus import fake_gpus
from cluster.leftovers import Record
from cluster.locks import locked
from cluster.namespaces import INSIDE, Machine
from cluster.network import Network
from cluster.processes import ClusterError, Daemon, wait_until
from cluster.progress import Say, timed_lines
from cluster.registry import Registry

START_SECONDS = 90.0
"""Deadline for each part of the node; idle on two cores all of them take about ten seconds."""

RUNTIMES = "runtimes"
"""Folder of a node's settings with programs that containerd finds beside runc."""
REGISTRIES = "registries"
"""The same with containerd's settings of registries."""

_SYS_RESOURCE = 24
_IMPORT_SECONDS = 300.0
_LOST_NODE_SECONDS = 50
"""Kubelets say every ten seconds that they live, and on a busy machine sometimes late; this is Kubernetes' default."""
_CTR = ("ctr", f"--address={node_files.SOCKET}", "--namespace=k8s.io")


@dataclass(frozen=True)
class Node:
    """One node: its name, its addresses, and the namespaces that it lives in."""

    name: str
    wire: Network
    machine: Machine


class NodeCluster(Cluster):
    """A control plane, and as many nodes as are asked for, called node-1, node-2 and so on.

    Start it from the main thread: the kernel ends a cluster together with the thread that started it.
    """

    def __init__(self, *, nodes: int = 1, say: Say | None = None) -> None:
        self._names = [f"node-{number}" for number in range(1, nodes + 1)]
        self.description = f"Kubernetes built from source, {' and '.join(self._names)} in namespaces of this machine"
        self._say = say or timed_lines()
        self._undo = ExitStack()
        self._running: tuple[ControlPlane, Sequence[Node]] | None = None
        self._breaker: Breaker | None = None

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self._parts()[0].kubeconfig

    def kubectl(self, *args: str, input: str | None = None, deadline_seconds: float = 60.0) -> str:  # noqa: A002
        """See `Cluster.kubectl`."""
        return self._parts()[0].kubectl(*args, input=input, deadline_seconds=deadline_seconds)

    def load_image(self, archive: Path) -> None:
        """Give the nodes the image of a docker-archive, such as `cluster.images.build` writes."""
        began = time.monotonic()
        nodes = self._parts()[1]
        with ThreadPoolExecutor(len(nodes)) as threads:
            list(threads.map(lambda node: _import(node.machine, archive), nodes))  # raises what one of them raises
        self._say(f"the nodes have the image of {archive.name} ({time.monotonic() - began:.1f} s)")

    @contextmanager
    def registry(self) -> Iterator[Registry]:
        """See `Cluster.registry`."""
        nodes = self._parts()[1]
        first = nodes[0]
        with registry.serve(first.machine.directory / "registry", host=str(first.wire.host), say=self._say) as served:
            for node in nodes:
                hosts = node.machine.directory / "settings" / REGISTRIES / served.address
                hosts.mkdir(parents=True)
                (hosts / "hosts.toml").write_text(node_files.plain_http(served.address))
            yield served

    def fake_gpus(self, count: int) -> None:
        """Let the first node say that it has `count` GPUs."""
        fake_gpus(self.kubectl, self._names[0], count)

    def gvisor(self) -> None:
        """See `Cluster.gvisor`."""
        plane, nodes = self._parts()
        if not _has_capability(_SYS_RESOURCE):
            raise NotPossibleError("gVisor's shim lowers its own OOM score, which needs CAP_SYS_RESOURCE")
        programs = binaries.ensure(*binaries.GVISOR, say=self._say)
        for node in nodes:
            runtimes = node.machine.directory / "settings" / RUNTIMES
            (runtimes / node_files.RUNSC_CONFIG).write_text(node_files.runsc())
            (runtimes / "runsc").symlink_to(programs["runsc"])
            (runtimes / "containerd-shim-runsc-v1").symlink_to(programs["shim"])
        plane.kubectl("apply", "-f", "-", input=node_files.runtime_class())

    def kill_container(self, node: str, container_id: str) -> None:
        """See `Cluster.kill_container`."""
        (machine,) = (other.machine for other in self._parts()[1] if other.name == node)
        machine.run(*_CTR, "tasks", "kill", "--signal=SIGKILL", container_id)

    def breaker(self) -> Breaker:
        """See `Cluster.breaker`."""
        if self._breaker is None:
            plane, nodes = self._parts()
            self._breaker = Breaker(plane, {node.name: node.machine for node in nodes})
            self._undo.callback(self._breaker.close)
        return self._breaker

    @contextmanager
    def api_server_away(self) -> Iterator[None]:
        """See `Cluster.api_server_away`."""
        plane, _ = self._parts()
        with plane.api_server_away():
            yield

    def start(self) -> None:
        """Build what is missing, sweep what dead runs left, and return when the nodes are ready."""
        if os.geteuid() != 0:
            raise ClusterError("a node needs root for its namespaces: run as root, or set KUBECONFIG to a cluster")
        packages.require(packages.NODE_PACKAGES, say=self._say)
        programs = binaries.ensure(*binaries.CONTROL_PLANE, *binaries.NODE, say=self._say)
        sandbox = images.pause_archive(say=self._say)
        began = time.monotonic()
        with ExitStack() as undo:
            nodes: list[Node] = []
            for name in self._names:
                nodes.append(self._make_node(name, undo, first=nodes[0] if nodes else None))
            for number, (one, other) in enumerate(combinations(nodes, 2)):
                _make_neighbours(f"link{number}", one, other)
            first = nodes[0]
            plane = ControlPlane(
                first.machine.directory / "control-plane",
                scheduler=True,
                address=str(first.wire.host),
                service_network=str(first.wire.services),
                nodes=self._names,
                flags={"kube-controller-manager": [f"--node-monitor-grace-period={_LOST_NODE_SECONDS}s"]},
                say=self._say,
            )
            undo.callback(plane.stop)
            plane.start()
            for node in nodes:
                _start_programs(node, plane, programs, sandbox)
            self._undo = undo.pop_all()
        self._running = plane, nodes
        self._say(f"{', '.join(self._names)}: pods run after {time.monotonic() - began:.1f} s")

    def close(self) -> None:
        """Remove everything: pods, programs, mounts, interfaces, control groups and files."""
        self._running = None
        self._undo.close()

    def _parts(self) -> tuple[ControlPlane, Sequence[Node]]:
        if self._running is None:
            raise ClusterError("the cluster is not started: enter its context, or call start()")
        return self._running

    def _make_node(self, name: str, undo: ExitStack, *, first: Node | None) -> Node:
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
            network.connect(wire, namespace_pid=machine.pid, services=first is None)
        for command in network.node_commands(wire, first=first.wire if first else wire):
            machine.run(*command)
        return Node(name, wire, machine)


def _make_neighbours(link: str, one: Node, other: Node) -> None:
    """Let the pods of two nodes reach each other."""
    network.join(link, pids=(one.machine.pid, other.machine.pid))
    for near, far in ((one, other), (other, one)):
        for command in network.neighbour_commands(link, near=near.wire, far=far.wire):
            near.machine.run(*command)


def _start_programs(node: Node, plane: ControlPlane, programs: Mapping[str, Path], sandbox: Path) -> None:
    """Start containerd, kubelet, kube-proxy and CoreDNS, and wait for each."""
    machine, wire = node.machine, node.wire
    settings = _write_settings(node, plane)

    share_processors()
    path = f"PATH={settings / RUNTIMES}{os.pathsep}{os.environ['PATH']}"
    containerd = machine.start("containerd", "env", path, "containerd", "--config", settings / "containerd.toml")
    _wait([containerd], "containerd answers", lambda: _succeeds(machine, *_CTR, "version"))
    _import(machine, sandbox)

    # A disk of its own, so that it can be full and nobody else's is.
    machine.run("mkdir", DISK)
    machine.run("mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m,mode=750", "tmpfs", DISK)
    kubelet_kubeconfig = plane.kubeconfig_for(f"kubelet-{node.name}", plane.node_tokens[node.name])
    kubelet = machine.start(
        "kubelet",
        programs["kubelet"],
        f"--config={settings / 'kubelet.yaml'}",
        f"--kubeconfig={kubelet_kubeconfig}",
        f"--hostname-override={node.name}",
        f"--node-ip={wire.node}",
        f"--root-dir={DISK}",
    )
    proxy = machine.start("kube-proxy", programs["kube-proxy"], f"--config={settings / 'kube-proxy.yaml'}")
    plane.kubectl("apply", "--server-side", "-f", "-", input=node_files.dns_role())
    dns = machine.start("coredns", programs["coredns"], "-conf", settings / "Corefile")

    _wait([containerd, kubelet], f"{node.name} is ready", lambda: _node_ready(plane, node.name))
    _wait([proxy], "kube-proxy has written its rules", lambda: _healthy(wire, node_files.PROXY_HEALTH_PORT, "healthz"))
    _wait([dns], "CoreDNS knows the Services", lambda: _healthy(wire, node_files.DNS_READY_PORT, "ready"))


def _write_settings(node: Node, plane: ControlPlane) -> Path:
    machine, wire = node.machine, node.wire
    settings = machine.directory / "settings"
    cni_settings = settings / "cni"
    cni_settings.mkdir(parents=True)
    (settings / RUNTIMES).mkdir()
    certificate, key = plane.authority.issue(
        f"kubelet-{node.name}", common_name=f"system:node:{node.name}", hosts=[str(wire.node)]
    )
    cgroup = f"rewardpool-{machine.directory.name}"
    files = {
        "cni/pods.conflist": node_files.cni(wire),
        "containerd.toml": node_files.containerd(
            root=INSIDE / "containerd",
            cni_plugins=packages.cni_folder(),
            cni_settings=cni_settings,
            runtimes=settings / RUNTIMES,
            registries=settings / REGISTRIES,
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
        "kube-proxy.yaml": node_files.kube_proxy(
            wire, kubeconfig=plane.component_kubeconfig("kube-proxy"), node=node.name
        ),
        "Corefile": node_files.corefile(wire, kubeconfig=plane.component_kubeconfig("coredns")),
    }
    for name, text in files.items():
        (settings / name).write_text(text)
    return settings


def _has_capability(number: int) -> bool:
    [effective] = re.findall(r"^CapEff:\s*([0-9a-f]+)$", Path("/proc/self/status").read_text(), re.MULTILINE)
    return bool(int(effective, 16) >> number & 1)


def _import(machine: Machine, archive: Path) -> None:
    machine.feed(archive, *_CTR, "images", "import", "-", deadline_seconds=_IMPORT_SECONDS)


def _wait(daemons: Sequence[Daemon], what: str, check: Callable[[], bool]) -> None:
    wait_until(check, what=what, deadline_seconds=START_SECONDS, daemons=daemons)


def _succeeds(machine: Machine, *command: str) -> bool:
    try:
        machine.run(*command)
    except ClusterError:  # not yet; the caller's deadline shows the program's log
        return False
    return True


def _node_ready(plane: ControlPlane, name: str) -> bool:
    ready = "jsonpath={.status.conditions[?(@.type=='Ready')].status}"
    return plane.kubectl("get", "node", name, "--ignore-not-found", "-o", ready) == "True"


def _healthy(wire: Network, port: int, path: str) -> bool:
    try:
        with direct.opener().open(f"http://{wire.node}:{port}/{path}", timeout=5) as response:
            return bool(response.status == 200)
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False
