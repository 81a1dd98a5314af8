"""Answers of the API server, or of something in its place, which a stand-in plays: read whole, or an error by name."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import RawTestServer
from kubernetes_asyncio.client import Configuration

from rewardpool_kube import client, resources
from rewardpool_kube.client import Kube
from rewardpool_kube.errors import KubeError, KubeUnreachableError

AN_OBJECT = json.dumps({"metadata": {"name": "rm-key", "namespace": "rl", "resourceVersion": "7"}})


class Server:
    """Answers everything with what the test says, and notes the paths."""

    def __init__(self) -> None:
        self.status = 200
        self.text = AN_OBJECT
        self.body: bytes | None = None
        """In place of the text."""
        self.content_type = "application/json"
        self.paths: list[str] = []

    async def answer(self, request: web.BaseRequest) -> web.Response:
        self.paths.append(request.raw_path)
        body = self.text.encode() if self.body is None else self.body
        return web.Response(status=self.status, body=body, headers={"Content-Type": self.content_type})


@pytest.fixture
async def server() -> Server:
    return Server()


@pytest.fixture
async def kube(server: Server) -> AsyncIterator[Kube]:
    async with RawTestServer(server.answer) as running:
        configuration = Configuration()
        configuration.host = str(running.make_url("")).rstrip("/")
        async with Kube(configuration) as kube:
            yield kube


@pytest.mark.parametrize("status", [502, 503, 504])
async def test_a_load_balancers_refusal_is_no_answer_of_the_api_server(kube: Kube, server: Server, status: int) -> None:
    server.status, server.text = status, "<html>no healthy upstream</html>"
    with pytest.raises(KubeUnreachableError, match="no healthy upstream"):
        await kube.get(resources.SECRETS, "rl", "rm-key")
    assert kube.is_away()
    server.status, server.text = 200, AN_OBJECT
    await kube.get(resources.SECRETS, "rl", "rm-key")
    assert not kube.is_away()


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (503, '{"kind": "Status", "reason": "ServiceUnavailable", "message": "etcd"}'),
        (500, "this request caused a panic"),
        (429, "Too many requests, please try again later."),
    ],
)
async def test_the_api_servers_own_refusals_are_answers(kube: Kube, server: Server, status: int, text: str) -> None:
    server.status, server.text = status, text
    with pytest.raises(KubeError) as caught:
        await kube.get(resources.SECRETS, "rl", "rm-key")
    assert caught.value.status == status
    assert not kube.is_away()


async def test_a_404_without_kubernetes_word_for_it_does_not_say_that_there_is_no_such_object(
    kube: Kube, server: Server
) -> None:
    server.status, server.text = 404, "<html>no such page</html>"
    with pytest.raises(KubeError):
        await kube.get(resources.SECRETS, "rl", "rm-key")
    with pytest.raises(KubeError):
        await kube.delete(resources.SECRETS, "rl", "rm-key")
    server.text = '{"kind": "Status", "reason": "NotFound", "message": "no such Secret"}'
    assert await kube.get(resources.SECRETS, "rl", "rm-key") is None
    assert await kube.delete(resources.SECRETS, "rl", "rm-key") is None


@pytest.mark.parametrize("name", ["\n\n", " ", "../configmaps/a", "a/b?c#d", "%2e", "", ".", ".."])
async def test_a_name_that_is_any_text_asks_for_nothing_else(kube: Kube, server: Server, name: str) -> None:
    await kube.get(resources.SECRETS, "rl", name)
    expected = "/api/v1/namespaces/rl/secrets"
    assert [path.rpartition("/")[0] for path in server.paths] == [expected] * (name not in client.NO_NAMES)


ODD_BODIES = [
    b"",
    b"{}",
    b"[]",
    b"null",
    b"\xff\xfe<html>",
    b'{"metadata": {"name": "rm-key"',
    b"[" * 100_000,
    b'{"metadata": []}',
    b'{"metadata": {"name": 1, "resourceVersion": "7"}}',
    b'{"metadata": {"name": "rm-key"}}',
    b'{"metadata": {"name": "rm-key", "resourceVersion": 7}}',
    b'{"metadata": {"name": "rm-key", "resourceVersion": "new"}}',
    b'{"metadata": {"name": "rm-key", "resourceVersion": "7", "namespace": null}}',
]


@pytest.mark.parametrize("status", [200, 401, 403, 404, 410, 429, 500, 503])
@pytest.mark.parametrize("body", ODD_BODIES)
async def test_an_odd_answer_is_one_of_the_clients_errors(kube: Kube, server: Server, status: int, body: bytes) -> None:
    server.status, server.body = status, body
    with pytest.raises((KubeError, KubeUnreachableError)):
        await kube.get(resources.LEASES, "rl", "rewardpool")
    with pytest.raises((KubeError, KubeUnreachableError)):
        await kube.list(resources.PODS, "rl", selector="a=b")
    with pytest.raises((KubeError, KubeUnreachableError)):
        await anext(kube.pages(resources.PODS, "rl"))
    with pytest.raises((KubeError, KubeUnreachableError)):
        await kube.merge(resources.LEASES, "rl", "rewardpool", {"spec": {}})


async def test_text_in_an_unknown_encoding_is_read_as_the_utf_8_that_json_is(kube: Kube, server: Server) -> None:
    server.content_type = "application/json; charset=klingon"
    assert await kube.get(resources.LEASES, "rl", "rm-key") == json.loads(AN_OBJECT)


@pytest.mark.parametrize(
    "fields",
    [{"reason": ["NotFound"]}, {"message": {"a": 1}}, {"reason": None, "message": None}, {"message": "\x00" * 10_000}],
)
async def test_a_refusal_whose_words_are_odd_is_a_refusal_in_bounded_words(
    kube: Kube, server: Server, fields: dict[str, Any]
) -> None:
    server.status, server.text = 403, json.dumps({"kind": "Status", **fields})
    with pytest.raises(KubeError) as caught:
        await kube.get(resources.LEASES, "rl", "rm-key")
    assert caught.value.status == 403
    assert len(str(caught.value)) < 500
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    "line",
    [
        b"{}\n",
        b"[]\n",
        b'"ADDED"\n',
        b'{"type": "ADDED"}\n',
        b'{"type": "ADDED", "object": {"metadata": {}}}\n',
        b'{"type": "NEWS", "object": {"metadata": {"name": "a", "resourceVersion": "1"}}}\n',
        b'{"type": "BOOKMARK", "object": {"metadata": {}}}\n',
        b'{"type": "ERROR", "object": null}\n',
        b'{"type": "ERROR", "object": {"code": "410", "message": 5}}\n',
        b'{"type": "ADDED", "object": \n',
        b"\xff\xfe\n",
        b"<html>\n",
        b"x" * (client.LONGEST_LINE * 2 + 10) + b"\n",
    ],
)
async def test_an_odd_line_of_a_watch_is_one_of_the_clients_errors(kube: Kube, server: Server, line: bytes) -> None:
    server.body = line
    with pytest.raises((KubeError, KubeUnreachableError)):
        async for _ in kube.watch(resources.PODS, "rl", version="1", seconds=5):
            pass


async def test_watches_of_many_namespaces_do_not_wait_for_each_others_connections(kube: Kube) -> None:
    assert kube._client.rest_client.pool_manager.connector.limit == 0


async def test_lines_of_a_log_are_whole_and_long_ones_come_in_parts(kube: Kube, server: Server) -> None:
    server.body = b"one\ntw\xff\n" + b"x" * (client.LONGEST_LOG_LINE + 1) + b"\nlast"
    lines = [line async for line in kube.log_lines("rl", "rm-0", query={"container": "worker"}, follows=False)]
    assert lines[:2] == ["one", "tw\N{REPLACEMENT CHARACTER}"]
    assert "".join(lines[2:]) == "x" * (client.LONGEST_LOG_LINE + 1) + "last"


@pytest.mark.parametrize(
    ("status", "text", "words"),
    [
        (400, '{"kind": "Status", "reason": "BadRequest", "message": "the container waits"}', "the container waits"),
        (404, "no such page", "no such page"),
        (202, "{}", "its status is not 200"),
    ],
)
async def test_a_log_or_text_that_is_refused_is_an_error_in_the_servers_words(
    kube: Kube, server: Server, status: int, text: str, words: str
) -> None:
    server.status, server.text = status, text
    with pytest.raises(KubeError, match=words):
        await kube.text("/version")
    with pytest.raises(KubeError):
        await anext(kube.log_lines("rl", "rm-0", query={}, follows=False))


async def test_a_text_without_end_is_not_read(kube: Kube, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "LONGEST_TEXT", 10)
    server.text = "x" * 11
    for server.status in (200, 500):
        with pytest.raises(KubeUnreachableError, match="more than 10 bytes"):
            await kube.text("/metrics")


async def test_each_request_is_counted_with_its_verb_and_status(server: Server) -> None:
    counted: list[tuple[str, int | None]] = []
    async with RawTestServer(server.answer) as running:
        configuration = Configuration(host=str(running.make_url("")).rstrip("/"))
        async with Kube(configuration, on_request=lambda *request: counted.append(request)) as kube:
            await kube.get(resources.PODS, "rl", "rm-0")
            server.status = 403
            with pytest.raises(KubeError):
                await kube.merge(resources.PODS, "rl", "rm-0", {})
        await running.close()
        async with Kube(configuration, on_request=lambda *request: counted.append(request)) as kube:
            with pytest.raises(KubeUnreachableError):
                await kube.delete(resources.PODS, "rl", "rm-0")
    assert counted == [("get", 200), ("patch", 403), ("delete", None)]
