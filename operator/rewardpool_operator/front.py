"""Front of the operator for the network: health, metrics and the page in the browser.

In the chart it is a process of its own, `rewardpool operator front`, without the operator's token and rights: all that
it knows it asks of the operator, at a Unix socket. An operator that is run by hand serves the same itself.
"""

import asyncio
import errno
import json
import logging
import os
import signal
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from aiohttp import web

from rewardpool_operator import logs, operator_socket
from rewardpool_operator.healthy import without_names
from rewardpool_operator.kubernetes.page.access import TokenAccess
from rewardpool_operator.kubernetes.page.api_server import Address, ApiServer
from rewardpool_operator.kubernetes.page.reviews import Reviews
from rewardpool_operator.kubernetes.page.source import ClusterSource
from rewardpool_operator.logs import LogFormat
from rewardpool_operator.operator_socket import HEALTH_PATH, METRICS_PATH, OPENMETRICS_PATH, POOLS_PATH, Ask
from rewardpool_page.server import page_app
from rewardpool_runtime.http_server import Runner
from rewardpool_worker.engine_side.worker_metrics import encoder_for

log = logging.getLogger(__name__)

LOOPBACK_ADDRESSES: Final = frozenset({"127.0.0.1", "::1", "::ffff:127.0.0.1"})
HTTP_SHUTDOWN_SECONDS: Final = 2.0
# The path alone by which the front is restarted: it answers whatever the operator does.
ALIVE: Final = "/livez"
FORMATS: Final = {METRICS_PATH: "", OPENMETRICS_PATH: "application/openmetrics-text; version=1.0.0"}


@dataclass(frozen=True, kw_only=True)
class Ports:
    """Ports of all addresses; None serves none."""

    health: int | None = None
    metrics: int | None = None
    page: int | None = None


@dataclass(frozen=True, kw_only=True)
class FrontOptions:
    """Settings of the front: the options of `rewardpool operator front`."""

    socket: Path
    ports: Ports
    namespaces: Sequence[str] = ()
    """Namespaces that the operator serves, for the page to say so; none of them means all."""
    cluster_ca: Path | None = None
    """Certificates that the API server is known by; None for those of the system."""
    log_format: LogFormat = "text"
    verbose: bool = False


async def serve(
    ask: Ask, ports: Ports, stack: AsyncExitStack, *, address: Callable[[], Address], namespaces: Sequence[str]
) -> None:
    """Serve what the operator answers at these ports until the stack ends.

    Args:
        address: Returns that of the API server, for the page.

    Raises:
        SystemExit: A port is taken.
    """
    for application, port in ((health_app(ask), ports.health), (metrics_app(ask), ports.metrics)):
        if port is not None:
            await _listen(application, port, stack)
    if ports.page is not None:
        server = await stack.enter_async_context(ApiServer.open(address()))
        source = await stack.enter_async_context(
            ClusterSource.open(partial(ask, POOLS_PATH), server, namespaces=namespaces)
        )
        await _listen(page_app(source, TokenAccess(Reviews(server))), ports.page, stack)


def health_app(ask: Ask) -> web.Application:
    """Serves /healthz; what names pools and namespaces is for the pod's own loopback alone, as a forwarded port is."""

    async def healthz(request: web.Request) -> web.Response:
        try:
            said = json.loads(await ask(HEALTH_PATH))
        except OSError as error:
            said = {"ok": False, "problem": str(error)}
        if request.remote not in LOOPBACK_ADDRESSES:
            said = without_names(said)
        return web.json_response(said, status=200 if said["ok"] else 503)

    async def livez(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    application = web.Application()
    application.router.add_get("/healthz", healthz)
    application.router.add_get(ALIVE, livez)
    return application


def metrics_app(ask: Ask) -> web.Application:
    """Serves /metrics."""

    async def metrics(request: web.Request) -> web.Response:
        _, wanted = encoder_for(request.headers.get("Accept", ""))
        path = OPENMETRICS_PATH if wanted.startswith("application/openmetrics-text") else METRICS_PATH
        try:
            body = await ask(path)
        except OSError as error:
            raise web.HTTPServiceUnavailable(text=f"{error}\n") from None
        response = web.Response(body=body, headers={"Content-Type": encoder_for(FORMATS[path])[1]})
        response.enable_compression()
        return response

    application = web.Application()
    application.router.add_get("/metrics", metrics)
    return application


async def _listen(application: web.Application, port: int, stack: AsyncExitStack) -> None:
    runner = Runner(application, shutdown_timeout=HTTP_SHUTDOWN_SECONDS)
    stack.push_async_callback(runner.cleanup)
    await runner.setup()
    try:
        await web.TCPSite(runner, port=port).start()
    except OSError as error:
        why = os.strerror(error.errno or errno.EIO)
        raise SystemExit(f"port {port} cannot be listened at: {why}") from None


async def _serve(settings: FrontOptions) -> None:
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    address = partial(Address.of_pod, settings.cluster_ca)
    async with AsyncExitStack() as stack:
        ask = partial(operator_socket.request, settings.socket)
        await serve(ask, settings.ports, stack, address=address, namespaces=settings.namespaces)
        log.info("the front runs, of the operator at %s", settings.socket)
        await stopped.wait()


def run(settings: FrontOptions) -> None:
    """`rewardpool operator front`; see `_serve`."""
    logs.set_up(settings.log_format, verbose=settings.verbose)
    asyncio.run(_serve(settings))
