"""Two operators as processes, on a real API server: one acts, and the other takes over."""

import json
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from signal import SIGKILL, SIGTERM

import pytest
from support.operator_cluster import PATHS, seconds_until
from support.operator_process import operator_process, restricted_kubeconfig
from support.ports import free_port
from support.processes import RealProcess

from cluster.control_plane import ControlPlane
from rewardpool_api.crd import crd_yaml

pytestmark = [pytest.mark.real, pytest.mark.long]  # the end-to-end run kills the operator that leads

NAMESPACE = "leaders"
TAKEOVER_SECONDS = 15.0


class Operators:
    """Two operators that exclude each other."""

    def __init__(self, plane: ControlPlane, folder: Path, stack: ExitStack) -> None:
        self.plane = plane
        self._kubeconfig = restricted_kubeconfig(plane, NAMESPACE, url=plane.url)
        self._folder, self._stack = folder, stack
        self.processes: dict[int, RealProcess] = {}

    def start(self) -> int:
        """Start one more; its health port is its name."""
        port = free_port()
        process = operator_process(
            self._kubeconfig,
            namespace=NAMESPACE,
            health_port=port,
            log=self._folder / f"{port}.log",
            lease=f"{NAMESPACE}/rewardpool",
        )
        self.processes[port] = self._stack.enter_context(process)
        process.until(lambda: self.acting(port) is not None, seconds=30, what="the operator answers")
        return port

    def acting(self, port: int) -> str | None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=2) as answer:
                return str(json.load(answer)["acting"])
        except OSError:
            return None

    def holder(self) -> str:
        lease = self.plane.read(f"{PATHS['lease'].format(NAMESPACE)}/rewardpool") or {}
        return str(lease["spec"]["holderIdentity"])

    def until_acting(self, port: int, *, seconds: float) -> None:
        self.processes[port].until(lambda: self.acting(port) == "full", seconds=seconds, what="the other one acts")

    def seconds_until_acting(self, port: int) -> float:
        return seconds_until(lambda: self.acting(port) == "full", limit=TAKEOVER_SECONDS)


@pytest.fixture
def operators(control_plane: ControlPlane, tmp_path: Path) -> Iterator[Operators]:
    control_plane.kubectl("apply", "--server-side", "-f", "-", input=crd_yaml())
    control_plane.kubectl("create", "namespace", NAMESPACE)
    with ExitStack() as stack:
        stack.callback(control_plane.kubectl, "delete", "namespace", NAMESPACE, "--wait=false")
        yield Operators(control_plane, tmp_path, stack)


def test_of_two_operators_one_acts_and_the_other_takes_over(operators: Operators) -> None:
    first = operators.start()
    operators.until_acting(first, seconds=30)
    second = operators.start()
    assert (operators.acting(first), operators.acting(second)) == ("full", "none")

    before = operators.holder()
    operators.processes[first].signal(SIGKILL)
    assert operators.seconds_until_acting(second) < TAKEOVER_SECONDS
    assert operators.holder() != before

    third = operators.start()
    operators.processes[second].signal(SIGTERM)
    assert operators.seconds_until_acting(third) < TAKEOVER_SECONDS
    assert operators.processes[second].exit_code(seconds=15) == 0
