"""A model's way from a hub into workers, on a real API server: once for all of them, and of one commit.

The download is the real program with the hub's real client; the hub and the node are stand-ins, and a function server
stands in for the engine, which would only read the files. The tests are one story, in their order.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from support.downloads import FILES, REPO
from support.env_vars import env_vars
from support.fake_hub import FakeHub, FakeRepo
from support.operator_cluster import FUNCTIONS, Cluster

from rewardpool_api import names

pytestmark = pytest.mark.real

POOL = "hub"
CHUNK = 10 * 1024 * 1024
"""The hub's client hands on what it reads in pieces of this size."""
WEIGHTS = bytes(range(256)) * (2 * CHUNK // 256)
START_SECONDS = 60
MODULES = f"{FUNCTIONS}:{FUNCTIONS / 'engine_of_functions'}"


@pytest.fixture(scope="module")
def hub() -> Iterator[FakeHub]:
    with FakeHub() as hub:
        hub.model(REPO, {**FILES, "model.safetensors": WEIGHTS})
        yield hub


@pytest.fixture(scope="module")
def repo(hub: FakeHub) -> FakeRepo:
    return hub.repos[REPO]


@pytest.fixture(scope="module", autouse=True)
def pool(cluster: Cluster, hub: FakeHub) -> None:
    hub.hold_after = CHUNK + 1
    apply(cluster, hub, replicas=1)


def apply(cluster: Cluster, hub: FakeHub, **spec: Any) -> None:
    cluster.apply(
        POOL,
        model={"source": f"hf://{REPO}", "cache": {"claimName": "models"}},
        engine={"name": "vllm", "env": env_vars({"HF_ENDPOINT": hub.url, "PYTHONPATH": MODULES})},
        worker={"gpus": 0, "drainSeconds": 1},
        **spec,
    )


def model(cluster: Cluster) -> dict[str, Any]:
    found: dict[str, Any] = cluster.status(POOL).get("model") or {}
    return found


def pins(cluster: Cluster) -> dict[str, str]:
    files = (cluster.get("configmap", names.pins_config_map(POOL)) or {}).get("data", {})
    found: dict[str, str] = json.loads(files.get(names.PINS_FILE, "{}"))
    return found


def commits(cluster: Cluster) -> set[str]:
    """What the workers that there are have downloaded."""
    statuses = [
        pod["status"]["initContainerStatuses"][0]["state"]
        for pod in cluster.pods(POOL, "worker")
        if "deletionTimestamp" not in pod["metadata"]
    ]
    return {json.loads(state["terminated"]["message"])["commit"] for state in statuses}


def test_the_status_tells_how_far_a_download_is(cluster: Cluster, hub: FakeHub) -> None:
    def is_reported() -> bool:
        return bool(model(cluster).get("download", {}).get("downloadedBytes", 0) >= CHUNK)

    cluster.eventually(is_reported, seconds=START_SECONDS, what="the status has the bytes")
    assert model(cluster)["download"]["totalBytes"] == len(WEIGHTS) + len(FILES["config.json"])
    assert cluster.condition(POOL, "Progressing")["reason"] == "Downloading"
    hub.hold_after = None
    hub.release.set()


def test_the_worker_serves_and_its_commit_is_pinned(cluster: Cluster, repo: FakeRepo) -> None:
    cluster.eventually(lambda: cluster.is_ready(POOL, replicas=1), seconds=START_SECONDS, what="the pool is ready")
    assert model(cluster)["commit"] == repo.main
    assert "download" not in model(cluster)
    assert pins(cluster) == {cluster.status(POOL)["currentRevision"]: repo.main}


def test_a_second_worker_takes_the_pinned_commit_out_of_the_cache(
    cluster: Cluster, hub: FakeHub, repo: FakeRepo
) -> None:
    first, asked = repo.main, len(hub.asked)
    repo.push({**FILES, "model.safetensors": WEIGHTS[::-1]})
    cluster.kubectl("scale", "rewardpool", POOL, "--replicas=2")
    cluster.eventually(lambda: cluster.is_ready(POOL, replicas=2), seconds=START_SECONDS, what="two workers serve")
    assert commits(cluster) == {first}
    assert len(hub.asked) == asked


def test_a_pin_that_was_deleted_is_written_again(cluster: Cluster) -> None:
    before = pins(cluster)
    cluster.kubectl("delete", "configmap", names.pins_config_map(POOL))
    cluster.eventually(lambda: pins(cluster) == before, seconds=10, what="the pin is back")


def test_a_restart_takes_what_the_branch_is_now(cluster: Cluster, repo: FakeRepo) -> None:
    cluster.kubectl("annotate", "rewardpool", POOL, f"{names.ANNOTATION_RESTARTED_AT}=2026-01-01T00:00:00Z")

    def has_moved() -> bool:
        return model(cluster).get("commit") == repo.main and cluster.is_ready(POOL, replicas=2)

    cluster.eventually(has_moved, seconds=START_SECONDS, what="both workers have the new commit")
    assert commits(cluster) == {repo.main}
