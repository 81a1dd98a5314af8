"""A teacher's gateway on a real API server, its pods as processes. No worker: the pool is at zero."""

import base64
import json
import urllib.error
import urllib.request
from typing import Any

import pytest
from support.operator_cluster import Cluster

from rewardpool_api import RewardPool, names
from rewardpool_operator.kubernetes.render.policies import disruption_budgets

pytestmark = pytest.mark.real

POOL = "teacher"
GATEWAY = names.gateway_name(POOL)


def spec(**gateway: Any) -> dict[str, Any]:
    return {
        "model": {"source": "file:///models/teacher", "type": "Teacher"},
        "engine": {"dtype": "float32"},
        "autoscaling": {"minReplicas": 0, "maxReplicas": 1, "policy": {"queueDepth": {"targetPerReplica": 8}}},
        **gateway,
    }


@pytest.fixture(scope="module", autouse=True)
def pool(cluster: Cluster) -> None:
    cluster.apply(POOL, **spec(gateway={}))
    cluster.eventually(lambda: ready(cluster), seconds=40, what="the gateway answers")


def ready(cluster: Cluster) -> bool:
    return bool(cluster.condition(POOL, "GatewayReady").get("status") == "True")


def pods(cluster: Cluster) -> list[dict[str, Any]]:
    found = cluster.pods(POOL, names.COMPONENT_GATEWAY)
    return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]


def key(cluster: Cluster) -> str:
    secret = cluster.get("secret", cluster.status(POOL)["gateway"]["secretName"]) or {}
    return base64.b64decode(secret["data"]["key"]).decode()


def asked(cluster: Cluster, **headers: str) -> int:
    """The status of a question for the models at the gateway's pod."""
    (pod,) = pods(cluster)
    url = f"http://{pod['status']['podIP']}:{names.GATEWAY_PORT}/v1/models"
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=10) as answer:
            assert json.load(answer)["data"][0]["id"] == POOL
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def basic(password: str) -> str:
    return f"Basic {base64.b64encode(f'trainer:{password}'.encode()).decode()}"


def test_the_status_has_the_gateways_url_while_the_pool_is_at_zero(cluster: Cluster) -> None:
    cluster.eventually(lambda: cluster.condition(POOL, "Ready").get("status") == "True", seconds=30, what="it is ready")
    assert cluster.status(POOL)["replicas"] == 0
    assert cluster.status(POOL)["gateway"] == {
        "url": "http://teacher-gateway.pools.svc:5000",
        "secretName": GATEWAY,
        "readyReplicas": 1,
    }


def test_nobody_is_answered_without_the_gateways_own_key(cluster: Cluster) -> None:
    secret = cluster.get("secret", names.key_secret(POOL)) or {}
    pools_key = base64.b64decode(secret["data"]["key"]).decode()
    assert asked(cluster, Authorization=basic(key(cluster))) == 200
    assert asked(cluster, Authorization=f"Bearer {key(cluster)}") == 200
    for wrong in ({}, {"Authorization": basic("")}, {"Authorization": basic(pools_key)}):
        assert asked(cluster, **wrong) == 401, wrong


@pytest.mark.parametrize("kind", ["secret", "service", "deployment"])
def test_what_was_deleted_comes_back_with_the_same_key(cluster: Cluster, kind: str) -> None:
    before = key(cluster), (cluster.get(kind, GATEWAY) or {})["metadata"]["uid"]
    cluster.kubectl("delete", kind, GATEWAY, "--wait=false")

    def is_back() -> bool:
        found = cluster.get(kind, GATEWAY)
        return found is not None and found["metadata"]["uid"] != before[1]

    cluster.eventually(is_back, seconds=30, what=f"there is a {kind} again")
    assert key(cluster) == before[0]
    cluster.eventually(
        lambda: ready(cluster) and len(pods(cluster)) == 1, seconds=40, what="one gateway answers, as before"
    )


def test_a_key_that_a_person_writes_into_the_secret_is_the_gateways(cluster: Cluster) -> None:
    before, (pod,) = key(cluster), pods(cluster)
    written = base64.b64encode(b"another-key-of-the-gateway").decode()
    cluster.kubectl("patch", "secret", GATEWAY, "--type=merge", "-p", json.dumps({"data": {"key": written}}))

    def is_new() -> bool:
        return [one["metadata"]["name"] for one in pods(cluster)] != [pod["metadata"]["name"]] and (
            len(pods(cluster)) == 1 and ready(cluster)
        )

    cluster.eventually(is_new, seconds=60, what="the gateway was replaced")
    cluster.eventually(
        lambda: asked(cluster, Authorization=basic("another-key-of-the-gateway")) == 200,
        seconds=30,
        what="the new key is taken",
    )
    assert asked(cluster, Authorization=basic(before)) == 401


def test_a_gateway_that_is_not_wanted_any_more_goes(cluster: Cluster) -> None:
    # Without a worker that serves the operator makes none.
    budgets = disruption_budgets(RewardPool.model_validate(cluster.get("rewardpool", POOL)))
    (budget,) = (one for one in budgets if one["metadata"]["name"] == GATEWAY)
    cluster.kubectl("create", "-f", "-", data=json.dumps(budget))
    cluster.apply(POOL, **spec())
    cluster.kubectl("patch", "rewardpool", POOL, "--type=merge", "-p", json.dumps({"spec": {"gateway": None}}))
    cluster.eventually(lambda: not pods(cluster), seconds=60, what="no gateway runs")
    cluster.eventually(lambda: "gateway" not in cluster.status(POOL), seconds=30, what="the status has none")
    assert cluster.condition(POOL, "GatewayReady") == {}
    assert cluster.get("deployment", GATEWAY) is None
    cluster.eventually(lambda: cluster.get("pdb", GATEWAY) is None, seconds=30, what="its budget is gone")
