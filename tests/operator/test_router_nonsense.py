"""What a router says that cannot be so is missing, and no number; the router is a stand-in that says it."""

from collections.abc import AsyncIterator, Awaitable, Callable

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from rewardpool_control.snapshot import RegisteredWorker, Router
from rewardpool_operator.routers.admin import RouterAdmin

METRICS = 'smg_worker_cb_outcomes_total{worker="http://a:8000",outcome="success"} 42\nsmg_http_connections_active 3\n'
Says = Callable[..., Awaitable[Router]]


@pytest.fixture
async def says() -> AsyncIterator[Says]:
    """What is seen of a router that says this of its one worker's load, and these metrics."""
    servers: list[TestServer] = []

    async def seen(*, load: str = "3", text: str = METRICS) -> Router:
        async def workers(_: web.Request) -> web.Response:
            entry = f'{{"id": "a", "url": "http://a:8000", "is_healthy": true, "load": {load}}}'
            return web.json_response(text=f'{{"workers": [{entry}]}}')

        async def metrics(_: web.Request) -> web.Response:
            return web.Response(text=text)

        app = web.Application()
        app.router.add_get("/workers", workers)
        app.router.add_get("/metrics", metrics)
        servers.append(TestServer(app))
        await servers[-1].start_server()
        url = str(servers[-1].make_url(""))
        async with aiohttp.ClientSession() as session:
            admin = RouterAdmin(
                session, flavor="sglang-router", url=url, metrics_url=url, admin_key="k", served_name="rm"
            )
            return await admin.observe("r0")

    yield seen
    for server in servers:
        await server.close()


def the_worker(router: Router) -> RegisteredWorker:
    assert router.registered is not None
    return router.registered[0]


async def test_what_makes_sense_is_taken(says: Says) -> None:
    router = await says()
    assert (the_worker(router).in_flight, the_worker(router).answered, router.waiting) == (3, 42, 0)


@pytest.mark.parametrize("load", ["-1", "NaN", "Infinity", "2.5", "null", "true", '"3"'])
async def test_a_load_that_is_no_count_is_missing(says: Says, load: str) -> None:
    router = await says(load=load)
    assert (the_worker(router).in_flight, the_worker(router).answered) == (None, 42)


@pytest.mark.parametrize("value", ["-1", "NaN", "+Inf", "-Inf"])
async def test_a_metric_that_is_no_count_is_missing(says: Says, value: str) -> None:
    router = await says(text=METRICS.replace("42", value).replace("3\n", f"{value}\n"))
    assert (the_worker(router).in_flight, the_worker(router).answered, router.waiting) == (3, None, None)


@pytest.mark.parametrize("text", ["", "<html>\n", "up 1\n", "smg_http_connections_active many\n"])
async def test_what_are_no_metrics_of_a_router_is_no_idle_router(says: Says, text: str) -> None:
    router = await says(text=text)
    assert (the_worker(router).in_flight, the_worker(router).answered, router.waiting) == (3, None, None)
