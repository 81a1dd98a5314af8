"""A budget over two namespaces, on a real API server with its controllers: no team takes more than it leaves."""

import json
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from support.api_server import new_control_plane
from support.env_vars import env_vars
from support.fleet import server_python
from support.loopback_kubelet import LoopbackKubelet
from support.operator_cluster import FUNCTIONS, PATHS
from support.operator_process import operator_process
from support.ports import free_port
from support.processes import RealProcess

from cluster.control_plane import ControlPlane
from rewardpool_api import names

pytestmark = pytest.mark.real

POOL = "rm"
BUDGETS = [{"name": "gpus", "maxReplicas": 3, "namespaces": {"team-a": 0, "team-b": 5}}]
SECONDS = 90.0


class Teams:
    """A namespace for each, in which it does what it wants."""

    def __init__(self, plane: ControlPlane, operator: RealProcess) -> None:
        self._plane = plane
        self._operator = operator

    def apply(self, team: str, **spec: Any) -> None:
        made = {
            "model": {"source": "python://reward_functions:compute_score"},
            "engine": {"env": env_vars({"PYTHONPATH": str(FUNCTIONS)})},
            "worker": {"gpus": 0, "drainSeconds": 1},
        }
        metadata = {"name": POOL, "namespace": team}
        pool = {"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": metadata, "spec": {**made, **spec}}
        self._plane.kubectl("apply", "-f", "-", input=yaml.safe_dump(pool))

    def status(self, team: str) -> dict[str, Any]:
        pool = self._plane.read(f"{PATHS['rewardpool'].format(team)}/{POOL}") or {}
        status: dict[str, Any] = pool.get("status") or {}
        return status

    def until(self, team: str, *, replicas: int, reason: str = "") -> dict[str, Any]:
        """The decision of a team's pool, when it has that many replicas, and a reason with that end."""

        def is_so() -> bool:
            status = self.status(team)
            scaling = status.get("scaling", {})
            is_sized = scaling.get("desired") == replicas == status["readyReplicas"]
            return is_sized and scaling.get("reason", "").endswith(reason)

        self._operator.until(is_so, seconds=SECONDS, what=f"{team} has {replicas} replicas: {reason}")
        decided: dict[str, Any] = self.status(team)["scaling"]
        return decided


@pytest.fixture(scope="module")
def teams(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Teams]:
    folder = tmp_path_factory.mktemp("teams")
    pythons = {"worker": sys.executable, "download": sys.executable, "router": server_python()}
    with new_control_plane(folder / "control-plane") as plane, LoopbackKubelet(plane, folder / "pods", pythons=pythons):
        for namespace in BUDGETS[0]["namespaces"]:  # type: ignore[attr-defined]
            plane.kubectl("create", "namespace", namespace)
        operator = operator_process(
            plane.kubeconfig,
            health_port=free_port(),
            log=folder / "operator.log",
            env={names.ENV_BUDGETS: json.dumps(BUDGETS)},
        )
        with operator:
            yield Teams(plane, operator)


def test_a_team_has_no_more_than_the_budget_whatever_its_pool_says(teams: Teams) -> None:
    teams.apply("team-a", replicas=4)
    assert teams.until("team-a", replicas=3, reason="the budget has 3 replicas")["limit"] == "Budget"


def test_the_namespace_of_higher_priority_takes_from_the_other_by_no_word_of_its_own(teams: Teams) -> None:
    own = {"name": "own", "maxReplicas": 100, "priority": -1000}
    teams.apply("team-b", replicas=2, autoscaling={"maxReplicas": 9, "policy": {"type": "External"}, "budget": own})
    assert teams.until("team-b", replicas=2).get("limit") is None
    why = "the budget has 3 replicas: a pool of team-b has 2"
    assert teams.until("team-a", replicas=1, reason=why)["limit"] == "Budget"
