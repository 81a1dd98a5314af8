"""Two watched namespaces on a real API server, of which one has no Role for the operator."""

import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.kube_builders import FUNCTION
from support.operator_cluster import PATHS
from support.operator_process import ACCOUNT, operator_process, restricted_kubeconfig
from support.permissions import RULES
from support.ports import free_port

from cluster.control_plane import ControlPlane
from rewardpool_api import names
from rewardpool_api.crd import crd_yaml

pytestmark = pytest.mark.real

SERVED, REFUSED = "served", "refused"
SECONDS = 40


def make_namespace(plane: ControlPlane, name: str) -> None:
    plane.kubectl("create", "namespace", name)
    metadata = {"name": "rm", "namespace": name}
    pool = {"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": metadata, "spec": FUNCTION}
    plane.kubectl("apply", "-f", "-", input=yaml.safe_dump(pool))


def grant(plane: ControlPlane, namespace: str, rules: tuple[dict[str, Any], ...]) -> None:
    """Give the operator's account, which is of the other namespace, these rights."""
    metadata = {"name": ACCOUNT, "namespace": namespace}
    rbac = "rbac.authorization.k8s.io"
    subject = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": SERVED}
    manifests: list[dict[str, Any]] = [
        {"apiVersion": f"{rbac}/v1", "kind": "Role", "metadata": metadata, "rules": list(rules)},
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": rbac, "kind": "Role", "name": ACCOUNT},
            "subjects": [subject],
        },
    ]
    plane.kubectl("apply", "-f", "-", input=yaml.safe_dump_all(manifests))


def degraded(plane: ControlPlane, namespace: str) -> dict[str, Any]:
    pool = plane.read(f"{PATHS['rewardpool'].format(namespace)}/rm") or {}
    conditions = pool.get("status", {}).get("conditions", [])
    return next((one for one in conditions if one["type"] == "Degraded"), {})


def test_a_namespace_without_a_role_keeps_no_other_from_being_served(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    plane, port = control_plane, free_port()
    plane.kubectl("apply", "--server-side", "-f", "-", input=crd_yaml())
    for name in (SERVED, REFUSED):
        make_namespace(plane, name)

    def health() -> dict[str, Any]:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=2) as answer:
            found: dict[str, Any] = json.load(answer)
        return found

    def says(namespace: str, reason: str) -> bool:
        return degraded(plane, namespace).get("reason") == reason

    operator = operator_process(
        restricted_kubeconfig(plane, SERVED, url=plane.url),
        namespace=SERVED,
        health_port=port,
        log=tmp_path / "operator.log",
        flags=[f"--namespace={REFUSED}"],
    )
    with operator:
        operator.until(lambda: says(SERVED, "AsExpected"), seconds=SECONDS, what="the pool with a Role is served")
        assert health()["ok"]
        operator.until(
            lambda: "is forbidden" in health()["namespaces_not_served"].get(REFUSED, ""),
            seconds=SECONDS,
            what="it is told",
        )
        assert degraded(plane, REFUSED) == {}
        without_pods = tuple(rule for rule in RULES if "pods" not in rule["resources"])
        grant(plane, REFUSED, without_pods)
        operator.until(
            lambda: says(REFUSED, "NamespaceNotServed") and degraded(plane, REFUSED)["message"].startswith("pods: "),
            seconds=SECONDS,
            what="the pool says what may not be seen",
        )
        grant(plane, REFUSED, RULES)
        operator.until(lambda: says(REFUSED, "AsExpected"), seconds=SECONDS, what="it is served without a restart")
        plane.kubectl("delete", "namespace", REFUSED, "--wait=true")
        make_namespace(plane, REFUSED)
        grant(plane, REFUSED, RULES)
        operator.until(lambda: says(REFUSED, "AsExpected"), seconds=SECONDS, what="the one made again is served")
