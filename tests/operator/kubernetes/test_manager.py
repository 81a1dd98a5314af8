"""Which pools are looked at, and when. The API server is a fake that knows some pools and no writes."""

import asyncio
from collections.abc import AsyncIterator, Callable

import aiohttp
import pytest
from support.scripted_kube import NAMESPACE, ScriptedKube, an_object

from rewardpool_kube import resources
from rewardpool_kube.answers import WatchEvent
from rewardpool_kube.errors import KubeError
from rewardpool_kube.resources import Object
from rewardpool_operator.kubernetes import manager, pool_reconciler
from rewardpool_operator.kubernetes.cache import reflector
from rewardpool_operator.kubernetes.leader import Acting
from rewardpool_operator.kubernetes.manager import Manager

Looks = list[tuple[str, Acting]]


def a_pool_object(name: str = "rm", *, version: int = 1) -> Object:
    return an_object(name, version=version, spec={})


class Running:
    """An operator whose reconcilers only note that they were to look."""

    def __init__(self, kube: ScriptedKube, session: aiohttp.ClientSession) -> None:
        self.kube = kube
        self.acting = Acting.FULL
        self.looks: Looks = []
        self.operator = Manager(kube, session, image="own:1", namespaces=[NAMESPACE], acting=lambda: self.acting)  # type: ignore[arg-type]
        self.task = asyncio.create_task(self.operator.run())

    def saw(self, pool: Object) -> None:
        """Give the operator a pool, in the place of a watch."""
        self.operator._changed(self.operator.store.put(resources.POOLS, pool))

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(30):
            while not holds():  # noqa: ASYNC110 - a pass tells nobody that it was made
                await asyncio.sleep(0.01)


@pytest.fixture
async def running(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Running]:
    monkeypatch.setattr(manager, "ACTING_SECONDS", 0.02)
    kube = ScriptedKube()
    kube.objects[resources.POOLS] = [a_pool_object()]
    async with aiohttp.ClientSession() as session:
        running = Running(kube, session)

        async def reconcile(self: pool_reconciler.PoolReconciler, acting: Acting, *, pools: int) -> float | None:
            running.looks.append((self.key[1], acting))
            return 60.0 if running.operator.store.pool(self.key) else None

        monkeypatch.setattr(pool_reconciler.PoolReconciler, "reconcile", reconcile)
        yield running
        running.task.cancel()


async def test_a_pool_that_is_there_at_the_start_is_looked_at(running: Running) -> None:
    await running.until(lambda: running.looks == [("rm", Acting.FULL)])


async def test_a_watch_of_pools_that_is_refused_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reflector, "SHORTEST_PAUSE_SECONDS", 0.0)
    kube = ScriptedKube()
    kube.spoken_of = resources.POOLS
    for _ in range(5):
        kube.words.put_nowait(KubeError("watch", status=403, reason="Forbidden", message="no right to watch"))
    async with aiohttp.ClientSession() as session:
        running = Running(kube, session)
        await running.until(lambda: "rewardpools: watch" in str(running.operator.health()["namespaces_not_served"]))
        running.task.cancel()


async def test_an_owned_object_that_changed_has_its_pool_looked_at(running: Running) -> None:
    await running.until(lambda: len(running.looks) == 1)
    running.kube.words.put_nowait(WatchEvent("ADDED", an_object("files", version=11)))
    await running.until(lambda: len(running.looks) == 2)


async def test_a_pool_whose_claim_changed_has_the_others_of_its_budget_looked_at(running: Running) -> None:
    running.saw(sharing("rm", version=2))
    running.saw(sharing("other", version=3))
    await running.until(lambda: "other" in {name for name, _ in running.looks})
    running.saw(sharing("other", version=4, priority=1))
    await running.until(lambda: [name for name, _ in running.looks][-2:] == ["other", "rm"])


