"""What the page's server answers, to whom, and its bounds."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import ClientResponse, web
from aiohttp.test_utils import TestClient, TestServer
from support.scripted_pools import ScriptedSource

from rewardpool_page import access, server
from rewardpool_page.access import (
    FAILURE_SECONDS,
    MAX_FAILURES,
    MAX_SESSIONS_OF_ONE,
    SESSION_SECONDS,
    Everything,
    Failures,
    Sessions,
    TokenFile,
    Viewer,
)
from rewardpool_page.server import MAX_BODY, SESSION_HEADER, page_app
from rewardpool_page.snapshots import SNAPSHOT_SECONDS, UNWATCHED_SECONDS, WATCHED_SECONDS, Snapshots
from rewardpool_page.source import Seen

NOW = 1_800_000_000.0
TOKEN = "kept-in-a-file"
Client = TestClient[web.Request, web.Application]


class CountingSource(ScriptedSource):
    """Counts how often it is looked at."""

    looks = 0

    def __init__(self, end: float) -> None:
        super().__init__(end)
        self.counted: list[bool] = []

    async def observe(self, *, counted: bool) -> Sequence[Seen]:
        self.looks += 1
        self.counted.append(counted)
        await asyncio.sleep(0)
        return await super().observe(counted=counted)


class OneNamespace:
    """Somebody who may see only this, without its workers."""

    user = "eve"

    def __init__(self, namespace: str = "eval", *, lasts: list[bool] | None = None) -> None:
        self._namespace = namespace
        self._lasts = lasts or [True]

    async def is_valid(self) -> bool:
        return self._lasts[0]

    async def may_see(self, namespace: str) -> bool:
        return namespace == self._namespace

    async def may_see_workers(self, namespace: str) -> bool:
        return False


class OfOneNamespace:
    """Access of a cluster's kind: any name, and not every namespace."""

    hosts = None
    hint = "ask for a token"

    def __init__(self, viewer: OneNamespace | None = None) -> None:
        self._viewer = viewer or OneNamespace()

    async def viewer(self, token: str) -> Viewer | None:
        return self._viewer if token == TOKEN else None


def of_cluster(viewer: OneNamespace | None = None) -> Client:
    return TestClient(TestServer(page_app(ScriptedSource(NOW), OfOneNamespace(viewer))))


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[Client]:
    (tmp_path / "token").write_text(TOKEN)
    app = page_app(ScriptedSource(NOW), TokenFile(tmp_path / "token"))
    async with TestClient(TestServer(app)) as client:
        yield client


async def sign_in(client: Client, token: str = TOKEN) -> ClientResponse:
    answer = await client.post("/api/session", json={"token": token})
    if answer.status == 200:
        client.session.headers[SESSION_HEADER] = (await answer.json())["session"]
    return answer


async def first_event(response: ClientResponse) -> tuple[str, Any]:
    kind = (await response.content.readline()).decode().removeprefix("event: ").strip()
    return kind, json.loads((await response.content.readline()).decode().removeprefix("data: "))


@pytest.mark.parametrize(
    "path",
    ["/api/pools", "/api/events", "/api/logs?pool=rl/judge&name=worker-1", "/api/manifest?pool=rl/judge"],
)
async def test_nothing_of_a_pool_is_shown_without_a_session(client: Client, path: str) -> None:
    answer = await client.get(path)
    assert answer.status == 401
    assert "rewardpool page" in (await answer.json())["hint"]


async def test_nothing_of_a_pool_is_shown_for_a_made_up_session(client: Client) -> None:
    assert (await client.get("/api/pools", headers={SESSION_HEADER: "made-up"})).status == 401


@pytest.mark.parametrize("token", ["", "wrong", TOKEN + "x"])
async def test_a_wrong_token_begins_no_session(client: Client, token: str) -> None:
    answer = await sign_in(client, token)
    assert (answer.status, "session" in await answer.json()) == (401, False)


async def test_a_token_is_exchanged_for_a_session_that_no_cookie_carries_to_other_ports(client: Client) -> None:
    answer = await sign_in(client)
    session = (await answer.json())["session"]
    assert TOKEN not in session
    assert "Set-Cookie" not in answer.headers
    assert (await client.get("/api/pools")).status == 200
    for given in (f"rewardpool-session={session}", f"session={session}"):
        headers = {"Cookie": given, SESSION_HEADER: ""}
        assert (await client.get("/api/pools", headers=headers)).status == 401


@pytest.mark.parametrize("session", [b"\xff\xfe", b"\xc3\xa9", b"x" * 4000])
async def test_a_session_of_odd_bytes_is_none(client: Client, session: bytes) -> None:
    headers = {SESSION_HEADER: session.decode("utf-8", "surrogateescape")}
    assert (await client.get("/api/pools", headers=headers)).status == 401


@pytest.mark.parametrize(
    "host", ["pools.example.org", "pools.example.org:8686", "127.0.0.1.example.org", "169.254.1.1"]
)
async def test_another_name_than_the_machine_s_own_is_refused(client: Client, host: str) -> None:
    await sign_in(client)
    for path in ("/", "/api/pools"):
        assert (await client.get(path, headers={"Host": host})).status == 403


