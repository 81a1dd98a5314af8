"""The CRD is deleted under a running operator, and comes back. A real API server and the operator as a process."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from support.operator_cluster import NAMESPACE, Cluster, new_cluster

from cluster.kubectl import wait_for_crd
from rewardpool_api import names

pytestmark = pytest.mark.real

CRD = Path(__file__).resolve().parents[3] / "crds" / f"{names.GROUP}_{names.PLURAL}.yaml"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One of its own: Kubernetes' garbage collector may take half a minute to look at the CRD again."""
    with new_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


def not_served(cluster: Cluster) -> str:
    """What /healthz says of the namespace; empty where it is served."""
    try:
        with urlopen(f"http://127.0.0.1:{cluster.health_port}/healthz", timeout=5) as response:
            health: dict[str, Any] = json.load(response)
    except HTTPError as error:
        health = json.load(error)
    assert health["ok"], "a restart would not bring the CRD back"
    return str(health["namespaces_not_served"].get(NAMESPACE, ""))


def test_a_deleted_crd_is_told_in_words_and_its_return_is_noticed(cluster: Cluster) -> None:
    cluster.apply("before", suspend=True)
    seen = lambda name: cluster.status(name).get("observedGeneration") == 1  # noqa: E731
    cluster.eventually(lambda: seen("before"), seconds=30, what="the pool is looked after")
    cluster.kubectl("delete", "crd", f"{names.PLURAL}.{names.GROUP}")
    said = lambda: "is not installed: kubectl apply" in not_served(cluster)  # noqa: E731
    cluster.eventually(said, seconds=60, what="the CRD is said to be missing")
    served = lambda: cluster.metric("rewardpool_namespace_served", namespace=NAMESPACE)  # noqa: E731
    cluster.eventually(lambda: served() == 0, seconds=30, what="Prometheus is told")
    cluster.kubectl("apply", "--server-side", "-f", str(CRD))
    wait_for_crd(cluster.kubectl, f"{names.PLURAL}.{names.GROUP}")
    cluster.apply("after", suspend=True)
    cluster.eventually(lambda: seen("after"), seconds=60, what="the new pool is looked after")
    assert not_served(cluster) == ""
    assert not any("Traceback" in log.read_text() for log in cluster.logs())
    cluster.kubectl("delete", "rewardpool", "after")
