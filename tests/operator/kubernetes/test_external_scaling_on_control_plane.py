"""Policy External with the real HPA controller of kube-controller-manager; only its metric comes from a stand-in."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.external_scaling import METRIC, hpa
from support.operator_cluster import NAMESPACE, Cluster
from support.stand_in_metrics_adapter import StandInMetricsAdapter

pytestmark = pytest.mark.real

POOL = "outside"
TARGET = 4
LARGEST_POOL, LARGEST_HPA = 3, 5
"""The HPA may ask for more than the pool allows itself."""
LOOKS = 3
"""Of the HPA, which are a second apart here; the operator makes several passes meanwhile."""


class Requests:
    """What the metric says of the pool; None for a pipeline that has nothing."""

    def __init__(self) -> None:
        self.now: float | None = 0.0
        self.looks = 0

    def read(self, namespace: str, metric: str, labels: Any) -> float | None:
        self.looks += 1
        assert (namespace, metric, labels) == (NAMESPACE, METRIC, {"pool": POOL})
        return self.now


@pytest.fixture(scope="module")
def requests(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Requests]:
    """A pool of one replica that an HPA scales; tests find it there and leave it there."""
    requests = Requests()
    folder: Path = tmp_path_factory.mktemp("metrics-adapter")
    with StandInMetricsAdapter(cluster.plane.kubectl, folder, read=requests.read):
        bounds = {"minReplicas": 1, "maxReplicas": LARGEST_POOL, "policy": {"type": "External"}}
        cluster.apply(POOL, autoscaling=bounds)
        cluster.eventually(lambda: cluster.is_ready(POOL, replicas=1), seconds=30, what="the pool is ready")
        assert cluster.condition(POOL, "ScalingActive")["reason"] == "ReplicasNotSet"
        cluster.kubectl("scale", "rewardpool", POOL, "--replicas=1")
        at_once = {"scaleDown": {"stabilizationWindowSeconds": 0}}
        autoscaler = hpa(POOL, target=TARGET, maximum=LARGEST_HPA, behavior=at_once)
        cluster.kubectl("apply", "-f", "-", data=yaml.safe_dump(autoscaler))
        yield requests
        cluster.kubectl("delete", "hpa", POOL)


def spec(cluster: Cluster) -> tuple[int, int]:
    """The generation, which counts the changes of the spec, and its replicas."""
    pool = cluster.get("rewardpool", POOL) or {}
    return pool["metadata"]["generation"], pool["spec"]["replicas"]


def let_the_hpa_look(cluster: Cluster, requests: Requests) -> None:
    """Give HPA and operator the time for a quarrel."""
    before = requests.looks
    cluster.eventually(lambda: requests.looks >= before + LOOKS, seconds=30, what="the HPA looks some times")


def test_an_hpa_scales_a_pool_up_and_down_and_nobody_takes_it_back(cluster: Cluster, requests: Requests) -> None:
    before, _ = spec(cluster)
    requests.now = 2.0 * TARGET
    cluster.eventually(lambda: cluster.is_ready(POOL, replicas=2), seconds=30, what="two replicas serve")
    let_the_hpa_look(cluster, requests)
    assert spec(cluster) == (before + 1, 2)

    requests.now = 0.5 * TARGET
    cluster.eventually(lambda: cluster.is_ready(POOL, replicas=1), seconds=30, what="one replica serves")
    let_the_hpa_look(cluster, requests)
    assert spec(cluster) == (before + 2, 1)


def test_the_pools_own_bounds_hold_against_an_hpa_that_wants_more(cluster: Cluster, requests: Requests) -> None:
    requests.now = 100.0 * TARGET
    cluster.eventually(lambda: spec(cluster)[1] == LARGEST_HPA, seconds=60, what="the HPA asks for its largest size")
    cluster.eventually(lambda: cluster.is_ready(POOL, replicas=LARGEST_POOL), seconds=30, what="the pool's size")
    before = spec(cluster)
    let_the_hpa_look(cluster, requests)

    assert spec(cluster) == before
    assert cluster.status(POOL)["replicas"] == LARGEST_POOL
    requests.now = 1.0
    cluster.eventually(lambda: cluster.is_ready(POOL, replicas=1), seconds=30, what="one replica serves")


def test_a_metric_that_is_missing_holds_the_size(cluster: Cluster, requests: Requests) -> None:
    requests.now = 2.0 * TARGET
    cluster.eventually(lambda: cluster.is_ready(POOL, replicas=2), seconds=30, what="two replicas serve")
    requests.now = None
    cluster.eventually(lambda: not scaling_active(cluster), seconds=15, what="the HPA misses its metric")

    assert spec(cluster)[1] == 2
    requests.now = 1.0
    cluster.eventually(lambda: cluster.is_ready(POOL, replicas=1), seconds=30, what="one replica serves")


def scaling_active(cluster: Cluster) -> bool:
    """Whether the HPA says that it can scale."""
    conditions = (cluster.get("hpa", POOL) or {})["status"].get("conditions", [])
    return any(item["type"] == "ScalingActive" and item["status"] == "True" for item in conditions)
