"""Namespaces that are served side by side: what one of them refuses keeps no other from being looked after."""

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from typing import Any

import aiohttp
import pytest
from support.scripted_kube import ScriptedKube, an_object

from rewardpool_kube import resources
from rewardpool_kube.answers import Page
from rewardpool_kube.errors import KubeError
from rewardpool_kube.resources import Object, Resource
from rewardpool_operator.kubernetes import manager, namespaces, pool_reconciler
from rewardpool_operator.kubernetes.cache import reflector
from rewardpool_operator.kubernetes.leader import Acting
from rewardpool_operator.kubernetes.manager import Manager
from rewardpool_operator.kubernetes.namespaces import with_condition

GOOD, BAD = "good", "bad"


class RefusingKube(ScriptedKube):
    """Refuses to list pods in one namespace."""

    def __init__(self) -> None:
        super().__init__()
        self.refuses = True
        self.patches: list[tuple[str, Any]] = []

    async def pages(self, resource: Resource, namespace: str, *, selector: str = "") -> AsyncIterator[Page]:
        if self.refuses and (resource, namespace) == (resources.PODS, BAD):
            raise KubeError("GET pods", status=403, reason="Forbidden", message="pods is forbidden")
        async for page in super().pages(resource, namespace, selector=selector):
            yield Page(items=[one for one in page.items if one["metadata"]["namespace"] == namespace], version="10")

    async def merge(
        self, resource: Resource, namespace: str, name: str, patch: Object, *, subresource: str = ""
    ) -> Object:
        self.patches.append((f"{namespace}/{name}/{subresource}", patch))
        found = next(one for one in self.objects[resource] if one["metadata"]["namespace"] == namespace)
        return {**found, **patch, "metadata": {**found["metadata"], "resourceVersion": "99"}}


def a_pool_in(namespace: str) -> Object:
    pool = an_object("rm", spec={})
    return {**pool, "metadata": {**pool["metadata"], "namespace": namespace, "uid": namespace}}


class Running:
    def __init__(self, kube: RefusingKube, session: aiohttp.ClientSession) -> None:
        self.kube = kube
        self.looks: list[str] = []
        self.operator = Manager(kube, session, image="own:1", namespaces=[BAD, GOOD])  # type: ignore[arg-type]
        self.task = asyncio.create_task(self.operator.run())

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(30):
            while not holds():  # noqa: ASYNC110 - a pass tells nobody that it was made
                await asyncio.sleep(0.01)

    def not_served(self) -> dict[str, str]:
        found: dict[str, str] = self.operator.health()["namespaces_not_served"]
        return found


@pytest.fixture
async def running(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Running]:
    for module, name in ((manager, "ACTING_SECONDS"), (namespaces, "LOOK_SECONDS")):
        monkeypatch.setattr(module, name, 0.02)
    monkeypatch.setattr(reflector, "SHORTEST_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(reflector, "LONGEST_PAUSE_SECONDS", 0.02)
    kube = RefusingKube()
    kube.objects[resources.POOLS] = [a_pool_in(BAD), a_pool_in(GOOD)]
    async with aiohttp.ClientSession() as session:
        running = Running(kube, session)

        async def reconcile(self: pool_reconciler.PoolReconciler, acting: Acting, *, pools: int) -> float | None:
            running.looks.append(self.key[0])
            return 60.0

        monkeypatch.setattr(pool_reconciler.PoolReconciler, "reconcile", reconcile)
        yield running
        running.task.cancel()


async def test_a_namespace_that_refuses_one_kind_keeps_no_other_from_being_served(running: Running) -> None:
    await running.until(lambda: running.looks == [GOOD])
    await running.until(lambda: "pods is forbidden" in running.not_served().get(BAD, ""))
    assert GOOD not in running.not_served()
    assert running.operator.health()["ok"], "a restart would not help"


async def test_pools_of_a_namespace_that_is_not_served_say_so(running: Running) -> None:
    await running.until(lambda: bool(running.kube.patches))
    ((place, patch),) = running.kube.patches
    assert patch["metadata"] == {"resourceVersion": "1"}, "of a pool that somebody changed meanwhile nothing is written"
    (condition,) = patch["status"]["conditions"]
    assert (place, condition["type"], condition["reason"]) == ("bad/rm/status", "Degraded", "NamespaceNotServed")
    assert "pods: GET pods: pods is forbidden" in condition["message"]


async def test_what_is_refused_is_not_waited_for(running: Running) -> None:
    await running.until(lambda: "pods" in running.not_served().get(BAD, ""))
    await running.until(lambda: not running.operator.is_being_listed(GOOD))
    assert not running.operator.is_being_listed(BAD), "what is known of it is all that will come"


async def test_a_namespace_comes_back_by_itself(running: Running) -> None:
    await running.until(lambda: "pods" in running.not_served().get(BAD, ""))
    running.kube.refuses = False
    await running.until(lambda: BAD in running.looks)
    assert running.not_served() == {}


def test_what_a_status_says_besides_stays() -> None:
    ready = {
        "type": "Ready",
        "status": "True",
        "reason": "Serving",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    pool = {"status": {"conditions": [ready]}}
    now = datetime(2026, 1, 1, tzinfo=UTC)
    conditions = with_condition(pool, "pods: forbidden", now=now)
    assert conditions is not None
    assert [one["type"] for one in conditions] == ["Ready", "Degraded"]
    assert with_condition({"status": {"conditions": conditions}}, "pods: forbidden", now=now) is None
