"""What an observer remembers from look to look. Its routers follow a script, and the clock is the test's own."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from support.kube_builders import a_pod, a_pool, an_exposed_router

from rewardpool_control.autoscaler.signals import STALE_SECONDS, Throughput
from rewardpool_control.decide.load import missing_metrics
from rewardpool_control.snapshot import RegisteredWorker, Router, Snapshot
from rewardpool_operator.kubernetes.cache.objects import Objects
from rewardpool_operator.kubernetes.credentials.keys import Keys
from rewardpool_operator.kubernetes.credentials.tls import PLAIN
from rewardpool_operator.kubernetes.observe import Observer, snapshot_without_routers
from rewardpool_operator.kubernetes.polls import probes, reading
from rewardpool_operator.kubernetes.polls.reading import Polling
from rewardpool_operator.probe import ProbeResult
from rewardpool_operator.routers.admin import RouterAdmin

URL = "http://10.0.0.7:8000"
KEYS = Keys(pool="the-key-of-the-pool-0", next="the-next-key-of-it-0", admin="a-routers-own-key-0")


class Watched:
    """A pool with a worker and a router that answers six requests a second, until it falls silent."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.silent = False
        self.asked: list[str] = []
        self.router = an_exposed_router(ip="10.0.0.8")
        session: Any = None
        self._observer = Observer(Polling(session=session, clock=lambda: self.now))
        monkeypatch.setattr(RouterAdmin, "observe", lambda admin, name: self._observed(admin, name))
        monkeypatch.setattr(probes, "probe_score", self._probed)
        monkeypatch.setattr(reading, "PATIENCE_SECONDS", 0.01)

    async def observe(self, *pods: dict[str, Any]) -> Snapshot:
        pool = a_pool()
        objects = Objects(pool=pool.model_dump(mode="json", by_alias=True), pods=(self.router, *pods))
        return await self._observer.snapshot(pool, objects, keys=KEYS, tls=PLAIN, revision="new")

    async def _observed(self, admin: RouterAdmin, name: str) -> Router:
        self.asked.append(admin._url)
        if self.silent:
            await asyncio.Event().wait()
        entry = RegisteredWorker(id="w0", url=URL, in_flight=4, answered=int(6 * self.now))
        return Router(name=name, answering=True, registered=(entry,), waiting=0)

    async def _probed(self, *_: Any, **__: Any) -> ProbeResult:
        return ProbeResult(ok=True, max_model_len=4096)

    def close(self) -> None:
        self._observer.close()


@pytest.fixture
async def watched(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Watched]:
    watched = Watched(monkeypatch)
    yield watched
    watched.close()


async def test_figures_of_a_router_that_hangs_hold_for_a_while_and_not_for_ever(watched: Watched) -> None:
    await watched.observe()
    watched.silent, watched.now = True, STALE_SECONDS
    assert missing_metrics(await watched.observe()) is None
    watched.now = STALE_SECONDS + 1
    assert missing_metrics(await watched.observe()) == "router r0 has given no metrics for more than 10 s"


async def test_a_router_pod_with_a_new_address_is_asked_there_and_nowhere_else(watched: Watched) -> None:
    await watched.observe()
    watched.silent = True
    await watched.observe()
    watched.router = an_exposed_router(ip="10.0.0.99", containerID="c://again")
    watched.silent, watched.asked = False, []
    (router,) = (await watched.observe()).routers
    assert watched.asked == ["http://10.0.0.99:8080"]
    assert router.answering


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"ip": "10.0.0.99"}, id="address"),
        pytest.param({"containerID": "c://again"}, id="container"),
        pytest.param({"uid": "another"}, id="pod of the same name"),
    ],
)
async def test_what_a_router_said_is_forgotten_with_its(watched: Watched, change: dict[str, str]) -> None:
    await watched.observe()
    uid = change.pop("uid", None)
    watched.router = an_exposed_router(**{"ip": "10.0.0.8", **change})
    watched.router["metadata"]["uid"] = uid or watched.router["metadata"]["uid"]
    watched.silent = True
    (router,) = (await watched.observe()).routers
    assert not router.answering
    assert router.registered is None


async def test_a_router_that_has_no_address_any_more_is_not_called(watched: Watched) -> None:
    await watched.observe()
    watched.router = an_exposed_router(ip=None)
    await watched.observe()
    assert watched._observer.router_admin("r0") is None


async def test_a_router_is_silent_from_the_question_on_that_it_did_not_answer(watched: Watched) -> None:
    await watched.observe()
    watched.now = 15.0
    (heard,) = (await watched.observe()).routers
    watched.silent, watched.now = True, 30.0
    (late,) = (await watched.observe()).routers
    watched.now = 36.0
    (silent,) = (await watched.observe()).routers
    assert [heard.silent_seconds, late.silent_seconds, silent.silent_seconds] == [0.0, 0.0, 6.0]


async def test_a_workers_start_and_throughput_are_measured(watched: Watched) -> None:
    await watched.observe()
    watched.now = 1.0
    await watched.observe(a_pod("w0", started=False))
    for second in range(31, 36):
        watched.now = float(second)
        seen = await watched.observe(a_pod("w0"))
    (worker,) = seen.workers
    assert worker.start_seconds == 30.0
    assert worker.throughput == Throughput(worker="w0", rate=6.0, in_flight=4)


async def test_the_last_words_of_users_code_tell_no_key(watched: Watched) -> None:
    said = f"Traceback: keys {KEYS.pool} and {KEYS.next}"
    ended = {"terminated": {"exitCode": 1, "message": said}}
    pod = a_pod(started=False, state=ended)
    (worker,) = (await watched.observe(pod)).workers
    assert worker.failure is not None
    assert "Traceback: keys [key] and [key]" in worker.failure.message


def test_the_last_words_of_users_code_are_not_quoted_while_no_key_is_known() -> None:
    pool = a_pool()
    pod = a_pod(started=False, state={"terminated": {"exitCode": 1, "message": f"Traceback: key {KEYS.pool}"}})
    objects = Objects(pool=pool.model_dump(mode="json", by_alias=True), pods=(pod,))
    (worker,) = snapshot_without_routers(pool, objects).workers
    assert worker.failure is not None
    assert worker.failure.message == "its last words are not quoted while the pool's keys cannot be read"
