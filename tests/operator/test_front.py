"""What is served over the network of an operator's answers, beside it and in its place."""

import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from prometheus_client.parser import text_string_to_metric_families

from rewardpool_operator.front import ALIVE, health_app, metrics_app
from rewardpool_operator.kubernetes.page.api_server import Address
from rewardpool_operator.metrics import Metrics
from rewardpool_operator.operator_socket import Ask

OPENMETRICS = "application/openmetrics-text; version=1.0.0"
FAILING = {"ok": False, "failing": {"team-a/secret-project": "the key cannot be read"}}


def saying(health: object) -> Ask:
    async def ask(_: str) -> bytes:
        return json.dumps(health).encode()

    return ask


async def away(_: str) -> bytes:
    raise OSError("the operator does not answer")


async def said_to(address: str) -> tuple[int, Any]:
    """What a caller with this address is answered."""
    connector = aiohttp.TCPConnector(local_addr=(address, 0))
    async with (
        TestServer(health_app(saying(FAILING))) as server,
        aiohttp.ClientSession(connector=connector) as session,
        session.get(server.make_url("/healthz")) as answer,
    ):
        return answer.status, await answer.json()


@pytest.mark.parametrize(("address", "failing"), [("127.0.0.1", FAILING["failing"]), ("127.0.0.2", 1)])
async def test_failing_pools_are_named_to_the_pods_own_loopback_alone(address: str, failing: Any) -> None:
    assert await said_to(address) == (503, {"ok": False, "failing": failing})


async def asked(application: web.Application, path: str, **headers: str) -> tuple[int, str, str]:
    """Status, type and text of an answer."""
    async with TestClient(TestServer(application)) as client, client.get(path, headers=headers) as answer:
        return answer.status, answer.headers["Content-Type"], await answer.text()


@pytest.mark.parametrize(
    ("application", "path", "status"),
    [(health_app(away), "/healthz", 503), (health_app(away), ALIVE, 200), (metrics_app(away), "/metrics", 503)],
)
async def test_without_its_operator_the_front_lives_and_says_what_is_missing(
    application: web.Application, path: str, status: int
) -> None:
    found, _, said = await asked(application, path)
    assert (found, "the operator does not answer" in said) == (status, status == 503)


def telling(metrics: Metrics) -> Ask:
    async def ask(path: str) -> bytes:
        return await metrics.exposition({"/metrics": "", "/openmetrics": OPENMETRICS}[path])

    return ask


async def test_metrics_are_what_prometheus_parses() -> None:
    _, content_type, text = await asked(metrics_app(telling(Metrics())), "/metrics")
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert content_type.startswith("text/plain; version=0.0.4")
    assert families["process_resident_memory_bytes"].samples[0].value > 0


async def test_openmetrics_is_spoken_to_who_asks_for_it() -> None:
    _, content_type, text = await asked(metrics_app(telling(Metrics())), "/metrics", Accept=OPENMETRICS)
    assert content_type.startswith("application/openmetrics-text")
    assert text.endswith("# EOF\n")


@pytest.mark.parametrize("version", ["nonsense", "1.x", "2.x", "9.x.1", "9" * 5000, "", "-1", "1..0"])
@pytest.mark.parametrize("kind", ["application/openmetrics-text", "text/plain"])
async def test_a_version_that_is_none_is_answered_with_plain_text(kind: str, version: str) -> None:
    accept = f"{kind}; version={version}; escaping=allow-utf-8"
    _, content_type, _ = await asked(metrics_app(telling(Metrics())), "/metrics", Accept=accept)
    assert content_type.startswith("text/plain; version=0.0.4")


def test_the_page_needs_a_pod() -> None:
    with pytest.raises(SystemExit, match="KUBERNETES_SERVICE_HOST"):
        Address.of_pod(None, {})


def test_the_page_finds_the_api_server_by_its_pods_environment() -> None:
    address = Address.of_pod(Path("/ca"), {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"})
    assert (address.url, address.authority) == ("https://[fd00::1]:443", "/ca")