@pytest.mark.parametrize("host", ["localhost:9999", "127.0.0.1", "[::1]:8686"])
async def test_a_forwarded_port_is_the_same_machine(client: Client, host: str) -> None:
    assert (await client.get("/", headers={"Host": host})).status == 200


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
async def test_another_page_of_the_browser_is_refused(client: Client, site: str) -> None:
    await sign_in(client)
    assert (await client.get("/api/pools", headers={"Sec-Fetch-Site": site})).status == 403


@pytest.mark.parametrize("body", ["[]", "{", '{"token": 7}', '{"token": "' + "x" * MAX_BODY + '"}'])
async def test_a_body_that_is_no_token_or_too_large_is_refused(client: Client, body: str) -> None:
    answer = await client.post("/api/session", data=body, headers={"Content-Type": "application/json"})
    assert answer.status in (400, 413)


async def test_every_answer_has_the_headers_that_keep_a_browser_to_this_page(client: Client) -> None:
    for path in ("/", "/page.js", "/api/pools", "/missing"):
        headers = (await client.get(path)).headers
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        assert "unsafe" not in headers["Content-Security-Policy"]
        assert (headers["X-Content-Type-Options"], headers["Cache-Control"]) == ("nosniff", "no-store")


async def test_pools_in_trouble_come_first_and_then_those_that_wait(client: Client) -> None:
    await sign_in(client)
    pools = (await (await client.get("/api/pools")).json())["pools"]
    assert [pool["key"] for pool in pools][:2] == ["rl/process", "rl/helpfulness"]


async def test_a_chosen_pool_comes_as_a_whole_with_its_history(client: Client) -> None:
    await sign_in(client)
    answer = await (await client.get("/api/pools?pool=rl/helpfulness")).json()
    assert answer["pool"]["sizing"]["limit"] == "MaxReplicas"
    assert answer["history"]["desired"][-1][1] == 8


async def test_only_the_namespaces_that_somebody_may_see_are_shown() -> None:
    async with of_cluster() as client:
        await sign_in(client)
        answer = await (await client.get("/api/pools?pool=rl/judge")).json()
        assert [pool["key"] for pool in answer["pools"]] == ["eval/safety"]
        assert (answer["pool"], answer["history"]) == (None, None)
        assert (await client.get("/api/logs?pool=rl/judge&name=worker-1")).status == 404
        assert (await client.get("/api/manifest?pool=rl/judge")).status == 404


async def test_workers_that_somebody_may_not_see_are_left_out_with_their_logs() -> None:
    async with of_cluster(OneNamespace("rl")) as client:
        await sign_in(client)
        pool = (await (await client.get("/api/pools?pool=rl/helpfulness")).json())["pool"]
    assert (pool["workers"], pool["logs"], pool["workers_hidden"]) == ([], [], True)
    assert pool["summary"]["ready"] > 0


async def test_a_session_ends_with_the_token_that_began_it() -> None:
    lasts = [True]
    async with of_cluster(OneNamespace(lasts=lasts)) as client:
        await sign_in(client)
        assert (await client.get("/api/pools")).status == 200
        lasts[0] = False
        assert (await client.get("/api/pools")).status == 401
        lasts[0] = True
        assert (await client.get("/api/pools")).status == 401


async def test_signing_out_ends_the_session(client: Client) -> None:
    await sign_in(client)
    assert (await client.delete("/api/session")).status == 200
    assert (await client.get("/api/pools")).status == 401


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "pools.example.org"}, 403),
        ({"Host": "pools.example.org", "X-Forwarded-Proto": "http"}, 403),
        ({"Host": "pools.example.org", "X-Forwarded-Proto": "https"}, 200),
        ({"Host": "localhost:8083"}, 200),
    ],
)
async def test_a_token_is_taken_over_https_or_a_forwarded_port_alone(headers: dict[str, str], status: int) -> None:
    async with of_cluster() as client:
        answer = await client.post("/api/session", json={"token": TOKEN}, headers=headers)
        assert answer.status == status


async def test_who_fails_too_often_waits_and_a_right_token_is_then_refused_as_well(client: Client) -> None:
    for _ in range(MAX_FAILURES):
        assert (await sign_in(client, "wrong")).status == 401
    answer = await sign_in(client)
    assert answer.status == 429
    assert 0 < int(answer.headers["Retry-After"]) <= FAILURE_SECONDS


def test_failures_are_forgotten_after_a_while_and_are_not_another_address_s() -> None:
    now = [0.0]
    failures = Failures(clock=lambda: now[0])
    for _ in range(MAX_FAILURES):
        failures.add("10.0.0.1")
    assert (failures.seconds_to_wait("10.0.0.1"), failures.seconds_to_wait("10.0.0.2")) == (FAILURE_SECONDS, 0.0)
    now[0] = FAILURE_SECONDS
    assert failures.seconds_to_wait("10.0.0.1") == 0.0


