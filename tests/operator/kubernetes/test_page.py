"""The page of a cluster: whose a token is, who sees what, and what of pods and routers is shown."""

import asyncio
from collections.abc import Collection, Mapping
from typing import Any, cast

import pytest
from aiohttp import ClientSession, web
from aiohttp.test_utils import TestServer
from support.kube_builders import a_pod

from rewardpool_api import names
from rewardpool_kube import resources
from rewardpool_kube.client import Kube
from rewardpool_kube.errors import KubeError, KubeUnreachableError
from rewardpool_kube.resources import Object, Resource
from rewardpool_operator.kubernetes.cache.store import Store
from rewardpool_operator.kubernetes.page.access import TokenAccess
from rewardpool_operator.kubernetes.page.logs import PodLogs
from rewardpool_operator.kubernetes.page.reviews import (
    REMEMBER_SECONDS,
    TOKEN_REVIEWS,
    Remembered,
    ReviewRefusedError,
    Reviews,
    User,
    is_allowed,
    user_of,
)
from rewardpool_operator.kubernetes.page.routers import MAX_ROUTERS, RouterCounts
from rewardpool_operator.kubernetes.page.source import ClusterSource
from rewardpool_operator.kubernetes.page.workers import shown_worker
from rewardpool_page.source import LogNotFoundError

TOKENS = {"of-anna": {"username": "anna", "groups": ["system:authenticated"], "extra": {"a": ["b"]}}}
RIGHTS = {("anna", "list", "rewardpools", "rl"), ("anna", "list", "pods", "rl"), ("admin", "get", "rewardpools", "")}
ANNA = User(name="anna", groups=("system:authenticated",), extra=(("a", ("b",)),))
METRICS = """smg_router_request_duration_seconds_bucket{endpoint="other",le="+Inf"} 4
smg_router_request_duration_seconds_sum{endpoint="other"} 0.5
smg_router_request_duration_seconds_count{endpoint="other"} 4
smg_worker_requests_active{worker="http://10.0.0.7:8000"} 3
"""


class ReviewingKube:
    """Answers reviews by the two tables above."""

    def __init__(self) -> None:
        self.asked: list[Object] = []
        self.error: Exception | None = None

    async def review(self, resource: Resource, manifest: Object) -> Object:
        self.asked.append(manifest["spec"])
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        if resource == TOKEN_REVIEWS:
            user = TOKENS.get(manifest["spec"]["token"])
            return {"authenticated": True, "user": user} if user else {"error": "invalid"}
        what = manifest["spec"]["resourceAttributes"]
        asked = (manifest["spec"]["user"], what["verb"], what["resource"], what["namespace"])
        return {"allowed": asked in RIGHTS}


@pytest.fixture
def kube() -> ReviewingKube:
    return ReviewingKube()


def reviews_of(kube: ReviewingKube, now: list[float] | None = None) -> Reviews:
    times = now or [0.0]
    return Reviews(cast(Kube, kube), clock=lambda: times[0])


