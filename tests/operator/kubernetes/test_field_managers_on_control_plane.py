"""Who owns which field of a pool and of its objects, as the API server notes it: GitOps tools see no endless diff.

A pool of a GitOps tool, which applies its manifest by server-side apply, over its life.
"""

from typing import Any

import pytest
from support.env_vars import env_vars
from support.operator_cluster import FUNCTIONS, Cluster

from rewardpool_api import names

pytestmark = pytest.mark.real

POOL = "declared"
GITOPS = "gitops"
OWNED = ("deployment", "service", "configmap", "secret", "pdb")
OF_KUBERNETES = {"kube-controller-manager"}
SECONDS = 45


@pytest.fixture(scope="module")
def declared(cluster: Cluster) -> Cluster:
    apply(cluster)
    wait(cluster, replicas=1)
    return cluster


def manifest(cluster: Cluster, **env: str) -> str:
    return cluster.manifest(POOL, engine={"env": env_vars({"PYTHONPATH": str(FUNCTIONS), **env})})


def apply(cluster: Cluster, **env: str) -> None:
    cluster.kubectl("apply", "--server-side", f"--field-manager={GITOPS}", "-f", "-", data=manifest(cluster, **env))


def wait(cluster: Cluster, *, replicas: int) -> None:
    cluster.eventually(lambda: cluster.is_ready(POOL, replicas=replicas), seconds=SECONDS, what=f"{replicas} serve")


def the_pool(cluster: Cluster) -> dict[str, Any]:
    found = cluster.get("rewardpool", POOL)
    assert found is not None
    return found


def managers(found: dict[str, Any], part: str) -> set[str]:
    """Who owns anything in that part of the object."""
    return {entry["manager"] for entry in found["metadata"]["managedFields"] if f"f:{part}" in entry["fieldsV1"]}


def look(cluster: Cluster, **env: str) -> None:
    """The spec is its user's; status and objects are the operator's; nobody has anything to correct."""
    found = the_pool(cluster)
    assert managers(found, "spec") == {GITOPS}
    assert managers(found, "status") == {names.FIELD_MANAGER}
    assert names.FIELD_MANAGER not in managers(found, "metadata")
    assert (
        cluster.kubectl("diff", "--server-side", f"--field-manager={GITOPS}", "-f", "-", data=manifest(cluster, **env))
        == ""
    )
    for owned in (item for kind in OWNED for item in cluster.all(kind, f"{names.LABEL_POOL}={POOL}")):
        by = {entry["manager"] for entry in owned["metadata"]["managedFields"]}
        assert by - OF_KUBERNETES == {names.FIELD_MANAGER}, owned["metadata"]["name"]


def test_what_a_new_pool_says_is_its_users_alone(declared: Cluster) -> None:
    look(declared)


def test_the_same_manifest_again_changes_nothing(declared: Cluster) -> None:
    def is_the_same() -> bool:
        # Not by one look: the operator may write the status meanwhile.
        before = the_pool(declared)["metadata"]
        apply(declared)
        after = the_pool(declared)["metadata"]
        assert after["generation"] == before["generation"]
        return bool(after["resourceVersion"] == before["resourceVersion"])

    declared.eventually(is_the_same, seconds=10, what="the same manifest changes no version")


def test_who_scales_a_pool_writes_its_size_and_nobody_takes_it_back(declared: Cluster) -> None:
    declared.kubectl("scale", "rewardpool", POOL, "--replicas=2")
    wait(declared, replicas=2)
    look(declared)


def test_a_changed_manifest_is_rolled_out_and_left_as_it_is(declared: Cluster) -> None:
    before = the_pool(declared)["status"]["currentRevision"]
    apply(declared, CHANGED="yes")
    declared.eventually(
        lambda: declared.status(POOL)["currentRevision"] != before and declared.is_ready(POOL, replicas=2),
        seconds=SECONDS,
        what="the changed workers serve",
    )
    look(declared, CHANGED="yes")
    assert the_pool(declared)["spec"]["replicas"] == 2, "a manifest without a size leaves the size alone"
