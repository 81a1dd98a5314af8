"""An upgraded operator on a real API server: other mounted files, another image, and pools that go on as they are.

The other version is the same operator with changed files of `rewardpool_worker` in front of its own on Python's path,
and with another image of its own, which is the default image of Function workers and of routers.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.operator_cluster import Cluster, names_of

import rewardpool_worker
from rewardpool_api import names

pytestmark = pytest.mark.real

POOLS = ("first", "second")
CHANGE_SECONDS = 90


def worker_deployment(cluster: Cluster, pool: str) -> dict[str, Any]:
    selector = f"{names.LABEL_POOL}={pool},{names.LABEL_REVISION}"
    found = cluster.all("deployment", selector)
    return next(item for item in found if item["spec"]["replicas"])


def image(deployment: dict[str, Any]) -> str:
    text: str = deployment["spec"]["template"]["spec"]["containers"][0]["image"]
    return text


def router_images(cluster: Cluster, pool: str) -> set[str]:
    return {pod["spec"]["containers"][0]["image"] for pod in cluster.pods(pool, "router")}


def files(cluster: Cluster) -> set[str]:
    return set(names_of(cluster.all("configmap", f"{names.LABEL_COMPONENT}={names.COMPONENT_FILES}")))


def is_whole(cluster: Cluster, pool: str, replicas: int = 1) -> bool:
    routers = cluster.pods(pool, "router")
    return cluster.is_ready(pool, replicas=replicas) and len(routers) == 1


@pytest.fixture(scope="module")
def upgraded(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two pools that serve, and then another operator."""
    for pool in POOLS:
        cluster.apply(pool, replicas=1)
    for pool in POOLS:
        cluster.eventually(lambda pool=pool: is_whole(cluster, pool), seconds=CHANGE_SECONDS, what=f"{pool} serves")
    cluster.before = {pool: (worker_deployment(cluster, pool), cluster.pods(pool, "worker")) for pool in POOLS}  # type: ignore[attr-defined]
    cluster.stop_operator()
    other = tmp_path_factory.mktemp("other") / "rewardpool_worker"
    shutil.copytree(Path(rewardpool_worker.__file__).parent, other)
    for name in ("engine_side/middleware/score.py", "router_launcher.py"):
        with (other / name).open("a") as file:
            file.write("# another version\n")
    cluster.start_operator(PYTHONPATH=str(other.parent), REWARDPOOL_IMAGE="rewardpool:other")
    yield cluster
    cluster.clear()  # before the first version is back, which would replace all routers
    cluster.stop_operator()
    cluster.start_operator()


def test_an_upgrade_with_other_files_and_another_image_replaces_no_worker(upgraded: Cluster) -> None:
    seen: list[set[str]] = []

    def routers_are_new() -> bool:
        seen.append({pool for pool in POOLS if router_images(upgraded, pool) == {"rewardpool:other"}})
        return seen[-1] == set(POOLS) and all(is_whole(upgraded, pool) for pool in POOLS)

    upgraded.eventually(routers_are_new, seconds=CHANGE_SECONDS, what="the routers are new ones")
    assert any(len(pools) == 1 for pools in seen), "one pool after the other"
    for pool in POOLS:
        deployment, pods = upgraded.before[pool]  # type: ignore[attr-defined]
        assert worker_deployment(upgraded, pool)["spec"]["template"] == deployment["spec"]["template"]
        assert [pod["metadata"]["uid"] for pod in upgraded.pods(pool, "worker")] == [
            pod["metadata"]["uid"] for pod in pods
        ]
        assert upgraded.status(pool)["currentRevision"] == deployment["metadata"]["labels"][names.LABEL_REVISION]


def test_what_the_upgrade_offers_is_said(upgraded: Cluster) -> None:
    upgraded.eventually(
        lambda: upgraded.condition("first", "Progressing").get("reason") == "UpdateAvailable",
        seconds=20,
        what="it is said",
    )
    message = upgraded.condition("first", "Progressing")["message"]
    assert "image rewardpool:other instead of rewardpool:" in message
    assert "other mounted files" in message


def test_a_new_replica_of_the_old_revision_starts_with_the_old_files(upgraded: Cluster) -> None:
    upgraded.apply("first", replicas=2)
    upgraded.eventually(lambda: is_whole(upgraded, "first", 2), seconds=CHANGE_SECONDS, what="two workers serve")
    (old,) = {pod["spec"]["volumes"][0]["configMap"]["name"] for pod in upgraded.pods("first", "worker")}
    assert old in files(upgraded)


def test_a_deadline_and_a_drain_time_replace_no_worker(upgraded: Cluster) -> None:
    before = {pod["metadata"]["uid"] for pod in upgraded.pods("first", "worker")}
    upgraded.apply("first", replicas=2, worker={"gpus": 0, "drainSeconds": 3}, rollout={"progressDeadlineSeconds": 700})
    upgraded.eventually(lambda: upgraded.is_ready("first", replicas=2), seconds=20, what="the spec was seen")
    upgraded.eventually(
        lambda: "other times" in upgraded.condition("first", "Progressing").get("message", ""),
        seconds=20,
        what="what a restart would change is said",
    )
    assert {pod["metadata"]["uid"] for pod in upgraded.pods("first", "worker")} == before


def test_a_restart_takes_what_the_upgrade_offers_and_keeps_the_files_of_the_revision_before(upgraded: Cluster) -> None:
    deployment, _ = upgraded.before["second"]  # type: ignore[attr-defined]
    old = {volume["configMap"]["name"] for volume in deployment["spec"]["template"]["spec"]["volumes"][:1]}
    before = upgraded.status("second")["currentRevision"]
    upgraded.kubectl("annotate", "rewardpool", "second", f"{names.ANNOTATION_RESTARTED_AT}=2026-01-01T00:00:00Z")

    # An annotation is no new generation: a status of before may still call the pool whole.
    def is_new_and_whole() -> bool:
        is_new = image(worker_deployment(upgraded, "second")) == "rewardpool:other"
        return is_new and upgraded.status("second")["currentRevision"] != before and is_whole(upgraded, "second")

    upgraded.eventually(
        is_new_and_whole,
        seconds=CHANGE_SECONDS,
        what="the offered revision serves",
    )
    assert old <= files(upgraded), "for as long as a rollback may want them"
    assert upgraded.condition("second", "Progressing")["reason"] == "Stable"
