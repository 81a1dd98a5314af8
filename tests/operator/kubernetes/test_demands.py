"""What Leases announce, and what becomes of them. The API server is a fake that notes what is written."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from rewardpool_api import names
from rewardpool_api.demand import MAX_BYTES, Demand, lease_manifest, lease_name
from rewardpool_api.times import rfc3339
from rewardpool_control.announcements import RETENTION, Renewals
from rewardpool_control.autoscaler.signals import Announcement
from rewardpool_kube import resources
from rewardpool_kube.errors import KubeError, KubeUnreachableError
from rewardpool_kube.resources import Object, Resource
from rewardpool_operator.kubernetes.cache.owned import selector_of, trimmed
from rewardpool_operator.kubernetes.cache.store import Store
from rewardpool_operator.kubernetes.demands import PATIENCE, Demands, Strays, announcements_of

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
KEY = ("rl", "rm")


def a_lease(
    job: str = "grpo", *, pool: str = "rm", at: datetime = NOW, version: int = 1, said: Any = None, **changed: Any
) -> Object:
    """As the API server has it; `changed` by dotted path, with None for what is to be missing."""
    demand = Demand(job=job, phase="Rollout")
    lease = lease_manifest(demand, pool=pool, namespace="rl", pool_uid="u", seconds=15, now="2001-01-01T00:00:00Z")
    lease["metadata"] |= {
        "uid": f"uid-{job}",
        "resourceVersion": str(version),
        "creationTimestamp": "2026-01-01T11:00:00Z",
        "managedFields": [{"time": "2026-01-01T11:00:00Z"}, {"time": rfc3339(at.replace(microsecond=0))}, {}],
    }
    if said is not None:
        lease["metadata"]["annotations"][names.ANNOTATION_DEMAND] = said
    for path, value in changed.items():
        part, _, name = path.partition("__")
        lease[part][name] = value
    return lease


def heard(lease: Object, *, now: datetime = NOW) -> Announcement:
    (one,) = announcements_of([trimmed(resources.LEASES, lease)], renewals=Renewals(), now=now)
    return one


def json_of(**fields: Any) -> str:
    return json.dumps({"job": "grpo", "phase": "Rollout", **fields})


def test_a_lease_as_trainers_apply_it_is_a_demand() -> None:
    one = heard(a_lease(), now=NOW + 3 * SECOND)
    assert (one.name, one.renewed, one.seconds, one.problem) == ("demand-rm.grpo", NOW, 15, None)
    assert one.demand == Demand(job="grpo", phase="Rollout")


def test_the_trainers_clock_counts_for_nothing() -> None:
    assert heard(a_lease(spec__renewTime="2099-01-01T00:00:00Z")).renewed == NOW


def test_a_server_whose_clock_is_ahead_is_taken_to_mean_now() -> None:
    assert heard(a_lease(at=NOW + 3600 * SECOND)).renewed == NOW


def test_without_a_word_of_the_server_it_is_as_old_as_its_making() -> None:
    assert heard(a_lease(metadata__managedFields=[])).renewed == NOW - timedelta(hours=1)


@pytest.mark.parametrize(
    ("lease", "problem"),
    [
        (a_lease(said="{"), "no JSON"),
        (a_lease(said="[" * 2000), "no JSON"),
        (a_lease(said="[]"), "it: "),
        (a_lease(said=json_of(phase="Sleeping")), "phase: "),
        (a_lease(said=json_of(startsInSeconds=float("nan"))), "startsInSeconds: "),
        (a_lease(said=json_of(everySeconds=float("inf"))), "everySeconds: "),
        (a_lease(said=json_of(startsInSeconds=-1)), "startsInSeconds: "),
        (a_lease(said=json_of(samples=-1)), "samples: "),
        (a_lease(said=json_of(job="../x")), "job: "),
        (a_lease(said=json_of(filler="x" * MAX_BYTES)), "more than 4096 characters"),
        (a_lease(metadata__annotations=None), "no annotation rewardpool.dev/demand"),
        (a_lease(spec__holderIdentity="other"), "job: it is grpo, and spec.holderIdentity is other"),
        (a_lease(spec__holderIdentity=None), "spec.holderIdentity is empty"),
        (a_lease(metadata__name="demand-rm.other"), "job: the Lease of job grpo is called demand-rm.grpo"),
        (a_lease(metadata__name="demand-rm-grpo"), "job: the Lease of job grpo is called demand-rm.grpo"),
    ],
)
def test_nonsense_is_told_with_what_is_wrong(lease: Object, problem: str) -> None:
    one = heard(lease)
    assert one.demand is None
    assert problem in (one.problem or "")


def test_a_field_of_a_newer_trainer_is_no_nonsense() -> None:
    assert heard(a_lease(said=json_of(mood="good"))).problem is None


def test_a_lease_without_a_duration_lasts_as_long_as_usual_and_that_is_told() -> None:
    one = heard(a_lease(spec__leaseDurationSeconds=None))
    assert (one.seconds, bool(one.note)) == (15, True)


def test_only_leases_of_demands_are_asked_for() -> None:
    assert selector_of(resources.LEASES) == "rewardpool.dev/pool,rewardpool.dev/component=demand"


class FakeKube:
    """Notes what is deleted and created; refuses a version that is not the newest one, and an event it has."""

    def __init__(self, newest: Mapping[str, int] | None = None, *, forbids: bool = False) -> None:
        self.deleted: list[str] = []
        self.asked = self.got = 0
        self.lease: Object | None = None
        """What it has, whatever the watch said."""
        self.away = False
        self._forbids = forbids
        self.events: list[Object] = []
        self._newest = newest or {}

    async def get(self, resource: Resource, namespace: str, name: str) -> Object | None:
        self.got += 1
        if self.away:
            raise KubeUnreachableError("nobody there")
        return self.lease

    async def delete(self, resource: Resource, namespace: str, name: str, *, version: str) -> None:
        self.asked += 1
        if self._forbids:
            raise KubeError(f"delete {name}", status=403, reason="Forbidden", message="no")
        if str(self._newest.get(name, version)) != version:
            raise KubeError(f"delete {name}", status=409, reason="Conflict", message="")
        self.deleted.append(name)

    async def create(self, resource: Resource, manifest: Object) -> Object:
        if manifest["metadata"]["name"] in {event["metadata"]["name"] for event in self.events}:
            raise KubeError("create", status=409, reason="AlreadyExists", message="")
        self.events.append(manifest)
        return manifest


class World:
    """The Leases of one namespace, with its pool or without."""

    def __init__(self, *leases: Object, kube: FakeKube | None = None, pool: bool = True) -> None:
        self.kube, self.store = kube or FakeKube(), Store()
        if pool:
            metadata = {"namespace": "rl", "name": "rm", "uid": "u", "resourceVersion": "1"}
            self.store.put(resources.POOLS, {"metadata": metadata})
        for lease in leases:
            self.store.put(resources.LEASES, lease)
        self.demands = Demands(self.kube, self.store)  # type: ignore[arg-type]
        self.strays = self.a_stray_keeper()

    def a_stray_keeper(self) -> Strays:
        return Strays(self.kube, self.store, may_act=lambda: True)  # type: ignore[arg-type]

    def leases(self) -> tuple[Object, ...]:
        objects = self.store.objects(KEY)
        assert objects is not None
        return objects.leases

    async def observe(self, *, at: datetime, away: bool = False) -> list[str]:
        """The jobs that are live."""
        return [one.name for one in await self.demands.observe(self.leases(), now=at, away=away) if one.is_live(at)]

    async def remove_old(self, *, at: datetime) -> list[str]:
        await self.observe(at=at)
        await self.demands.remove_old(self.leases(), now=at)
        return self.kube.deleted


def test_a_renewal_is_news_for_the_pool_and_a_word_of_the_same_second_is_not() -> None:
    world = World(a_lease())
    assert world.store.put(resources.LEASES, a_lease(version=2)) == []
    assert world.store.put(resources.LEASES, a_lease(version=3, at=NOW + 5 * SECOND)) == [KEY]


def test_a_lease_is_no_object_that_a_manifest_is_compared_with() -> None:
    objects = World(a_lease()).store.objects(KEY)
    assert objects is not None
    assert len(objects.leases) == 1
    assert "Lease" not in objects.others


async def test_what_nobody_renews_lapses() -> None:
    world = World(a_lease())
    world.kube.lease = a_lease()
    assert await world.observe(at=NOW + 14 * SECOND) == ["demand-rm.grpo"]
    for seconds in (15, 16):
        assert await world.observe(at=NOW + seconds * SECOND) == []
    assert world.kube.got == 1


async def test_a_renewal_that_a_dead_watch_did_not_tell_is_asked_for() -> None:
    world = World(a_lease())
    await world.observe(at=NOW)
    world.kube.lease = a_lease(version=2, at=NOW + 15 * SECOND)
    assert await world.observe(at=NOW + 16 * SECOND) == ["demand-rm.grpo"]


async def test_one_that_was_deleted_unseen_is_gone() -> None:
    world = World(a_lease())
    await world.observe(at=NOW)
    assert await world.observe(at=NOW + 16 * SECOND) == []
    assert world.leases() == ()


async def test_nothing_lapses_while_nobody_can_say_whether_it_did() -> None:
    world = World(a_lease())
    await world.observe(at=NOW)
    world.kube.away = True
    assert await world.observe(at=NOW + 16 * SECOND) == ["demand-rm.grpo"]


async def test_nothing_lapses_while_nobody_can_renew_it() -> None:
    world = World(a_lease())
    world.kube.lease = a_lease()
    for seconds in range(0, 100, 5):
        assert await world.observe(at=NOW + seconds * SECOND, away=seconds > 0) == ["demand-rm.grpo"]
    assert await world.observe(at=NOW + 109 * SECOND) == ["demand-rm.grpo"]
    assert await world.observe(at=NOW + 110 * SECOND) == []


async def test_an_outage_brings_back_nothing_that_had_lapsed() -> None:
    world = World(a_lease())
    await world.observe(at=NOW + 20 * SECOND)
    assert await world.observe(at=NOW + 25 * SECOND, away=True) == []


async def test_what_lapsed_long_ago_and_what_has_ended_is_removed_and_nothing_else() -> None:
    long_ago = NOW - RETENTION - 16 * SECOND
    ended = json_of(job="done", phase="Ended")
    world = World(a_lease("old", at=long_ago), a_lease("lapsed", at=NOW - 20 * SECOND), a_lease("done", said=ended))
    assert sorted(await world.remove_old(at=NOW)) == ["demand-rm.done", "demand-rm.old"]
    assert [lease["metadata"]["name"] for lease in world.leases()] == ["demand-rm.lapsed"]


async def test_one_that_was_renewed_meanwhile_is_left_alone() -> None:
    world = World(a_lease(at=NOW - timedelta(hours=1)), kube=FakeKube(newest={"demand-rm.grpo": 2}))
    assert await world.remove_old(at=NOW) == []
    assert len(world.leases()) == 1


async def test_a_right_that_is_missing_is_not_asked_for_with_every_look() -> None:
    world = World(a_lease(at=NOW - timedelta(hours=1)), kube=FakeKube(forbids=True))
    for seconds in (0, 5, 59, 60):
        await world.remove_old(at=NOW + seconds * SECOND)
    assert world.kube.asked == 2


async def test_a_lease_of_another_name_is_never_removed_whatever_its_labels_say() -> None:
    election = a_lease(at=NOW - timedelta(hours=1), metadata__name="some-controller")
    assert await World(election).remove_old(at=NOW) == []


def told(world: World) -> list[tuple[str, str]]:
    return [(event["reason"], event["regarding"]["name"]) for event in world.kube.events]


async def test_a_demand_for_a_pool_that_does_not_come_is_told_once() -> None:
    world = World(a_lease(), pool=False)
    await world.strays.reconcile(now=NOW)
    assert told(world) == []
    for seconds in (0, 5):
        await world.strays.reconcile(now=NOW + PATIENCE + seconds * SECOND)
    assert told(world) == [("NoSuchPool", "demand-rm.grpo")]
    assert "no RewardPool rl/rm" in world.kube.events[0]["note"]


async def test_the_next_operator_does_not_tell_it_again() -> None:
    world = World(a_lease(), pool=False)
    for strays in (world.strays, world.a_stray_keeper()):
        await strays.reconcile(now=NOW)
        await strays.reconcile(now=NOW + PATIENCE)
    assert len(told(world)) == 1


async def test_nothing_is_told_where_the_pool_is() -> None:
    world = World(a_lease())
    await world.strays.reconcile(now=NOW)
    await world.strays.reconcile(now=NOW + PATIENCE)
    assert told(world) == []


async def test_a_flood_of_demands_for_no_pool_is_told_in_portions() -> None:
    world = World(*(a_lease(f"job-{number}") for number in range(100)), pool=False)
    await world.strays.reconcile(now=NOW)
    await world.strays.reconcile(now=NOW + PATIENCE)
    assert len(told(world)) == 10


async def test_an_old_demand_for_no_pool_is_removed() -> None:
    world = World(a_lease(at=NOW - timedelta(hours=1)), pool=False)
    await world.strays.reconcile(now=NOW)
    assert world.kube.deleted == [lease_name("rm", "grpo")]
    assert told(world) == []
