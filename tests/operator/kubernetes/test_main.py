"""Which loops the operator runs. The API server is a fake that knows some pools and nothing else."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from rewardpool_operator.kubernetes import client
from rewardpool_operator.kubernetes.client import KubeUnreachableError, Object, Resource
from rewardpool_operator.kubernetes.pool_loop import PoolLoop
from rewardpool_operator.main import STUCK_SECONDS, Operator, watch_settings


class FakeKube:
    """Counts how often the pool was read; it is there, gone, or the server is away."""

    def __init__(self) -> None:
        self.pool: Object | None = a_pool_object()
        self.away = False
        self.reads = 0

    async def get(self, resource: Resource, namespace: str, name: str) -> Object | None:
        if resource != client.POOLS:
            return None
        self.reads += 1
        if self.away:
            raise KubeUnreachableError("nobody there")
        return self.pool

    async def list(self, resource: Resource, namespace: str, *, selector: str) -> list[Object]:
        return []


def a_pool_object(version: str = "1") -> Object:
    """A pool that is being deleted: its loop looks at it and writes nothing."""
    metadata = {"name": "rm", "namespace": "rl", "resourceVersion": version, "deletionTimestamp": "now"}
    return {"metadata": metadata}


@pytest.fixture
def kube() -> FakeKube:
    return FakeKube()


@pytest.fixture
async def operator(kube: FakeKube) -> AsyncIterator[Operator]:
    async with aiohttp.ClientSession() as session:
        operator = Operator(kube, session, image="own:1")  # type: ignore[arg-type]
        yield operator
        await operator.close()


async def until(holds: Any) -> None:
    async with asyncio.timeout(5):
        while not holds():  # noqa: ASYNC110 - a loop tells nobody that it made a pass
            await asyncio.sleep(0.01)


async def test_a_pool_has_one_loop_however_often_it_is_seen(operator: Operator) -> None:
    for version in ("1", "2", "3"):
        operator.pool_changed(a_pool_object(version), deleted=False)
    assert operator.health()["pools"] == 1


async def test_a_deleted_pool_has_none(operator: Operator) -> None:
    operator.pool_changed(a_pool_object(), deleted=False)
    operator.pool_changed(a_pool_object(), deleted=True)
    assert operator.health()["pools"] == 0


async def test_a_pool_whose_deletion_was_missed_has_none_and_a_new_one_of_its_name_gets_one(
    operator: Operator, kube: FakeKube
) -> None:
    kube.pool = None
    operator.pool_changed(a_pool_object(), deleted=False)
    await until(lambda: operator.health()["pools"] == 0)
    kube.pool = a_pool_object("2")
    operator.pool_changed(a_pool_object("2"), deleted=False)
    await until(lambda: kube.reads == 2)
    assert operator.health()["pools"] == 1


async def test_an_event_has_the_pool_read_again(operator: Operator, kube: FakeKube) -> None:
    operator.pool_changed(a_pool_object(), deleted=False)
    await until(lambda: kube.reads == 1)
    operator.owned_changed("rl", "rm")
    await until(lambda: kube.reads == 2)


async def test_a_version_that_was_looked_at_is_known_and_the_next_is_not(kube: FakeKube) -> None:
    async with aiohttp.ClientSession() as session:
        loop = PoolLoop(kube, session, namespace="rl", name="rm", image="own:1")  # type: ignore[arg-type]
        assert not loop.knows(a_pool_object("1"))
        await loop.one_pass()
        assert loop.knows(a_pool_object("1"))
        assert not loop.knows(a_pool_object("2"))


async def test_an_object_of_an_unknown_pool_starts_nothing(operator: Operator) -> None:
    operator.owned_changed("rl", "unknown")
    assert operator.health()["pools"] == 0


async def test_an_api_server_that_is_away_ends_no_loop_and_is_not_being_stuck(
    operator: Operator, kube: FakeKube
) -> None:
    kube.away = True
    operator.pool_changed(a_pool_object(), deleted=False)
    await until(lambda: kube.reads >= 2)
    assert operator.health()["ok"]


async def test_a_loop_that_is_stuck_is_told(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    operator.pool_changed(a_pool_object(), deleted=False)
    monkeypatch.setattr("rewardpool_operator.main.monotonic", lambda: 1e9 + STUCK_SECONDS)
    assert not operator.health()["ok"]


def test_kopf_writes_nothing_of_its_own() -> None:
    settings = watch_settings()
    assert not settings.posting.enabled
    assert settings.peering.standalone
