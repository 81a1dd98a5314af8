"""Passes of an operator that is another version than the one that brought the pool up."""

from dataclasses import replace

import pytest
from support.pool_surroundings import KEY, Surroundings

from rewardpool_kube import resources
from rewardpool_kube.resources import Object
from rewardpool_operator.kubernetes.render import worker
from rewardpool_operator.kubernetes.settings.pool_defaults import PoolDefaults
from rewardpool_worker import mounted
from rewardpool_worker.engines import engine_for


@pytest.fixture
async def around(monkeypatch: pytest.MonkeyPatch) -> Surroundings:
    around = Surroundings(monkeypatch)
    await around.bring_up()
    return around


def upgrade(around: Surroundings, monkeypatch: pytest.MonkeyPatch) -> None:
    """The operator is another version: another default image, other files, another one of its own."""
    engine = engine_for("vllm")
    monkeypatch.setattr(worker, "engine_for", lambda _: replace(engine, default_image="vllm/vllm-openai:next"))
    monkeypatch.setattr(mounted, "_zip", lambda: b"another zip")
    monkeypatch.setattr(mounted, "_launcher", lambda: b"another launcher")
    around.image = "x:2"
    around.reconciler = around.a_reconciler()


def deployments(around: Surroundings) -> dict[str, Object]:
    return {name: item for (resource, name), item in around.kube.objects.items() if resource == resources.DEPLOYMENTS}


def files(around: Surroundings) -> set[str]:
    found = (name for resource, name in around.kube.objects if resource == resources.CONFIG_MAPS)
    return {name for name in found if "-files-" in name}


async def test_an_upgraded_operator_with_other_files_and_another_default_image_changes_no_worker(
    around: Surroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = deployments(around)
    (revision,) = (name for name in before if "worker" in name)
    upgrade(around, monkeypatch)
    for _ in range(4):
        await around.reconcile()
    after = deployments(around)
    assert after.keys() == before.keys()
    assert after[revision] == before[revision]
    status = around.kube.objects[resources.POOLS, "rm"]["status"]
    assert revision.endswith(status["currentRevision"])
    (progressing,) = (item for item in status["conditions"] if item["type"] == "Progressing")
    assert progressing["reason"] == "UpdateAvailable"
    assert "image vllm/vllm-openai:next instead of" in progressing["message"]
    assert await around.reconcile() == []


async def test_routers_of_an_upgraded_operator_wait_for_their_pools_turn(
    around: Surroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, files_before = deployments(around)["rm-router"], files(around)
    upgrade(around, monkeypatch)
    around.upgrade_slots.acquire(("rl", "other"))
    for _ in range(3):
        await around.reconcile()
    assert (deployments(around)["rm-router"], files(around)) == (before, files_before)
    around.upgrade_slots.release(("rl", "other"))
    await around.reconcile()
    container = deployments(around)["rm-router"]["spec"]["template"]["spec"]["containers"][0]
    assert container["image"] == "x:2"
    assert around.upgrade_slots.holds(KEY), "until its routers are new ones, and ready"


async def test_a_change_of_the_pools_own_routers_waits_for_nobody(
    around: Surroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    upgrade(around, monkeypatch)
    around.upgrade_slots.acquire(("rl", "other"))
    around.declare(router={"requestTimeoutSeconds": 7})
    await around.reconcile()
    assert deployments(around)["rm-router"]["spec"]["template"]["spec"]["containers"][0]["image"] == "x:2"


async def pass_with_two_routers_by_default(around: Surroundings) -> tuple[int, int, str]:
    """Let another pool have its routers upgraded; return the routers as declared, and the status's number and words."""
    around.defaults = PoolDefaults.model_validate({"router": {"replicas": 2}})
    around.reconciler = around.a_reconciler()
    around.upgrade_slots.acquire(("rl", "other"))
    for _ in range(3):
        await around.reconcile()
    status = around.kube.objects[resources.POOLS, "rm"]["status"]
    (ready,) = (item["message"] for item in status["conditions"] if item["type"] == "RouterReady")
    return deployments(around)["rm-router"]["spec"]["replicas"], status["routerReplicas"], ready


async def test_routers_that_a_default_adds_replace_none_and_wait_for_nobody(around: Surroundings) -> None:
    before = deployments(around)["rm-router"]["spec"]["template"]
    assert await pass_with_two_routers_by_default(around) == (2, 2, "1 of 2 routers answer")
    assert deployments(around)["rm-router"]["spec"]["template"] == before


async def test_a_default_that_comes_with_an_upgrade_waits_with_it_and_no_router_is_missed(
    around: Surroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    upgrade(around, monkeypatch)
    assert await pass_with_two_routers_by_default(around) == (1, 1, "1 routers hold the right workers")
