"""What a real API server makes of the chart: validation, RBAC, pod security."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.control_plane import ControlPlane
from cluster.kubectl import wait_for_crd
from cluster.processes import ClusterError
from rewardpool_api.demand import Demand, lease_manifest

from .conftest import CHART, KUBERNETES, NAMESPACE, Helm, HelmError, Render

pytestmark = pytest.mark.real

TRAINERS = [
    {
        "namespace": "rl",
        "pools": ["skywork"],
        "serviceAccounts": [{"namespace": "rl", "name": "trainer"}],
        "jobs": ["grpo"],
    },
    {"namespace": "rl", "pools": ["skywork"], "serviceAccounts": [{"namespace": "rl", "name": "any-job"}]},
]
IMAGE = "--set=image.repository=hub/rp"
TRAINER = "system:serviceaccount:rl:trainer"
ANY_JOB = "system:serviceaccount:rl:any-job"
OPERATOR = f"system:serviceaccount:{NAMESPACE}:rewardpool"


@pytest.fixture(scope="module")
def cluster_helm(plane: ControlPlane, helm_program: Path, tmp_path_factory: pytest.TempPathFactory) -> Helm:
    return Helm(helm_program, tmp_path_factory.mktemp("cluster-helm"), plane.kubeconfig)


@pytest.fixture(scope="module")
def installed(plane: ControlPlane, cluster_helm: Helm) -> Iterator[ControlPlane]:
    """A cluster with the chart installed and one group of trainers."""
    plane.kubectl("create", "namespace", "rl")
    settings = [f"--set-json=trainers={json.dumps(TRAINERS)}", f"--namespace={NAMESPACE}", "--create-namespace"]
    cluster_helm("install", "rewardpool", str(CHART), IMAGE, *settings)
    wait_for_crd(plane.kubectl, "rewardpools.rewardpool.dev")
    yield plane
    cluster_helm("uninstall", "rewardpool", f"--namespace={NAMESPACE}")
    assert "rewardpools.rewardpool.dev" in plane.kubectl("get", "crd", "-o", "name"), "uninstall took the CRD along"


def test_an_install_without_values_is_refused_with_what_to_do(installed: ControlPlane, cluster_helm: Helm) -> None:
    with pytest.raises(HelmError, match=r"image\.repository is not set: build the image .* --set image\.repository="):
        cluster_helm("install", "bare", str(CHART), "--namespace=rl")
    assert "bare" not in installed.kubectl("get", "deployments", "--namespace=rl", "-o", "name")


def test_the_operator_applied_as_a_file_is_as_it_was_written_to_either_kind_of_apply(
    installed: ControlPlane, cluster_helm: Helm
) -> None:
    options = ("--namespace=rl", f"--kube-version={KUBERNETES}", "--show-only=templates/deployment.yaml")
    text = cluster_helm("template", "plain", str(CHART), IMAGE, *options)
    installed.kubectl("apply", "-f", "-", "--namespace=rl", input=text)
    assert installed.kubectl("diff", "-f", "-", "--namespace=rl", input=text) == ""
    # A value that the API server completes would be a conflict: it is another than the one that was applied.
    installed.kubectl("apply", "--server-side", "--dry-run=server", "-f", "-", "--namespace=rl", input=text)
    installed.kubectl("delete", "-f", "-", "--namespace=rl", input=text)


def may(plane: ControlPlane, who: str, verb: str, what: str, *options: str) -> bool:
    try:
        plane.kubectl("auth", "can-i", verb, what, f"--as={who}", *options)
    except ClusterError:  # can-i says "no" by its exit status
        return False
    return True


@pytest.mark.parametrize(
    ("verb", "what", "allowed"),
    [
        ("get", "rewardpools/skywork", True),
        ("get", "secrets/skywork-key", True),
        ("get", "secrets/skywork-router-admin", False),
        ("get", "secrets/other-key", False),
        ("list", "secrets", False),
        ("patch", "rewardpools/skywork", False),
        ("patch", "leases/demand-skywork.grpo", True),
        ("patch", "leases/demand-skywork.other", False),
        ("delete", "leases/demand-skywork.grpo", False),
        ("list", "leases", False),
    ],
)
def test_a_trainer_may_read_its_pool_and_key_announce_its_jobs_and_nothing_else(
    installed: ControlPlane, verb: str, what: str, allowed: bool
) -> None:
    assert may(installed, TRAINER, verb, what, "--namespace=rl") is allowed


def apply_lease(plane: ControlPlane, who: str, *, job: str, namespace: str = "rl") -> str:
    """Announce as a trainer does, by server-side apply; what was said."""
    demand = Demand(job=job, phase="Rollout")
    lease = lease_manifest(
        demand, pool="skywork", namespace=namespace, pool_uid=None, seconds=15, now="2026-01-01T00:00:00.000000Z"
    )
    try:
        return plane.kubectl("apply", "--server-side", f"--as={who}", "-f", "-", input=json.dumps(lease))
    except ClusterError as error:
        return str(error)


@pytest.mark.parametrize(
    ("who", "job", "namespace", "said"),
    [
        (TRAINER, "grpo", "rl", "serverside-applied"),
        (TRAINER, "other", "rl", "Forbidden"),
        (TRAINER, "grpo", "default", "Forbidden"),
        (ANY_JOB, "other", "rl", "serverside-applied"),
        (ANY_JOB, "other", "default", "Forbidden"),
    ],
)
def test_a_trainer_announces_the_jobs_it_may(
    installed: ControlPlane, who: str, job: str, namespace: str, said: str
) -> None:
    # To make a Lease takes the right to create it, also by name; the next word takes the right to patch it.
    for _ in range(2):
        assert said in apply_lease(installed, who, job=job, namespace=namespace)


@pytest.mark.parametrize(
    ("verb", "what", "allowed"),
    [
        ("patch", "rewardpools/x --subresource=status", True),
        ("create", "deployments.apps", True),
        ("create", "events.events.k8s.io", True),
        ("get", "secrets/skywork-router-admin", True),
        ("list", "secrets", False),
        ("delete", "leases", True),
        ("patch", "leases", False),
        ("create", "pods", False),
        ("create", "rolebindings.rbac.authorization.k8s.io", False),
        ("get", "nodes", False),
    ],
)
def test_the_operator_may_do_its_work_and_no_more(installed: ControlPlane, verb: str, what: str, allowed: bool) -> None:
    assert may(installed, OPERATOR, verb, *what.split(), "--namespace=rl") is allowed


def test_the_operators_pod_passes_the_restricted_pod_security_standard(installed: ControlPlane, render: Render) -> None:
    (deployment,) = [item for item in render() if item["kind"] == "Deployment"]
    namespace = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "strict", "labels": {"pod-security.kubernetes.io/enforce": "restricted"}},
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "operator", "namespace": "strict"},
        "spec": deployment["spec"]["template"]["spec"],
    }
    installed.kubectl("apply", "-f", "-", input=json.dumps(namespace))
    installed.kubectl("create", "--dry-run=server", "--validate=strict", "-f", "-", input=json.dumps(pod))


SECOND = ["second", str(CHART), "--namespace=rl", IMAGE]


def test_a_second_release_is_told_what_the_first_one_has_brought(installed: ControlPlane, cluster_helm: Helm) -> None:
    said = rf"release rewardpool in namespace {NAMESPACE} .*crds.install=false.*kubectl annotate .*release-name=second"
    with pytest.raises(HelmError, match=said):
        cluster_helm("install", *SECOND)


@pytest.mark.parametrize("name", ["second", "rewardpool"])
def test_a_second_release_stands_beside_the_first(installed: ControlPlane, cluster_helm: Helm, name: str) -> None:
    others = ["--set=crds.install=false", "--set=rbac.userRoles=false", '--set-json=watch.namespaces=["rl"]']
    cluster_helm("install", name, *SECOND[1:], *others)
    cluster_helm("uninstall", name, "--namespace=rl")
    roles = installed.kubectl("get", "clusterroles", "-o", "name")
    assert "clusterrole.rbac.authorization.k8s.io/rewardpool-trainer" in roles.split()
    assert "deployment.apps/rewardpool" in installed.kubectl("get", "deployments", "-n", NAMESPACE, "-o", "name")


def test_an_operator_of_some_namespaces_has_no_rights_in_others(installed: ControlPlane, cluster_helm: Helm) -> None:
    others = ["--set=crds.install=false", "--set=rbac.userRoles=false", '--set-json=watch.namespaces=["rl"]']
    cluster_helm("install", "rewardpool", *SECOND[1:], *others)
    operator = "system:serviceaccount:rl:rewardpool"
    for verb, what in (("get", "secrets/a"), ("create", "deployments.apps"), ("delete", "leases"), ("list", "pods")):
        assert may(installed, operator, verb, what, "--namespace=rl")
        assert not may(installed, operator, verb, what, "--namespace=default")
    cluster_helm("uninstall", "rewardpool", "--namespace=rl")


def test_every_object_passes_strict_validation(installed: ControlPlane, render: Render) -> None:
    for item in render(env=[{"name": "A", "value": "b"}], priorityClassName="system-cluster-critical"):
        data = json.dumps(item)
        installed.kubectl(
            "apply",
            "--server-side",
            "--force-conflicts",
            "--dry-run=server",
            "--validate=strict",
            "-f",
            "-",
            input=data,
        )
