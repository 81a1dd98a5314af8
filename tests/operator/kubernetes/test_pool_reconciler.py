"""Whole passes over one pool. The API server is a fake that keeps objects; routers and workers follow a script."""

from collections.abc import Awaitable, Callable
from itertools import count

import pytest
from support.pool_surroundings import KEY, URL, Surroundings

from rewardpool_api import names
from rewardpool_kube import resources
from rewardpool_kube.resources import Object, Resource
from rewardpool_operator.kubernetes import steps
from rewardpool_operator.kubernetes.cache.owned import OWNED
from rewardpool_operator.kubernetes.credentials import secret_reader
from rewardpool_operator.kubernetes.leader import Acting
from rewardpool_operator.kubernetes.queue.requeue import Pace
from rewardpool_operator.kubernetes.render.common import files_name
from rewardpool_operator.routers.admin import RouterAdmin
from rewardpool_worker.mounted import router_files

CALLS_OF_A_PASS = 12
"""Moments, two for each call to the API server, of a pass that reads the Secrets and writes objects and status."""


@pytest.fixture
async def around(monkeypatch: pytest.MonkeyPatch) -> Surroundings:
    around = Surroundings(monkeypatch)
    await around.bring_up()
    return around


def ready(around: Surroundings) -> int:
    pool = around.store.pool(KEY)
    assert pool is not None
    count: int = pool["status"]["readyReplicas"]
    return count


async def test_a_pool_is_brought_up_and_then_nothing_is_written(around: Surroundings) -> None:
    assert (ready(around), around.listed) == (1, [URL])
    for _ in range(3):
        assert await around.reconcile() == []


async def test_a_restarted_operator_writes_nothing(around: Surroundings) -> None:
    around.reconciler = around.a_reconciler()
    for _ in range(3):
        assert await around.reconcile() == []


async def test_a_restarted_operator_that_has_not_heard_the_routers_yet_writes_nothing(around: Surroundings) -> None:
    around.reconciler = around.a_reconciler()
    around.silent = True
    assert await around.reconcile() == []


async def test_a_router_that_falls_silent_keeps_its_list_until_its_silence_is_certain(around: Surroundings) -> None:
    around.silent = True
    assert await around.reconcile() == []
    assert ready(around) == 1


@pytest.mark.parametrize("mishap", ["away", "not leading"])
async def test_a_router_that_lost_its_list_gets_it_back_without_the_api_server(
    around: Surroundings, mishap: str
) -> None:
    around.listed.clear()
    around.kube.away = mishap == "away"
    assert await around.reconcile(Acting.ROUTERS) == []
    assert around.listed == [URL]


async def test_a_deleted_secret_comes_back_with_its_keys(around: Surroundings) -> None:
    before = around.kube.objects.pop((resources.SECRETS, "rm-key"))
    service = around.kube.objects[resources.SERVICES, "rm-router"]
    owners = [owner for owner in service["metadata"]["ownerReferences"] if owner["name"] != "rm-key"]
    # What the garbage collector does.
    metadata = {**service["metadata"], "ownerReferences": owners}
    around.store.put(resources.SERVICES, around.kube.keep(resources.SERVICES, {**service, "metadata": metadata}))
    assert await around.reconcile() == ["create Secret", "apply Service"]
    assert around.kube.objects[resources.SECRETS, "rm-key"]["data"] == before["data"]


async def test_a_pool_with_fields_of_a_newer_crd_is_looked_after(around: Surroundings) -> None:
    pool = around.kube.objects[resources.POOLS, "rm"]
    newer = {"spec": {**pool["spec"], "rollout": {"canary": {"percent": 5}}}}
    metadata = {**pool["metadata"], "generation": 2}
    around.store.put(resources.POOLS, around.kube.keep(resources.POOLS, {**pool, **newer, "metadata": metadata}))
    await around.reconcile()
    assert around.kube.objects[resources.POOLS, "rm"]["status"]["observedGeneration"] == 2


async def test_a_pool_that_is_gone_has_no_next_pass(around: Surroundings) -> None:
    around.store.forget(resources.POOLS, *KEY)
    assert await around.reconciler.reconcile(Acting.FULL, pools=1) is None


async def test_nothing_is_made_again_for_a_pool_that_is_gone(around: Surroundings) -> None:
    del around.kube.objects[resources.POOLS, "rm"]
    around.store.forget(resources.SERVICES, "rl", "rm-router")
    before = list(around.kube.writes)
    assert await around.reconciler.reconcile(Acting.FULL, pools=1) is None
    assert (around.store.pool(KEY), around.kube.writes) == (None, before)


async def test_a_pool_that_is_gone_and_left_its_objects_is_forgotten(around: Surroundings) -> None:
    """As after `kubectl delete --cascade=orphan`: the status has nowhere to go."""
    around.declare(replicas=2)
    del around.kube.objects[resources.POOLS, "rm"]
    assert [await around.reconciler.reconcile(Acting.FULL, pools=1) for _ in range(3)][-1] is None
    assert around.store.pool(KEY) is None


@pytest.mark.parametrize("restarted", [False, True])
async def test_the_lists_of_a_deleted_pool_that_a_finalizer_keeps_are_kept(
    around: Surroundings, restarted: bool
) -> None:
    """Its pods serve until the last finalizer is gone; nothing else of it is written."""
    metadata = {**around.pool["metadata"], "deletionTimestamp": "2026-01-01T12:00:00Z", "finalizers": ["a.b/c"]}
    around.store.put(resources.POOLS, around.kube.keep(resources.POOLS, {**around.pool, "metadata": metadata}))
    around.store.forget(resources.SERVICES, *KEY[:1], "rm-router")
    if restarted:
        around.reconciler = around.a_reconciler()
    around.listed.clear()
    assert [write for _ in range(6) for write in await around.reconcile()] == []
    assert around.listed == [URL]


