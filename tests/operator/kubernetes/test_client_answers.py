"""Who is taken to have answered: the API server, or somebody in its place, which a stand-in plays."""

from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from aiohttp.test_utils import RawTestServer
from kubernetes_asyncio.client import Configuration

from rewardpool_operator.kubernetes import client
from rewardpool_operator.kubernetes.client import Kube, KubeError, KubeUnreachableError


class Server:
    """Answers everything with what the test says, and notes the paths."""

    def __init__(self) -> None:
        self.status = 200
        self.text = "{}"
        self.paths: list[str] = []

    async def answer(self, request: web.BaseRequest) -> web.Response:
        self.paths.append(request.raw_path)
        return web.Response(status=self.status, text=self.text)


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
        await kube.get(client.SECRETS, "rl", "rm-key")
    assert kube.is_away()
    server.status, server.text = 200, "{}"
    await kube.get(client.SECRETS, "rl", "rm-key")
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
        await kube.get(client.SECRETS, "rl", "rm-key")
    assert caught.value.status == status
    assert not kube.is_away()


async def test_a_404_without_kubernetes_word_for_it_does_not_say_that_there_is_no_such_object(
    kube: Kube, server: Server
) -> None:
    server.status, server.text = 404, "<html>no such page</html>"
    with pytest.raises(KubeError):
        await kube.get(client.SECRETS, "rl", "rm-key")
    server.text = '{"kind": "Status", "reason": "NotFound", "message": "no such Secret"}'
    assert await kube.get(client.SECRETS, "rl", "rm-key") is None


@pytest.mark.parametrize("name", ["\n\n", " ", "../configmaps/a", "a/b?c#d", "%2e", "", ".", ".."])
async def test_a_name_that_is_any_text_asks_for_nothing_else(kube: Kube, server: Server, name: str) -> None:
    await kube.get(client.SECRETS, "rl", name)
    expected = "/api/v1/namespaces/rl/secrets"
    assert [path.rpartition("/")[0] for path in server.paths] == [expected] * (name not in client.NO_NAMES)