async def test_a_pool_that_was_made_anew_gets_a_reconciler_that_remembers_nothing(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[str | None] = []
    close = pool_reconciler.PoolReconciler.close

    def closing(self: pool_reconciler.PoolReconciler) -> None:
        closed.append(self.uid)
        close(self)

    monkeypatch.setattr(pool_reconciler.PoolReconciler, "close", closing)
    await running.until(lambda: len(running.looks) == 1)
    anew = a_pool_object(version=20)
    anew["metadata"]["uid"] = "another"
    running.saw(anew)
    await running.until(lambda: len(running.looks) == 2)
    assert closed == ["uid-rm"]


def sharing(name: str, *, version: int, priority: int = 0) -> Object:
    """A pool with a budget."""
    budget = {"name": "gpus", "maxReplicas": 4, "priority": priority}
    scaling = {"maxReplicas": 4, "policy": {"type": "External"}, "budget": budget}
    spec = {"model": {"source": "hf://org/model"}, "autoscaling": scaling}
    return an_object(name, version=version, spec=spec)


async def test_an_object_of_an_unknown_pool_starts_nothing(running: Running) -> None:
    await running.until(lambda: len(running.looks) == 1)
    running.kube.words.put_nowait(WatchEvent("ADDED", an_object("files", version=11, pool="unknown")))
    running.kube.words.put_nowait(WatchEvent("ADDED", an_object("files", version=12)))
    await running.until(lambda: len(running.looks) == 2)
    assert {name for name, _ in running.looks} == {"rm"}


async def test_a_version_that_is_known_starts_nothing_and_a_newer_one_does(running: Running) -> None:
    await running.until(lambda: len(running.looks) == 1)
    running.saw(a_pool_object())
    running.saw({**a_pool_object(version=2), "spec": {"replicas": 2}})
    await running.until(lambda: len(running.looks) == 2)


async def test_nothing_is_looked_at_while_somebody_else_leads_and_everything_once_this_one_does(
    running: Running,
) -> None:
    running.acting = Acting.NONE
    await running.until(lambda: running.operator.health()["pools"] == 1)
    await asyncio.sleep(0)
    looks = len(running.looks)
    running.saw(a_pool_object("other", version=5))
    running.acting = Acting.FULL
    await running.until(lambda: {name for name, _ in running.looks[looks:]} == {"rm", "other"})


async def test_an_operator_that_stops_acting_tells_no_more_of_its_pools(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    forgotten: list[tuple[str, str]] = []
    monkeypatch.setattr(manager.METRICS, "forget_pool", lambda *key: forgotten.append(key))
    await running.until(lambda: len(running.looks) == 1)
    running.acting = Acting.NONE
    await running.until(lambda: forgotten == [(NAMESPACE, "rm")])


async def test_only_routers_are_kept_right_while_the_api_server_is_away(running: Running) -> None:
    await running.until(lambda: len(running.looks) == 1)
    running.kube.away = True
    running.saw(a_pool_object("other", version=5))
    await running.until(lambda: ("other", Acting.ROUTERS) in running.looks)


async def test_a_dead_watch_is_told_and_an_api_server_that_is_away_is_none(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    await running.until(lambda: len(running.looks) == 1)
    running.kube.away = True
    assert running.operator.health()["ok"]
    monkeypatch.setattr(manager, "monotonic", lambda: 1e9)
    assert not running.operator.health()["ok"]


async def test_an_operator_that_has_ended_says_so(running: Running) -> None:
    await running.until(lambda: len(running.looks) == 1)
    running.task.cancel()
    await running.until(running.task.done)
    assert not running.operator.health()["ok"]


async def test_a_queue_that_is_stuck_is_told_unless_somebody_else_leads(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    await running.until(lambda: len(running.looks) == 1)
    monkeypatch.setattr(running.operator._workers, "oldest", lambda: manager.STUCK_SECONDS + 1)
    assert not running.operator.health()["ok"]
    running.acting = Acting.NONE
    assert running.operator.health()["ok"]