async def test_what_a_former_pool_left_is_in_the_way_until_it_is_collected(around: Surroundings) -> None:
    around.make_anew(told=True)
    former = {ref: found for ref, found in around.kube.objects.items() if ref[0] in (*OWNED, resources.SECRETS)}
    for _ in range(3):
        await around.reconcile()
    assert {ref: around.kube.objects[ref] for ref in former} == former
    around.collect()
    around.reconciler = around.a_reconciler()
    for _ in range(3):
        await around.reconcile()
    assert {
        owner["uid"] for owner in around.kube.objects[resources.SECRETS, "rm-key"]["metadata"]["ownerReferences"]
    } == {"another"}


@pytest.mark.parametrize(
    ("resource", "name"),
    [
        (resources.SECRETS, "rm-key"),
        (resources.SECRETS, "rm-router-admin"),
        (resources.SERVICES, "rm-router"),
        (resources.CONFIG_MAPS, files_name(router_files())),
        (resources.DEPLOYMENTS, "rm-router"),
    ],
)
@pytest.mark.parametrize("labels", [{}, {names.LABEL_POOL: "rm"}], ids=["unlabelled", "labelled"])
@pytest.mark.parametrize("owners", [[], [{"kind": "Job", "name": "a", "uid": "a", "controller": True}]])
async def test_nothing_is_deployed_while_an_object_of_somebody_else_is_in_the_way(
    monkeypatch: pytest.MonkeyPatch, resource: Resource, name: str, labels: Object, owners: list[Object]
) -> None:
    around = Surroundings(monkeypatch)
    monkeypatch.setattr(steps, "SHORTEST_PAUSE_SECONDS", 0.0)
    planted = around.plant(resource, name, labels=labels, owners=owners, data={"key": "cGxhbnRlZA=="})
    for _ in range(4):
        await around.reconcile()
    assert around.kube.objects[resource, name] == planted
    assert not [ref for ref in around.kube.objects if ref[0] == resources.DEPLOYMENTS and ref != (resource, name)]
    degraded = around.condition("Degraded")
    assert (degraded["reason"], around.pool["status"].get("url")) == ("NameTaken", None)
    assert name in degraded["message"]
    del around.kube.objects[resource, name]
    around.store.forget(resource, "rl", name)
    await around.bring_up()
    assert around.condition("Degraded")["status"] == "False"
    assert around.pool["status"]["url"]


async def test_nothing_is_made_again_for_a_pool_that_was_made_anew(around: Surroundings) -> None:
    pool = around.kube.objects[resources.POOLS, "rm"]
    around.kube.keep(resources.POOLS, {**pool, "metadata": {**pool["metadata"], "uid": "another"}})
    around.store.forget(resources.SERVICES, "rl", "rm-router")
    assert await around.reconciler.reconcile(Acting.FULL, pools=1) is None


@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize("moment", range(CALLS_OF_A_PASS))
async def test_a_pool_made_anew_during_a_pass_has_its_own_status_and_keys(
    around: Surroundings, moment: int, told: bool
) -> None:
    def keys() -> set[str]:
        secrets = (item for (kind, _), item in around.kube.objects.items() if kind == resources.SECRETS)
        return {value for secret in secrets for value in secret["data"].values()}

    before, moments = keys(), count()

    def make_anew() -> None:
        if next(moments) == moment:
            around.make_anew(told=told)

    around.declare(replicas=2, router={"requestTimeoutSeconds": 7})
    around.reconciler = around.a_reconciler()
    around.kube.meanwhile = make_anew
    await around.reconcile()
    assert around.pool["metadata"]["uid"] == "another"
    assert around.pool["status"] == {}
    around.store.put(resources.POOLS, around.pool)
    around.collect()
    for _ in range(8):
        await around.reconcile()
    assert around.pool["status"]["observedGeneration"] == 1
    assert not keys() & before


@pytest.mark.parametrize("away", [True, False])
async def test_a_pass_that_fails_comes_again_soon(
    around: Surroundings, monkeypatch: pytest.MonkeyPatch, away: bool
) -> None:
    around.kube.away = away
    around.reconciler = around.a_reconciler()
    broken: Callable[..., Awaitable[None]] = _raises
    monkeypatch.setattr(RouterAdmin, "observe", broken)
    again = await around.reconciler.reconcile(Acting.FULL, pools=1000)
    assert again is not None
    assert 0.5 < again < 2.0


@pytest.mark.parametrize("restarted", [True, False])
async def test_passes_keep_their_pace_while_no_secret_may_be_read(
    around: Surroundings, monkeypatch: pytest.MonkeyPatch, restarted: bool
) -> None:
    """A reading that is due has a pass come at once, and one that may not read would have the next one come at once."""
    monkeypatch.setattr(secret_reader, "PACE", Pace(0.0, 0.0, 1))
    if restarted:
        around.reconciler = around.a_reconciler()
    around.kube.away = True
    again = await around.reconciler.reconcile(Acting.ROUTERS, pools=1)
    assert again is not None
    assert again > 0.5


async def _raises(*_: object) -> None:
    raise ZeroDivisionError("a defect")