@pytest.mark.parametrize(
    ("status", "user"),
    [
        ({"authenticated": True, "user": TOKENS["of-anna"]}, ANNA),
        ({"authenticated": False, "user": {"username": "anna"}}, None),
        ({"user": {"username": "anna"}}, None),
        ({"authenticated": "true", "user": {"username": "anna"}}, None),
        ({"authenticated": True, "user": {}}, None),
        ({"authenticated": True}, None),
        ({"error": "expired"}, None),
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


async def test_a_viewer_sees_pools_and_workers_where_the_token_may_read_them(kube: ReviewingKube) -> None:
    viewer = await TokenAccess(reviews_of(kube)).viewer("of-anna")
    assert viewer is not None
    assert [await viewer.may_see(one) for one in ("rl", "eval")] == [True, False]
    assert [await viewer.may_see_workers(one) for one in ("rl", "eval")] == [True, False]


async def test_who_may_read_everywhere_is_asked_about_once(kube: ReviewingKube) -> None:
    reviews = reviews_of(kube)
    assert all([await reviews.may(User(name="admin"), "get", resources.POOLS, f"team-{n}") for n in range(9)])
    assert len(kube.asked) == 1


@pytest.mark.parametrize("token", ["", "wrong"])
async def test_a_wrong_token_is_nobodys(kube: ReviewingKube, token: str) -> None:
    assert await TokenAccess(reviews_of(kube)).viewer(token) is None


async def test_however_many_ask_the_api_server_is_asked_once_until_the_answer_is_old(kube: ReviewingKube) -> None:
    now = [0.0]
    reviews = reviews_of(kube, now)
    await asyncio.gather(*(reviews.user("of-anna") for _ in range(20)))
    assert len(kube.asked) == 1
    now[0] = REMEMBER_SECONDS
    await reviews.user("of-anna")
    assert len(kube.asked) == 2


async def test_a_token_that_is_revoked_ends_what_it_began(kube: ReviewingKube, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    viewer = await TokenAccess(reviews_of(kube, now)).viewer("of-anna")
    assert viewer is not None
    monkeypatch.delitem(TOKENS, "of-anna")
    assert await viewer.is_valid()
    now[0] = REMEMBER_SECONDS
    assert not await viewer.is_valid()


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (KubeUnreachableError("gone"), "the API server does not answer"),
        (KubeError("create", status=403, reason="Forbidden", message="of-anna"), "refuses .* TokenReview: Forbidden"),
    ],
)
async def test_without_an_answer_nobody_is_let_in_nor_remembered_as_wrong(
    kube: ReviewingKube, error: Exception, said: str
) -> None:
    reviews = reviews_of(kube)
    kube.error = error
    with pytest.raises(ReviewRefusedError, match=said) as raised:
        await reviews.user("of-anna")
    assert "of-anna" not in str(raised.value)
    kube.error = None
    assert await reviews.user("of-anna") == ANNA


async def test_answers_that_are_remembered_are_bounded() -> None:
    asked: list[int] = []

    async def ask(question: int) -> int:
        asked.append(question)
        return question

    answers: Remembered[int, int] = Remembered(seconds=60.0, most=2)
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


@pytest.mark.parametrize(
    ("pod", "phase"), [(a_pod(), "Parked"), (a_pod(started=False), "Starting")], ids=["answers", "does not"]
)
def test_a_parked_worker_is_told_from_one_that_serves(pod: Object, phase: str) -> None:
    assert shown_worker(pod, parked=["w0"])[1].phase == phase


@pytest.fixture
async def router() -> Any:
    """Metrics of a router; the path /silent says nothing of the kind."""
    app = web.Application()

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(text=METRICS)

    app.router.add_get("/metrics", metrics)
    async with TestServer(app) as server, ClientSession() as session:
        yield session, str(server.make_url("")).rstrip("/")


async def test_counts_are_those_of_all_routers_of_a_pool(router: Any) -> None:
    session, url = router
    counts = RouterCounts(session, clock=lambda: 7.0)
    await counts.ask({"rl/rm": [url, url]})
    found = counts.of("rl/rm")
    assert found.counts is not None
    assert (found.counts.answered, found.counts.seconds, found.counts.at) == (8, 1.0, 7.0)
    assert found.in_flight == {"http://10.0.0.7:8000": 6}


async def test_one_router_that_does_not_say_leaves_the_rate_unknown_and_not_too_small(router: Any) -> None:
    session, url = router
    counts = RouterCounts(session)
    await counts.ask({"rl/rm": [url, f"{url}/silent"]})
    assert counts.of("rl/rm").counts is None
    assert counts.of("rl/rm").in_flight == {"http://10.0.0.7:8000": 3}


async def test_of_very_many_routers_some_are_asked_at_a_time_and_all_in_turn(router: Any) -> None:
    session, url = router
    now = [1.0]
    counts = RouterCounts(session, clock=lambda: now[0])
    pools = {f"rl/{number}": [url] for number in range(MAX_ROUTERS + 3)}
    await counts.ask(pools)
    assert [counts.of(pool).counts is not None for pool in pools].count(True) == MAX_ROUTERS
    now[0] = 2.0
    await counts.ask(pools)
    assert all(counts.of(pool).counts is not None for pool in pools)


def pool_object(name: str, **spec: Any) -> Object:
    metadata = {"name": name, "namespace": "rl", "uid": f"uid-{name}", "resourceVersion": "5", "generation": 1}
    return {"metadata": metadata, "spec": {"model": {"source": "hf://org/model"}, **spec}}


def owned(pod: Object) -> Object:
    pod["metadata"] |= {"namespace": "rl", "resourceVersion": "6", "ownerReferences": [{"kind": "ReplicaSet"}]}
    return pod


class KubeOfSecrets:
    """Has the Secrets of every pool."""

    async def get(self, resource: Resource, namespace: str, name: str) -> Object | None:
        assert resource == resources.SECRETS
        return {"data": {"key": "c2VjcmV0LTE="}} if name.endswith("-key") else None


@pytest.fixture
def store() -> Store:
    store = Store()
    store.put(resources.POOLS, pool_object("rm"))
    store.put(resources.PODS, owned(a_pod()))
    store.put(resources.PODS, owned(a_pod("r0", component=names.COMPONENT_ROUTER)))
    return store


def source_of(
    store: Store, session: ClientSession, *, host: str = "http://127.0.0.1:9", listing: Collection[str] = ()
) -> ClusterSource:
    kube, routers, logs = cast(Kube, KubeOfSecrets()), RouterCounts(session), PodLogs(session, host)
    return ClusterSource(store, kube, routers, logs, is_being_listed=lambda namespace: namespace in listing)


async def test_a_look_is_what_the_watches_said(store: Store) -> None:
    async with ClientSession() as session:
        (seen,) = await source_of(store, session).look(counted=False)
    assert (seen.pool.key, [worker.name for worker in seen.workers], seen.logs) == ("rl/rm", ["w0"], ("w0", "r0"))
    assert seen.counts is None


async def test_a_pool_is_not_shown_without_workers_while_they_are_listed(store: Store) -> None:
    listing = ["rl"]
    async with ClientSession() as session:
        source = source_of(store, session, listing=listing)
        assert await source.look(counted=False) == []
        listing.clear()
        (seen,) = await source.look(counted=False)
    assert [worker.name for worker in seen.workers] == ["w0"]


async def test_a_pool_is_read_again_only_when_one_of_its_objects_changed(store: Store) -> None:
    async with ClientSession() as session:
        source = source_of(store, session)
        first, second = [(await source.look(counted=False))[0].pool for _ in range(2)]
        assert second is first
        store.put(
            resources.POOLS,
            {**pool_object("rm", replicas=3), "status": {}}
            | {"metadata": {**pool_object("rm")["metadata"], "resourceVersion": "9"}},
        )
        (third,) = await source.look(counted=False)
    assert third.pool.spec.replicas == 3


async def test_what_makes_no_sense_hides_no_other_pool(store: Store) -> None:
    odd = pool_object("odd")
    odd["metadata"]["name"] = "o" * 3
    store.put(resources.POOLS, {"metadata": {**odd["metadata"], "labels": 7}, "spec": {}})
    async with ClientSession() as session:
        seen = await source_of(store, session).look(counted=False)
    assert "rl/rm" in {one.pool.key for one in seen}


async def api_server(log: web.Response) -> TestServer:
    """Answers for the log of w0 to the token of-anna."""

    async def answer(request: web.Request) -> web.Response:
        if request.headers["Authorization"] != "Bearer of-anna":
            return web.json_response({"kind": "Status", "message": "pods/log is forbidden"}, status=403)
        assert request.query["container"] == "worker"
        return log

    app = web.Application()
    app.router.add_get("/api/v1/namespaces/rl/pods/w0/log", answer)
    server = TestServer(app)
    await server.start_server()
    return server


async def log_of(store: Store, kube: ReviewingKube, *, text: str, token: str = "of-anna") -> str:
    server = await api_server(web.Response(text=text))
    viewer = await TokenAccess(reviews_of(kube)).viewer(token)
    assert viewer is not None
    async with ClientSession() as session:
        source = source_of(store, session, host=str(server.make_url("")))
        await source.look(counted=False)
        try:
            return await source.log("rl/rm", "w0", viewer)
        finally:
            await server.close()


async def test_a_log_has_no_key_and_no_colours(store: Store, kube: ReviewingKube) -> None:
    assert await log_of(store, kube, text="\x1b[31mstarted with secret-1\x1b[0m\n") == "started with [key]\n"


async def test_a_log_that_the_viewer_may_not_read_is_refused_in_the_api_servers_words(
    store: Store, kube: ReviewingKube, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(TOKENS, "of-ben", {"username": "ben"})
    with pytest.raises(LogNotFoundError, match="forbidden"):
        await log_of(store, kube, text="", token="of-ben")
