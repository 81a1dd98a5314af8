"""What /healthz says to whom."""

from typing import Any

import aiohttp
import pytest
from aiohttp.test_utils import TestServer

from rewardpool_operator.main import health_app

FAILING = {"ok": False, "failing": {"team-a/secret-project": "the key cannot be read"}}


async def said_to(address: str) -> tuple[int, Any]:
    """What a caller with this address is answered."""
    connector = aiohttp.TCPConnector(local_addr=(address, 0))
    async with (
        TestServer(health_app(lambda: FAILING)) as server,
        aiohttp.ClientSession(connector=connector) as session,
        session.get(server.make_url("/healthz")) as answer,
    ):
        return answer.status, await answer.json()


@pytest.mark.parametrize(("address", "failing"), [("127.0.0.1", FAILING["failing"]), ("127.0.0.2", 1)])
async def test_failing_pools_are_named_to_the_pods_own_loopback_alone(address: str, failing: Any) -> None:
    assert await said_to(address) == (503, {"ok": False, "failing": failing})
