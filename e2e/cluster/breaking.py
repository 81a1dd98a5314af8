"""Means to break what a cluster of our own runs on, behind the back of Kubernetes.

Whatever lasts is a context manager that undoes it, however it is left. Processes are found by the id of their
container, as the API server has it, so that only those of this cluster are ever touched. Use it from the thread that
started the cluster: the kernel ends a program together with the thread that started it.
"""

import json
import os
import re
import signal
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster.control_plane import ControlPlane
from cluster.fault_proxy import FaultProxy
from cluster.namespaces import INSIDE, Machine
from cluster.processes import ClusterError, output_of

DISK_MIB = 512
"""Size of the disk of a node's kubelet, where the volumes of pods lie; it is memory, and only what is used counts."""
DISK = INSIDE / "kubelet"
_FILLER = DISK / "filler"
_CUT = (("INPUT", "-i"), ("OUTPUT", "-o"))


@dataclass(frozen=True, kw_only=True)
class Process:
    """A process of a container."""

    pid: int
    """On the host."""
    container: str
    """The container's id. A pod's sandbox is a container too."""


class Breaker:
    """Breaks the cluster of this control plane and these machines, by the names of the nodes."""

    def __init__(self, plane: ControlPlane, machines: Mapping[str, Machine]) -> None:
        self._plane = plane
        self._machines = machines
        self._proxy: FaultProxy | None = None

    def close(self) -> None:
        """Stop what was started for breaking."""
        if self._proxy is not None:
            self._proxy.close()
            self._proxy = None

    # Pods.

    def kill(self, container: str) -> None:
        """End all processes of a container by SIGKILL. Raises `ClusterError` where it has none, as the others do."""
        signal_all(container, signal.SIGKILL)

    @contextmanager
    def stopped(self, container: str) -> Iterator[None]:
        """All processes of a container hold still (SIGSTOP) for the duration of the context."""
        signal_all(container, signal.SIGSTOP)
        try:
            yield
        finally:
            # Whatever ended it meanwhile, such as its liveness probe, has undone this too.
            with suppress(ClusterError):
                signal_all(container, signal.SIGCONT)

    def kill_sandbox(self, container: str) -> None:
        """End the sandbox of a container's pod by SIGKILL: the kubelet makes another one, with another address."""
        os.kill(sandbox_of(container), signal.SIGKILL)

    @contextmanager
    def cut_off(self, container: str) -> Iterator[None]:
        """The packets of a container's pod are dropped, in and out, for the duration of the context."""
        sandbox = sandbox_of(container)
        _filter(sandbox, "--insert")
        try:
            yield
        finally:
            # Where the sandbox is gone, its rules are gone too.
            with suppress(ClusterError):
                _filter(sandbox, "--delete")

    @contextmanager
    def one_port_closed(self, container: str, port: int, *, but_for: Collection[str]) -> Iterator[None]:
        """What a container's pod sends to that TCP port of any other pod is dropped for the duration of the context.

        Args:
            container: Of the pod that sends.
            port: That it cannot reach.
            but_for: Addresses whose port it reaches all the same.
        """
        sandbox = sandbox_of(container)
        to_port = ["OUTPUT", "--protocol", "tcp", "--dport", str(port)]
        rules = [[*to_port, "--jump", "DROP"], *([*to_port, "--destination", it, "--jump", "ACCEPT"] for it in but_for)]
        # The last one that is inserted is the first one that is looked at.
        for rule in rules:
            _iptables(sandbox, "--insert", *rule)
        try:
            yield
        finally:
            # Where the sandbox is gone, its rules are gone too.
            with suppress(ClusterError):
                for rule in rules:
                    _iptables(sandbox, "--delete", *rule)

    # Nodes.

    def restart(self, node: str, program: str) -> None:
        """End kubelet or containerd of a node by SIGKILL and start it again; its pods run on."""
        self._machines[node].restart(program)

    @contextmanager
    def full_disk(self, node: str) -> Iterator[None]:
        """The disk of a node's kubelet is full for the duration of the context."""
        machine = self._machines[node]
        # It ends by itself, when there is no room left.
        machine.run("sh", "-c", f"head --bytes={DISK_MIB}M /dev/zero > {_FILLER} 2>/dev/null || true")
        try:
            yield
        finally:
            machine.run("rm", "--force", _FILLER)

    def seccomp_profile(self, name: str, profile: Mapping[str, Any]) -> None:
        """Give every kubelet a profile, which pods then have by `localhostProfile`."""
        folder = DISK / "seccomp"
        for machine in self._machines.values():
            machine.run("mkdir", "--parents", folder)
            machine.run("sh", "-c", 'printf %s "$1" > "$2"', "sh", json.dumps(profile), folder / name)

    # The control plane.

    def restart_etcd(self) -> None:
        """See `ControlPlane.restart_etcd`."""
        self._plane.restart_etcd()

    @contextmanager
    def etcd_full(self) -> Iterator[None]:
        """See `ControlPlane.etcd_full`."""
        with self._plane.etcd_full():
            yield

    def proxy(self) -> FaultProxy:
        """A way to the API server that can be broken; whoever shall go by it is given its address and port."""
        if self._proxy is None:
            plane = self._plane
            certificate, key = plane.authority.issue("fault-proxy", common_name="fault-proxy", hosts=[plane.address])
            self._proxy = FaultProxy(
                address=plane.address,
                certificate=certificate,
                key=key,
                upstream=plane.url,
                trust=plane.authority.certificate,
            )
        return self._proxy


def processes() -> list[Process]:
    """Those of all containers on this machine."""
    return [found for path in Path("/proc").glob("[0-9]*") if (found := _process(path)) is not None]


def signal_all(container: str, number: signal.Signals) -> None:
    """Send a signal to every process of a container. Raises `ClusterError` where it has none."""
    found = [process.pid for process in processes() if process.container == container]
    if not found:
        raise ClusterError(f"container {container} has no process")
    for pid in found:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def sandbox_of(container: str) -> int:
    """The process of its pod's sandbox, which is in the same network. Raises `ClusterError` where there is none."""
    running = processes()
    networks = {_network(process.pid) for process in running if process.container == container} - {None}
    for process in running:
        if process.container != container and _network(process.pid) in networks and _name(process.pid) == "pause":
            return process.pid
    raise ClusterError(f"the pod of container {container} has no sandbox")


def container_in(cgroups: str) -> str | None:
    """The id of the container that a process is in, by its /proc/PID/cgroup; None where it is in none."""
    found = re.search(r"/k8s\.io/([0-9a-f]{64})$", cgroups, re.MULTILINE)
    return found[1] if found else None


def _process(path: Path) -> Process | None:
    try:
        container = container_in((path / "cgroup").read_text())
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if container is None else Process(pid=int(path.name), container=container)


def _network(pid: int) -> str | None:
    """What tells a process's network from others."""
    try:
        return os.readlink(f"/proc/{pid}/ns/net")
    except (FileNotFoundError, ProcessLookupError):
        return None


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _filter(pid: int, action: str) -> None:
    for chain, direction in _CUT:
        _iptables(pid, action, chain, direction, "eth0", "--jump", "DROP")


def _iptables(pid: int, *rule: str) -> None:
    """Change the packet filter of the network that a process is in."""
    output_of("nsenter", f"--target={pid}", "--net", "--", "iptables", "--wait", *rule)