async def test_a_judge_that_is_away_is_no_wrong_token(monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(_: object, token: str) -> Viewer | None:
        raise OSError("the API server does not answer")

    monkeypatch.setattr(OfOneNamespace, "viewer", away)
    async with of_cluster() as client:
        for _ in range(MAX_FAILURES + 1):
            answer = await sign_in(client)
        assert answer.status == 503
        assert "the API server does not answer" in await answer.text()


async def test_a_watcher_gets_the_pools_and_the_chosen_one_s_history(client: Client) -> None:
    await sign_in(client)
    async with client.get("/api/events?pool=rl/helpfulness") as stream:
        assert stream.content_type == "text/event-stream"
        kind, data = await first_event(stream)
        assert (kind, data["pool"]["summary"]["key"]) == ("pools", "rl/helpfulness")
        await stream.content.readline()
        kind, data = await first_event(stream)
        assert (kind, sorted(data)) == (
            "history",
            [
                "at",
                "desired",
                "in_flight",
                "mean_seconds",
                "p95_seconds",
                "per_second",
                "period",
                "ready",
                "scores",
                "times",
                "waiting",
            ],
        )


async def test_one_watcher_too_many_is_refused(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MAX_STREAMS", 1)
    await sign_in(client)
    async with client.get("/api/events") as first:
        assert first.status == 200
        assert (await client.get("/api/events")).status == 503


async def test_one_user_leaves_room_for_other_watchers(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MAX_STREAMS_OF_ONE", 1)
    await sign_in(client)
    async with client.get("/api/events") as first:
        assert first.status == 200
        assert (await client.get("/api/events")).status == 429


async def test_a_log_is_text(client: Client) -> None:
    await sign_in(client)
    answer = await client.get("/api/logs?pool=rl/helpfulness&name=worker-1")
    assert (answer.content_type, "vLLM" in await answer.text()) == ("text/plain", True)


async def test_a_manifest_is_yaml_without_a_status(client: Client) -> None:
    await sign_in(client)
    answer = await client.get("/api/manifest?pool=rl/judge")
    manifest = yaml.safe_load(await answer.text())
    assert (answer.content_type, manifest["metadata"]["name"]) == ("text/plain", "judge")
    assert (manifest["spec"]["replicas"], "status" in manifest) == (2, False)


@pytest.mark.parametrize("query", ["pool=rl/helpfulness&name=../key", "pool=rl/none&name=worker-1", ""])
async def test_a_log_that_is_not_listed_is_not_found(client: Client, query: str) -> None:
    await sign_in(client)
    assert (await client.get(f"/api/logs?{query}")).status == 404


async def test_routers_are_asked_for_their_counts_now_and_then_while_nobody_watches() -> None:
    source, now = CountingSource(NOW), [100.0]
    snapshots = Snapshots(source, clock=lambda: now[0], wall_clock=lambda: NOW)
    await snapshots.remember_once()
    now[0] += SNAPSHOT_SECONDS
    await snapshots.latest()
    now[0] += WATCHED_SECONDS
    await snapshots.remember_once()
    now[0] += UNWATCHED_SECONDS
    await snapshots.remember_once()
    assert source.counted == [True, True, False, True]


async def test_a_history_is_of_the_time_that_is_asked_for(client: Client) -> None:
    await sign_in(client)
    answer = await (await client.get("/api/pools?pool=rl/helpfulness&period=week")).json()
    assert answer["history"]["period"] == "week"


@pytest.mark.parametrize("path", ["/api/pools", "/api/events"])
async def test_a_time_of_which_there_is_no_history_is_refused(client: Client, path: str) -> None:
    await sign_in(client)
    answer = await client.get(f"{path}?pool=rl/helpfulness&period=year")
    assert (answer.status, "hour, day, week" in await answer.text()) == (400, True)


async def test_one_look_a_second_serves_all_who_watch() -> None:
    source, now = CountingSource(NOW), [100.0]
    snapshots = Snapshots(source, clock=lambda: now[0], wall_clock=lambda: NOW)
    await asyncio.gather(*(snapshots.latest() for _ in range(20)))
    assert source.looks == 1
    now[0] += SNAPSHOT_SECONDS
    await asyncio.gather(*(snapshots.latest() for _ in range(20)))
    assert source.looks == 2


def test_a_session_ends_after_a_day() -> None:
    now = [0.0]
    sessions = Sessions(clock=lambda: now[0])
    secret = sessions.begin(Everything())
    assert sessions.find(secret) is not None
    now[0] = SESSION_SECONDS
    assert sessions.find(secret) is None


def test_of_too_many_sessions_a_user_ends_the_oldest_of_its_own_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    sessions = Sessions()
    others = sessions.begin(Everything())
    begun = [sessions.begin(OneNamespace()) for _ in range(MAX_SESSIONS_OF_ONE + 1)]
    assert [sessions.find(secret) is not None for secret in (begun[0], begun[1], begun[-1])] == [False, True, True]
    assert sessions.find(others) is not None
    monkeypatch.setattr(access, "MAX_SESSIONS", MAX_SESSIONS_OF_ONE + 1)
    latest = sessions.begin(Everything())
    assert [sessions.find(secret) is not None for secret in (others, begun[1], latest)] == [True, False, True]
