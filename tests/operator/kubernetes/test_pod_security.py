"""What a real API server says of rendered pods under the Pod Security standards, and of policies and budgets."""

import json
from typing import Any

import pytest
from support.kube_builders import FUNCTION, a_pool

from cluster.control_plane import ControlPlane
from cluster.processes import ClusterError
from rewardpool_operator.kubernetes import render
from rewardpool_operator.kubernetes.settings.operator_identity import OperatorIdentity

pytestmark = pytest.mark.real

IMAGE = "own:1"
HUB = {"model": {"source": "hf://org/model"}}
CLAIM = {"model": {"source": "pvc://models/rm"}}
FILE = {"model": {"source": "file:///models/rm"}}
NON_ROOT = {"worker": {"podTemplate": {"spec": {"securityContext": {"runAsNonRoot": True, "fsGroup": 1000}}}}}


@pytest.fixture(scope="module")
def namespaces(control_plane: ControlPlane) -> ControlPlane:
    """Two namespaces, each of which enforces one standard and is called after it."""
    for standard in ("restricted", "baseline"):
        labels = {"pod-security.kubernetes.io/enforce": standard}
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": standard, "labels": labels}}
        control_plane.kubectl("apply", "-f", "-", input=json.dumps(namespace))
    for standard in ("restricted", "baseline"):
        # Admission looks for it before it looks at anything else; a controller makes it.
        control_plane.kubectl("wait", "--for=create", "serviceaccount/default", "-n", standard, "--timeout=30s")
    return control_plane


def refusal(plane: ControlPlane, standard: str, template: dict[str, Any]) -> str | None:
    """Why a namespace that enforces the standard does not take such a pod; None when it does."""
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": standard},
        "spec": template["spec"],
    }
    try:
        plane.kubectl("create", "--dry-run=server", "-f", "-", input=json.dumps(pod))
    except ClusterError as error:
        return str(error)
    return None


def worker(spec: dict[str, Any]) -> dict[str, Any]:
    return render.worker_template(a_pool(**spec), image=IMAGE)


def test_routers_may_run_where_restricted_is_enforced(namespaces: ControlPlane) -> None:
    deployment = render.router_deployment(a_pool(), fingerprint="f", image=IMAGE)
    assert refusal(namespaces, "restricted", deployment["spec"]["template"]) is None


def test_gateways_may_run_where_restricted_is_enforced(namespaces: ControlPlane) -> None:
    pool = a_pool(model={"source": "hf://org/model", "type": "Teacher"}, gateway={})
    assert pool.spec.gateway is not None
    deployment = render.gateway_deployment(pool, pool.spec.gateway, key="k", image=IMAGE)
    assert refusal(namespaces, "restricted", deployment["spec"]["template"]) is None


def test_function_workers_may_run_where_restricted_is_enforced(namespaces: ControlPlane) -> None:
    assert refusal(namespaces, "restricted", worker(FUNCTION)) is None


@pytest.mark.parametrize("engine", ["vllm", "sglang", "transformers"])
@pytest.mark.parametrize("source", [HUB, CLAIM], ids=["hub", "claim"])
def test_stock_engines_run_as_root_and_need_baseline(
    namespaces: ControlPlane, engine: str, source: dict[str, Any]
) -> None:
    template = worker({**source, "engine": {"name": engine}})
    assert refusal(namespaces, "baseline", template) is None
    assert "runAsNonRoot" in (refusal(namespaces, "restricted", template) or "")


def test_an_engine_image_that_does_not_run_as_root_may_run_where_restricted_is_enforced(
    namespaces: ControlPlane,
) -> None:
    assert refusal(namespaces, "restricted", worker({**HUB, **NON_ROOT})) is None


def test_a_file_of_the_node_is_refused_by_both(namespaces: ControlPlane) -> None:
    assert "hostPath" in (refusal(namespaces, "baseline", worker(FILE)) or "")


def test_the_api_server_takes_policies_and_budgets_as_rendered(namespaces: ControlPlane) -> None:
    identity = OperatorIdentity(namespace="system", labels={"app": "operator"}, monitoring=("monitoring",))
    pool = a_pool(network={"namespaces": ["train"]})
    for manifest in (*render.network_policies(pool, identity), *render.disruption_budgets(pool)):
        metadata = {"name": manifest["metadata"]["name"], "namespace": "baseline"}
        made = namespaces.kubectl(
            "create", "--dry-run=server", "--validate=strict", "-o", "json", "-f", "-",
            input=json.dumps({**manifest, "metadata": metadata}),
        )  # fmt: skip
        assert json.loads(made)["spec"] == manifest["spec"]
