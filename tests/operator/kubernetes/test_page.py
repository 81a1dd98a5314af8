"""The page of a cluster: whose a token is, who sees what, and what of pods and routers is shown."""

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import ClientSession, ClientTimeout, web
from aiohttp.test_utils import TestServer
from support.kube_builders import a_pod
from support.ports import free_port

from rewardpool_api import names
from rewardpool_kube import resources
from rewardpool_kube.resources import Object
from rewardpool_operator.kubernetes.cache.store import Store
from rewardpool_operator.kubernetes.page.access import TokenAccess
from rewardpool_operator.kubernetes.page.api_server import Address, ApiServer, ApiServerAwayError
from rewardpool_operator.kubernetes.page.offer import Offer
from rewardpool_operator.kubernetes.page.reviews import (
    REMEMBER_SECONDS,
    AnswerCache,
    ReviewRefusedError,
    Reviews,
    User,
    is_allowed,
    user_of,
)
from rewardpool_operator.kubernetes.page.routers import MAX_ROUTERS, RouterCounts
from rewardpool_operator.kubernetes.page.source import ClusterSource
from rewardpool_operator.kubernetes.page.workers import shown_worker
from rewardpool_operator.kubernetes.stored_pool import StoredPool
from rewardpool_page import history
from rewardpool_page.source import NotShownError, Seen
from rewardpool_page.view import Detail, detail_of

USERS = {
    "of-anna": {"username": "anna", "groups": ["system:authenticated"], "extra": {"a": ["b"]}},
    "of-admin": {"username": "admin"},
}
RIGHTS = {
    ("of-anna", "list", "rewardpools", "rl"),
    ("of-anna", "list", "pods", "rl"),
    ("of-admin", "list", "rewardpools", ""),
}
ANNA = User(name="anna", groups=("system:authenticated",), extra=(("a", ("b",)),))
METRICS = """smg_router_request_duration_seconds_bucket{endpoint="other",le="+Inf"} 4
smg_router_request_duration_seconds_sum{endpoint="other"} 0.5
smg_router_request_duration_seconds_count{endpoint="other"} 4
smg_worker_requests_active{worker="http://10.0.0.7:8000"} 3
"""


