"""Pools after etcd is restored from a snapshot: a real etcd, its own tool, an API server and its controllers."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from support.downloads import FILES, REPO
from support.env_vars import env_vars
from support.fake_hub import FakeHub
from support.operator_cluster import FUNCTIONS, Cluster, new_cluster

from rewardpool_api import names

pytestmark = [pytest.mark.real, pytest.mark.long]

PINNED, EDITED, LATER = "pinned", "edited", "later"
"""Pools: nothing changes, its spec is changed after the snapshot, it is made after the snapshot."""
SECONDS = 90.0


@pytest.fixture(scope="module")
def hub() -> Iterator[FakeHub]:
    with FakeHub() as hub:
        hub.model(REPO, {**FILES, "model.safetensors": b"first"})
        yield hub


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with new_cluster(tmp_path_factory.mktemp("restored")) as cluster:
        yield cluster


def seen(cluster: Cluster, pool: str) -> dict[str, Any]:
    """What a restore must bring back, or leave as it is."""
    secret = cluster.get("secret", names.key_secret(pool)) or {}
    pins = cluster.get("configmap", names.pins_config_map(pool)) or {}
    return {
        "workers": {pod["metadata"]["uid"] for pod in cluster.pods(pool, "worker")},
        "routers": {pod["metadata"]["uid"] for pod in cluster.pods(pool, "router")},
        "key": secret.get("data"),
        "pins": pins.get("data"),
        "revision": cluster.status(pool).get("currentRevision"),
    }


def test_pools_are_as_in_the_snapshot_and_no_worker_is_replaced(cluster: Cluster, hub: FakeHub) -> None:
    model = {"source": f"hf://{REPO}", "cache": {"claimName": "models"}}
    path = f"{FUNCTIONS}:{FUNCTIONS / 'engine_of_functions'}"
    env = env_vars({"HF_ENDPOINT": hub.url, "PYTHONPATH": path})
    pinned = {"model": model, "engine": {"name": "vllm", "env": env}, "worker": {"gpus": 0, "drainSeconds": 1}}
    cluster.apply(PINNED, **pinned, replicas=1)
    cluster.apply(EDITED, replicas=1)
    for pool in (PINNED, EDITED):
        cluster.eventually(lambda pool=pool: cluster.is_ready(pool, replicas=1), seconds=SECONDS, what="it serves")
    before = {pool: seen(cluster, pool) for pool in (PINNED, EDITED)}
    commit = hub.repos[REPO].main
    snapshot = cluster.plane.directory / "snapshot.db"
    cluster.plane.save_etcd(snapshot)

    hub.repos[REPO].push({**FILES, "model.safetensors": b"second"})
    cluster.apply(EDITED, replicas=1, worker={"gpus": 0, "annotations": {"a": "b"}})
    cluster.apply(LATER, replicas=1)
    for pool in (EDITED, LATER):
        cluster.eventually(lambda pool=pool: cluster.is_ready(pool, replicas=1), seconds=SECONDS, what="it serves")
    assert not seen(cluster, EDITED)["workers"] & before[EDITED]["workers"]

    cluster.plane.restore_etcd(snapshot)
    assert cluster.operator.exit_code(seconds=SECONDS) == 1
    assert "etcd was restored from a backup" in cluster.logs()[-1].read_text()
    cluster.kill_operator()
    cluster.start_operator()

    for pool in (PINNED, EDITED):
        cluster.eventually(lambda pool=pool: cluster.is_ready(pool, replicas=1), seconds=SECONDS, what="it serves")
    assert {pool: seen(cluster, pool) for pool in (PINNED, EDITED)} == before
    assert cluster.get("rewardpool", LATER) is None

    cluster.kubectl("scale", "rewardpool", PINNED, "--replicas=2")
    cluster.eventually(lambda: cluster.is_ready(PINNED, replicas=2), seconds=SECONDS, what="a second worker serves")
    assert before[PINNED]["workers"] < seen(cluster, PINNED)["workers"]
    ended = [pod["status"]["initContainerStatuses"][0]["state"] for pod in cluster.pods(PINNED, "worker")]
    assert {json.loads(state["terminated"]["message"])["commit"] for state in ended} == {commit}
