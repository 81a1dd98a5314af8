"""Pools come back from a backup of their objects, as Velero makes one. A real API server with its garbage collector."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from support.operator_cluster import OWNED, Cluster

from rewardpool_api import names

pytestmark = pytest.mark.real

KEPT = ("name", "namespace", "labels", "annotations", "finalizers", "ownerReferences")
"""Of an object's metadata, what is restored."""
POOL = "kept"
SELECTOR = f"{names.LABEL_POOL}={POOL}"


def as_restored(found: dict[str, Any]) -> dict[str, Any]:
    """An object as it is created anew: it has another uid, and no status."""
    metadata = {name: found["metadata"][name] for name in KEPT if name in found["metadata"]}
    return {name: value for name, value in found.items() if name != "status"} | {"metadata": metadata}


def owned(cluster: Cluster) -> list[dict[str, Any]]:
    """Objects of the pool, but for pods and their sets, which Deployments make."""
    kinds = [kind for kind in (*OWNED, "deployment") if kind != "pod"]
    found: list[dict[str, Any]] = json.loads(cluster.kubectl("get", ",".join(kinds), "-l", SELECTOR, "-o", "json"))[
        "items"
    ]
    return found


Backup = tuple[dict[str, Any], list[dict[str, Any]]]


@pytest.fixture
def backup(cluster: Cluster) -> Iterator[Backup]:
    """A pool that served, and its objects, all of which are gone."""
    cluster.apply(POOL, replicas=1)
    cluster.eventually(lambda: cluster.is_ready(POOL, replicas=1), seconds=60, what="it serves")
    pool, objects = cluster.get("rewardpool", POOL), owned(cluster)
    assert pool is not None
    cluster.clear()
    yield pool, objects
    cluster.clear()


def test_a_pool_that_is_restored_alone_serves_at_its_address_with_new_objects(cluster: Cluster, backup: Backup) -> None:
    pool, _ = backup
    cluster.kubectl("create", "-f", "-", data=json.dumps(as_restored(pool)))
    cluster.eventually(lambda: cluster.is_ready(POOL, replicas=1), seconds=60, what="it serves again")
    assert cluster.status(POOL)["url"] == pool["status"]["url"]


def test_objects_that_are_restored_with_their_owner_of_before_go_and_the_pool_serves(
    cluster: Cluster, backup: Backup
) -> None:
    pool, objects = backup
    listed = {"apiVersion": "v1", "kind": "List", "items": [*map(as_restored, objects), as_restored(pool)]}
    cluster.kubectl("create", "-f", "-", data=json.dumps(listed))
    cluster.eventually(lambda: cluster.is_ready(POOL, replicas=1), seconds=120, what="it serves again")
    uid = (cluster.get("rewardpool", POOL) or {})["metadata"]["uid"]
    owners = {one["metadata"]["ownerReferences"][0]["uid"] for one in owned(cluster)}
    assert owners == {uid} != {pool["metadata"]["uid"]}
