"""Nodes without machines and pods without processes: kwok plays all kubelets of a control plane.

Scheduler, controllers and API server are real and have their real work with thousands of pods; a pod is Ready a moment
after it was given a node, with an address that nothing listens on. What is done to pods is in `kwok.yaml`.

    with ControlPlane(folder, scheduler=True, flags=PATIENT) as plane, Kwok(plane, nodes=9, gpus=8, pods="10.9.0.0/16"):
        plane.kubectl("create", "deployment", "web", "--image=web", "--replicas=1000")
"""

import json
from collections.abc import Mapping, Sequence
from ipaddress import IPv4Network
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from cluster import binaries
from cluster.control_plane import ControlPlane
from cluster.processes import Daemon, kill, wait_until
from cluster.progress import Say, timed_lines

PATIENT: Final[Mapping[str, Sequence[str]]] = {"kube-controller-manager": ("--node-monitor-grace-period=120s",)}
"""Flags for `ControlPlane`. One kwok renews the leases of all nodes, and is late when the machine is busy; a node that
is given up for that would take its pods out of service."""

LEASE_SECONDS: Final = 40
"""How long a node's lease is good for; the kubelet's own default."""
READY_SECONDS: Final = 60.0
_SETTINGS: Final = Path(__file__).with_name("kwok.yaml")


class Kwok:
    """A context manager: `nodes` nodes that are Ready, each with `gpus` GPUs and room for any number of pods.

    Args:
        plane: a control plane that runs, with its scheduler.
        nodes: how many.
        gpus: `nvidia.com/gpu` of each node.
        pods: network that pods get their addresses from; they are handed out from its first one on.
        say: told what happens; lines on standard error by default.
    """

    def __init__(
        self, plane: ControlPlane, *, nodes: int, gpus: int, pods: str | IPv4Network, say: Say | None = None
    ) -> None:
        self._plane = plane
        self._nodes = [node(f"kwok-{number}", gpus=gpus) for number in range(nodes)]
        self._pods = IPv4Network(pods)
        self._say = say or timed_lines()
        self._daemon: Daemon | None = None

    def __enter__(self) -> Self:
        program = binaries.ensure("kwok", say=self._say)["kwok"]
        self._plane.kubectl(
            "create", "-f", "-", input=json.dumps({"apiVersion": "v1", "kind": "List", "items": self._nodes})
        )
        self._daemon = Daemon("kwok", [program, *self._flags()], log=self._plane.directory / "kwok.log")
        try:
            self._wait()
        except BaseException:
            self._stop()
            raise
        self._say(f"{len(self._nodes)} nodes are ready, played by kwok")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def _flags(self) -> list[str]:
        return [
            f"--config={_SETTINGS}",
            f"--kubeconfig={self._plane.kubeconfig}",
            f"--cidr={self._pods}",
            f"--node-ip={self._plane.address}",
            f"--node-lease-duration-seconds={LEASE_SECONDS}",
            "--manage-all-nodes",
            "--v=warn",
        ]

    def _wait(self) -> None:
        def ready() -> bool:
            path = "jsonpath={.items[*].status.conditions[?(@.type=='Ready')].status}"
            return self._plane.kubectl("get", "nodes", "-o", path).split().count("True") == len(self._nodes)

        daemons = [self._daemon] if self._daemon else []
        wait_until(ready, what="kwok's nodes are ready", deadline_seconds=READY_SECONDS, daemons=daemons)

    def _stop(self) -> None:
        daemon, self._daemon = self._daemon, None
        kill([daemon] if daemon else [])


def node(name: str, *, gpus: int) -> dict[str, Any]:
    """A node as its kubelet would register it; kwok adds the conditions."""
    room = {"cpu": "1k", "memory": "1Pi", "pods": "1M", "nvidia.com/gpu": str(gpus)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "type": "kwok"}},
        "status": {"allocatable": room, "capacity": room},
    }
