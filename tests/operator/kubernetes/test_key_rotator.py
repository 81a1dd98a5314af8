"""Whom a rotation waits for, with workers that are stand-ins for the one question they are asked."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from support.kube_builders import a_pod, a_pool

from rewardpool_api import RewardPool, RewardPoolStatus, names
from rewardpool_api.status import AuthStatus, KeyRotation
from rewardpool_api.times import rfc3339
from rewardpool_operator.kubernetes import render
from rewardpool_operator.kubernetes.cache.objects import Objects
from rewardpool_operator.kubernetes.credentials.key_rotator import SYNC, KeyRotator, outdated_routers
from rewardpool_operator.kubernetes.credentials.keys import Keys
from rewardpool_operator.kubernetes.observe import snapshot_without_routers
from rewardpool_operator.kubernetes.polls.reading import Polling

KEY, NEXT = "k" * 20, "n" * 20


class Worker:
    """Takes these keys; counts how often it was asked."""

    def __init__(self) -> None:
        self.keys, self.asked = {KEY}, 0
        app = web.Application()
        app.router.add_get(names.LOAD_PATH, self._load)
        self.server = TestServer(app)

    async def _load(self, request: web.Request) -> web.Response:
        self.asked += 1
        _, _, key = request.headers.get("Authorization", "").partition(" ")
        return web.json_response({"in_flight": 0}, status=200 if key in self.keys else 401)

    def pod(self, name: str = "w0", **status: Any) -> dict[str, Any]:
        pod = a_pod(name, ip="127.0.0.1", **status)
        pod["spec"]["containers"][0]["ports"] = [{"name": "http", "containerPort": self.server.port}]
        return pod


@pytest.fixture
async def worker() -> AsyncIterator[Worker]:
    worker = Worker()
    await worker.server.start_server()
    yield worker
    await worker.server.close()


@pytest.fixture
async def rotator() -> AsyncIterator[KeyRotator]:
    async with aiohttp.ClientSession() as session:
        yield KeyRotator(Polling(session=session))


def pool(*, rotation: KeyRotation | None = None, **annotations: str) -> RewardPool:
    made = a_pool()
    metadata = made.metadata.model_copy(update={"annotations": annotations})
    status = RewardPoolStatus(auth=AuthStatus(secret_name="rm-key", rotation=rotation))
    return made.model_copy(update={"metadata": metadata, "status": status})


def objects(*pods: dict[str, Any], since: datetime | None = None, **keys: str) -> Objects:
    """What there is while the next key is being learnt, unless other keys are said."""
    said = Keys(**{"pool": KEY, "next": NEXT, "in_force": KEY, "admin": "a", "step_since": since or now(), **keys})  # type: ignore[arg-type]
    return Objects(pool={}, pods=pods, secrets=tuple(render.secrets(a_pool(), said)))


def now() -> datetime:
    return datetime.now(UTC)


async def test_the_key_changes_once_every_worker_takes_the_next_one(rotator: KeyRotator, worker: Worker) -> None:
    there = objects(worker.pod())
    assert (await rotator.reconcile(pool(), there, may_change=True)).pool == KEY
    worker.keys.add(NEXT)
    assert (await rotator.reconcile(pool(), there, may_change=True)).pool == NEXT


async def test_a_worker_that_takes_it_is_not_asked_again(rotator: KeyRotator, worker: Worker) -> None:
    worker.keys.add(NEXT)
    silent = a_pod("w1", ip="127.0.0.1", containerID="another")
    silent["spec"]["containers"][0]["ports"] = [{"name": "http", "containerPort": 9}]
    for _ in range(3):
        assert (await rotator.reconcile(pool(), objects(worker.pod(), silent), may_change=True)).pool == KEY
    assert worker.asked == 1


async def test_a_worker_that_leaves_is_not_waited_for(rotator: KeyRotator, worker: Worker) -> None:
    leaving = worker.pod()
    leaving["metadata"]["annotations"] = {names.ANNOTATION_DRAINING_SINCE: rfc3339(now())}
    assert (await rotator.reconcile(pool(), objects(leaving), may_change=True)).pool == NEXT


@pytest.mark.parametrize(("ago", "key"), [(timedelta(0), KEY), (SYNC + timedelta(seconds=1), NEXT)])
async def test_a_worker_that_is_starting_since_before_is_given_time_to_find_the_next_key(
    rotator: KeyRotator, worker: Worker, ago: timedelta, key: str
) -> None:
    starting = objects(worker.pod(started=False), since=now() - ago)
    assert (await rotator.reconcile(pool(), starting, may_change=True)).pool == key


async def test_a_worker_that_was_made_since_has_found_it(rotator: KeyRotator, worker: Worker) -> None:
    starting = worker.pod(started=False)
    starting["metadata"]["creationTimestamp"] = rfc3339(now() + timedelta(seconds=1))
    assert (await rotator.reconcile(pool(), objects(starting), may_change=True)).pool == NEXT


async def test_nothing_changes_while_nothing_can_be_written(rotator: KeyRotator) -> None:
    kept = await rotator.reconcile(pool(), objects(), may_change=False)
    assert (kept.pool, kept.next) == (KEY, NEXT)


async def test_the_snapshot_has_how_far_the_rotation_is(rotator: KeyRotator) -> None:
    asking = pool(**{names.ANNOTATION_ROTATE_KEY: "2"})
    settled = objects(next="", step_since=None)  # type: ignore[arg-type]
    await rotator.reconcile(asking, settled, may_change=True)
    seen = rotator.observed(snapshot_without_routers(asking, settled)).rotation
    assert seen is not None
    assert (seen.phase, seen.request) == ("Preparing", "2")


async def test_what_was_said_stays_while_nothing_can_be_written(rotator: KeyRotator) -> None:
    before = KeyRotation(phase="Changing", since=now(), request="2")
    await rotator.reconcile(pool(rotation=before), objects(), may_change=False)
    assert rotator.observed(snapshot_without_routers(pool(rotation=before), objects())).rotation == before


def a_router(name: str, keys: Keys, *, ready: str = "True") -> dict[str, Any]:
    pod = a_pod(name, component=names.COMPONENT_ROUTER)
    pod["metadata"]["annotations"] = {names.ANNOTATION_KEYS: keys.fingerprint}
    pod["status"]["conditions"] = [{"type": "Ready", "status": ready}]
    return pod


OLD, NEW = Keys(pool=KEY, admin="a"), Keys(pool=NEXT, admin="b")


@pytest.mark.parametrize(
    ("routers", "outdated"),
    [
        ([a_router("r0", NEW)], ()),
        ([a_router("r0", NEW), a_router("r1", OLD)], ("r1",)),
        ([a_router("r0", NEW, ready="False")], ("r0",)),
        ([], ("1 to be made",)),
    ],
)
def test_a_change_is_over_when_there_are_new_routers_alone(routers: list[Any], outdated: tuple[str, ...]) -> None:
    assert outdated_routers(a_pool(), Objects(pool={}, pods=tuple(routers)), NEW) == outdated