class StandInApiServer:
    """Answers reviews of tokens by the two tables above, and has the log of w0."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.refuses = 0
        """With this status."""
        self.log = ""

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_post("/apis/authentication.k8s.io/v1/selfsubjectreviews", self._user)
        app.router.add_post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", self._right)
        app.router.add_get("/api/v1/namespaces/rl/pods/w0/log", self._log)
        app.router.add_get(resources.POOLS.path("rl"), self._pools)
        return app

    def _token(self, request: web.Request) -> str:
        scheme, _, token = request.headers["Authorization"].partition(" ")
        assert scheme == "Bearer"
        self.asked.append(token)
        if self.refuses:
            raise _refusal(self.refuses)
        if token not in USERS:
            raise web.HTTPUnauthorized
        return token

    async def _user(self, request: web.Request) -> web.Response:
        token = self._token(request)
        assert await request.json() == {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        return web.json_response({"status": {"userInfo": USERS[token]}}, status=201)

    async def _right(self, request: web.Request) -> web.Response:
        token, what = self._token(request), (await request.json())["spec"]["resourceAttributes"]
        allowed = (token, what["verb"], what["resource"], what["namespace"]) in RIGHTS
        return web.json_response({"status": {"allowed": allowed}}, status=201)

    async def _log(self, request: web.Request) -> web.Response:
        if self._token(request) != "of-anna":
            return web.json_response({"kind": "Status", "message": "pods/log is forbidden"}, status=403)
        assert request.query["container"] == "worker"
        return web.Response(text=self.log)

    async def _pools(self, request: web.Request) -> web.Response:
        if self._token(request) != "of-anna":
            return web.json_response({"kind": "Status", "message": "rewardpools is forbidden"}, status=403)
        name = request.query["fieldSelector"].removeprefix("metadata.name=")
        items = [pool_object("rm", replicas=3)] if name == "rm" else []
        return web.json_response({"apiVersion": names.API_VERSION, "kind": "RewardPoolList", "items": items})


def _refusal(status: int) -> Exception:
    return {403: web.HTTPForbidden, 500: web.HTTPInternalServerError}[status](text="of-anna")


@pytest.fixture
def kube() -> StandInApiServer:
    return StandInApiServer()


@pytest.fixture
async def server(kube: StandInApiServer) -> AsyncIterator[ApiServer]:
    async with TestServer(kube.app()) as served, ApiServer.open(Address(url=str(served.make_url("")))) as server:
        yield server


def reviews_of(server: ApiServer, now: list[float] | None = None) -> Reviews:
    times = now or [0.0]
    return Reviews(server, clock=lambda: times[0])


@pytest.mark.parametrize(
    ("status", "user"),
    [
        ({"userInfo": USERS["of-anna"]}, ANNA),
        ({"userInfo": {"username": "system:anonymous"}}, None),
        ({"userInfo": {"username": ""}}, None),
        ({"userInfo": {}}, None),
        ({}, None),
    ],
)
def test_only_an_authenticated_token_has_a_user(status: Mapping[str, Any], user: User | None) -> None:
    assert user_of(status) == user


@pytest.mark.parametrize(
    ("status", "allowed"),
    [({"allowed": True}, True), ({"allowed": True, "denied": True}, False), ({"allowed": 1}, False), ({}, False)],
)
def test_only_what_is_allowed_is_allowed(status: Mapping[str, Any], allowed: bool) -> None:
    assert is_allowed(status) is allowed


async def test_a_viewer_sees_pools_and_workers_where_the_token_may_read_them(server: ApiServer) -> None:
    viewer = await TokenAccess(reviews_of(server)).viewer("of-anna")
    assert viewer is not None
    assert [await viewer.may_see(one) for one in ("rl", "eval")] == [True, False]
    assert [await viewer.may_see_workers(one) for one in ("rl", "eval")] == [True, False]


async def test_who_may_read_everywhere_is_asked_about_once(kube: StandInApiServer, server: ApiServer) -> None:
    reviews = reviews_of(server)
    assert all([await reviews.may("of-admin", "list", resources.POOLS, f"team-{n}") for n in range(9)])
    assert kube.asked == ["of-admin"]


async def test_a_wrong_token_is_nobodys(server: ApiServer) -> None:
    assert await TokenAccess(reviews_of(server)).viewer("wrong") is None


@pytest.mark.parametrize("token", ["", " ", " of-anna", "of-anna x", "of-anna\r\nX: y", "of-anna\x00", "ä"])
async def test_what_is_no_token_is_not_sent(kube: StandInApiServer, server: ApiServer, token: str) -> None:
    assert await TokenAccess(reviews_of(server)).viewer(token) is None
    assert kube.asked == []


async def test_however_many_ask_the_api_server_is_asked_once_until_the_answer_is_old(
    kube: StandInApiServer, server: ApiServer
) -> None:
    now = [0.0]
    reviews = reviews_of(server, now)
    await asyncio.gather(*(reviews.user("of-anna") for _ in range(20)))
    assert len(kube.asked) == 1
    now[0] = REMEMBER_SECONDS
    await reviews.user("of-anna")
    assert len(kube.asked) == 2


async def test_a_token_that_is_revoked_ends_what_it_began(server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    viewer = await TokenAccess(reviews_of(server, now)).viewer("of-anna")
    assert viewer is not None
    monkeypatch.delitem(USERS, "of-anna")
    assert await viewer.is_valid()
    now[0] = REMEMBER_SECONDS
    assert not await viewer.is_valid()
    assert not await viewer.may_see("rl")


@pytest.mark.parametrize("status", [403, 500])
async def test_without_an_answer_nobody_is_let_in_nor_remembered_as_wrong(
    kube: StandInApiServer, server: ApiServer, status: int
) -> None:
    reviews = reviews_of(server)
    kube.refuses = status
    with pytest.raises(ReviewRefusedError, match=rf"refuses a SelfSubjectReview \({status}\)") as raised:
        await reviews.user("of-anna")
    assert "of-anna" not in str(raised.value)
    kube.refuses = 0
    assert await reviews.user("of-anna") == ANNA


async def test_an_api_server_that_is_away_says_nothing_of_the_token() -> None:
    async with ApiServer.open(Address(url=f"http://127.0.0.1:{free_port()}")) as server:
        with pytest.raises(ApiServerAwayError, match="the API server does not answer") as raised:
            await reviews_of(server).user("of-anna")
    assert "of-anna" not in str(raised.value)


async def test_answers_that_are_remembered_are_bounded() -> None:
    asked: list[int] = []

    async def ask(question: int) -> int:
        asked.append(question)
        return question

    answers: AnswerCache[int, int] = AnswerCache(seconds=60.0, most=2)
    for question in (1, 2, 3, 1):
        await answers.get(question, lambda question=question: ask(question))  # type: ignore[misc]
    assert asked == [1, 2, 3, 1]


@pytest.mark.parametrize(
    ("pod", "phase"),
    [
        (a_pod(), "Ready"),
        (a_pod(started=False), "Starting"),
        (a_pod(state={"waiting": {"reason": "ImagePullBackOff"}}, started=False), "ImagePull"),
        (a_pod(started=False, lastState={"terminated": {"exitCode": 137, "reason": "OOMKilled"}}), "OutOfMemory"),
    ],
)
def test_a_workers_phase_is_a_word(pod: Object, phase: str) -> None:
    url, worker = shown_worker(pod)
    assert (url, worker.name, worker.phase) == ("http://10.0.0.7:8000", "w0", phase)


def test_a_worker_that_leaves_is_draining() -> None:
    pod = a_pod()
    pod["metadata"]["annotations"] = {names.ANNOTATION_DRAINING_SINCE: "2026-01-01T00:00:00Z"}
    assert shown_worker(pod)[1].phase == "Draining"


@pytest.fixture
async def router(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Metrics of a router; the path /silent says nothing of the kind. A busy machine has time to ask it."""
    monkeypatch.setattr("rewardpool_operator.kubernetes.page.routers.TIMEOUT", ClientTimeout(total=60.0))
    app = web.Application()

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(text=METRICS)

    app.router.add_get("/metrics", metrics)
    async with TestServer(app) as server, ClientSession() as session:
        yield session, str(server.make_url("")).rstrip("/")


async def test_counts_are_those_of_all_routers_of_a_pool(router: Any) -> None:
    session, url = router
    counts = RouterCounts(session, clock=lambda: 7.0)
    await counts.refresh({"rl/rm": [url, url]})
    found = counts.get("rl/rm")
    assert found.counts is not None
    assert (found.counts.answered, found.counts.seconds, found.counts.at) == (8, 1.0, 7.0)
    assert found.in_flight == {"http://10.0.0.7:8000": 6}


async def test_one_router_that_does_not_say_leaves_the_rate_unknown_and_not_too_small(router: Any) -> None:
    session, url = router
    counts = RouterCounts(session)
    await counts.refresh({"rl/rm": [url, f"{url}/silent"]})
    assert counts.get("rl/rm").counts is None
    assert counts.get("rl/rm").in_flight == {"http://10.0.0.7:8000": 3}


async def test_of_very_many_routers_some_are_asked_at_a_time_and_all_in_turn(router: Any) -> None:
    session, url = router
    now = [1.0]
    counts = RouterCounts(session, clock=lambda: now[0])
    pools = {f"rl/{number}": [url] for number in range(MAX_ROUTERS + 3)}
    await counts.refresh(pools)
    assert [counts.get(pool).counts is not None for pool in pools].count(True) == MAX_ROUTERS
    now[0] = 2.0
    await counts.refresh(pools)
    assert all(counts.get(pool).counts is not None for pool in pools)


def pool_object(name: str, **spec: Any) -> Object:
    metadata = {"name": name, "namespace": "rl", "uid": f"uid-{name}", "resourceVersion": "5", "generation": 1}
    return {"metadata": metadata, "spec": {"model": {"source": "hf://org/model"}, **spec}}


def changed(store: Store, *, status: Object | None = None, **spec: Any) -> Object:
    """The pool of the store in a newer version, which it now has."""
    pool = {**pool_object("rm", **spec), "status": status or {}}
    pool["metadata"] |= {"resourceVersion": "9", "annotations": {"a": "s3cret"}}
    store.put(resources.POOLS, pool)
    return pool


def owned(pod: Object) -> Object:
    pod["metadata"] |= {"namespace": "rl", "resourceVersion": "6", "ownerReferences": [{"kind": "ReplicaSet"}]}
    return pod


@pytest.fixture
def store() -> Store:
    store = Store()
    store.put(resources.POOLS, pool_object("rm"))
    store.put(resources.PODS, owned(a_pod()))
    store.put(resources.PODS, owned(a_pod("r0", component=names.COMPONENT_ROUTER)))
    return store


@asynccontextmanager
async def source_of(
    store: Store, *, url: str = "http://127.0.0.1:9", listing: Collection[str] = ()
) -> AsyncIterator[ClusterSource]:
    offer = Offer(store, is_being_listed=lambda namespace: namespace in listing)
    async with (
        ApiServer.open(Address(url=url)) as server,
        ClusterSource.open(offer.pools, server, namespaces=()) as source,
    ):
        yield source


async def test_a_look_is_what_the_watches_said(store: Store) -> None:
    async with source_of(store) as source:
        (seen,) = await source.observe(counted=False)
    assert (seen.pool.key, [worker.name for worker in seen.workers], seen.logs) == ("rl/rm", ["w0"], ("w0", "r0"))
    assert seen.counts is None


async def test_the_page_is_told_nothing_of_variables_arguments_and_templates(store: Store) -> None:
    secret = {"engine": {"env": [{"name": "A", "value": "s3cret"}], "args": ["s3cret"]}}
    changed(store, worker={"gpus": 2, "podTemplate": {"spec": {"s3cret": 1}}}, replicas=3, **secret)
    assert b"s3cret" not in await Offer(store, is_being_listed=lambda _: False).pools()
    async with source_of(store) as source:
        (seen,) = await source.observe(counted=False)
    assert (seen.pool.spec.worker.gpus, seen.pool.spec.replicas) == (2, 3)


def full_view(seen: Seen) -> Detail:
    return detail_of(seen, history.Remembered())


async def test_a_pool_is_shown_as_all_of_its_object_would_be(store: Store) -> None:
    spec = {
        "model": {"source": "hf://org/model", "type": "Generative"},
        "engine": {"name": "sglang", "args": ["--x"]},
        "worker": {"gpus": 2},
        "router": {"flavor": "smg"},
        "autoscaling": {"minReplicas": 1, "maxReplicas": 4},
    }
    found = changed(store, **spec)
    async with source_of(store) as source:
        (seen,) = await source.observe(counted=False)
    assert full_view(seen) == full_view(replace(seen, pool=StoredPool.parse(found).pool))


async def test_a_parked_worker_is_told_from_one_that_serves(store: Store) -> None:
    changed(store, status={"parkedWorkers": ["w0"]})
    async with source_of(store) as source:
        (seen,) = await source.observe(counted=False)
    assert [worker.phase for worker in seen.workers] == ["Parked"]


async def test_a_pool_is_not_shown_without_workers_while_they_are_listed(store: Store) -> None:
    listing = ["rl"]
    async with source_of(store, listing=listing) as source:
        assert await source.observe(counted=False) == []
        listing.clear()
        (seen,) = await source.observe(counted=False)
    assert [worker.name for worker in seen.workers] == ["w0"]


async def test_a_pool_is_read_again_only_when_one_of_its_objects_changed(store: Store) -> None:
    async with source_of(store) as source:
        first, second = [(await source.observe(counted=False))[0].pool for _ in range(2)]
        assert second is first
        changed(store, replicas=3)
        (third,) = await source.observe(counted=False)
    assert third.pool.spec.replicas == 3


@pytest.mark.parametrize("spec", [{}, {"model": 7}, {"model": {"source": "hf://org/model"}, "engine": None}])
async def test_what_makes_no_sense_hides_no_other_pool(store: Store, spec: Object) -> None:
    odd = pool_object("odd")
    store.put(resources.POOLS, {"metadata": {**odd["metadata"], "labels": 7}, "spec": spec})
    async with source_of(store) as source:
        seen = await source.observe(counted=False)
    assert {one.pool.key for one in seen} == {"rl/rm", "rl/odd"}


async def test_while_the_operator_does_not_answer_the_pools_are_not_known() -> None:
    async def away() -> bytes:
        raise OSError("the operator does not answer")

    async with (
        ApiServer.open(Address(url="http://127.0.0.1:9")) as server,
        ClusterSource.open(away, server, namespaces=()) as source,
    ):
        with pytest.raises(OSError, match="the operator does not answer"):
            await source.observe(counted=False)


async def log_of(store: Store, server: ApiServer, *, token: str = "of-anna") -> str:
    viewer = await TokenAccess(reviews_of(server)).viewer(token)
    assert viewer is not None
    offer = Offer(store, is_being_listed=lambda _: False)
    async with ClusterSource.open(offer.pools, server, namespaces=()) as source:
        await source.observe(counted=False)
        return await source.log("rl/rm", "w0", viewer)


async def manifest_of(server: ApiServer, pool: str, *, token: str = "of-anna") -> Mapping[str, Any]:
    viewer = await TokenAccess(reviews_of(server)).viewer(token)
    assert viewer is not None
    async with ClusterSource.open(
        Offer(Store(), is_being_listed=lambda _: False).pools, server, namespaces=()
    ) as source:
        return await source.manifest(pool, viewer)


async def test_a_manifest_is_the_api_servers_for_the_viewers_token(server: ApiServer) -> None:
    manifest = await manifest_of(server, "rl/rm")
    assert (manifest["apiVersion"], manifest["kind"]) == (names.API_VERSION, names.KIND)
    assert manifest["spec"]["replicas"] == 3


@pytest.mark.parametrize(
    ("pool", "token", "words"), [("rl/none", "of-anna", "no pool"), ("rl/rm", "of-admin", "forbidden")]
)
async def test_a_manifest_that_the_viewer_may_not_read_is_refused(
    server: ApiServer, pool: str, token: str, words: str
) -> None:
    with pytest.raises(NotShownError, match=words):
        await manifest_of(server, pool, token=token)


async def test_a_log_has_no_colours(store: Store, kube: StandInApiServer, server: ApiServer) -> None:
    kube.log = "\x1b[31mstarted\x1b[0m\n"
    assert await log_of(store, server) == "started\n"


async def test_a_log_that_the_viewer_may_not_read_is_refused_in_the_api_servers_words(
    store: Store, server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(USERS, "of-ben", {"username": "ben"})
    with pytest.raises(NotShownError, match="forbidden"):
        await log_of(store, server, token="of-ben")
