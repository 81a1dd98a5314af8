"""A load balancer of one process on aiohttp, of the shape that trainers write for themselves; made for this bench.

python balancer.py --port 18000 http://127.0.0.1:18001 http://127.0.0.1:18002

A request goes to the worker with the fewest unanswered ones. Every five seconds each worker is asked for its health,
and one that fails, or is unhealthy, gets nothing until it is well again. There are five attempts.
"""

import argparse
import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import aiohttp
from aiohttp import web

HEALTH_SECONDS: Final = 5.0
ATTEMPTS: Final = 5
MOST_BYTES: Final = 16 << 20


@dataclass
class Worker:
    """One of them."""

    url: str
    unanswered: int = 0
    is_well: bool = True


class Balancer:
    """Hands requests on."""

    def __init__(self, urls: list[str]) -> None:
        self._workers = [Worker(url) for url in urls]
        self._session: aiohttp.ClientSession

    async def run(self, _: web.Application) -> AsyncIterator[None]:
        """Open the session and look after the workers, as long as the server runs."""
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as self._session:
            looking = asyncio.create_task(self._look())
            yield
            looking.cancel()

    async def health(self, _: web.Request) -> web.Response:
        """Whether it serves."""
        return web.Response()

    async def handle(self, request: web.Request) -> web.Response:
        """Send it to the least busy worker that is well."""
        body = await request.read()
        for _ in range(ATTEMPTS):
            worker = min(self._workers, key=lambda worker: (not worker.is_well, worker.unanswered))
            worker.unanswered += 1
            headers = {"Content-Type": "application/json"}
            try:
                async with self._session.post(worker.url + request.path, data=body, headers=headers) as answer:
                    return web.Response(status=answer.status, body=await answer.read(), content_type="application/json")
            except (aiohttp.ClientError, OSError):
                worker.is_well = False
            finally:
                worker.unanswered -= 1
        return web.Response(status=503)

    async def _look(self) -> None:
        while True:
            for worker in self._workers:
                with suppress(aiohttp.ClientError, OSError):
                    async with self._session.get(f"{worker.url}/health") as answer:
                        worker.is_well = answer.status == 200
            await asyncio.sleep(HEALTH_SECONDS)


def main() -> None:
    """Serve until killed."""
    parser = argparse.ArgumentParser(description="A load balancer of one process.")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("urls", nargs="+")
    given = parser.parse_args()
    balancer = Balancer(given.urls)
    app = web.Application(client_max_size=MOST_BYTES)
    app.cleanup_ctx.append(balancer.run)
    app.router.add_get("/health", balancer.health)
    app.router.add_post("/{path:.*}", balancer.handle)
    web.run_app(app, host="127.0.0.1", port=given.port, access_log=None, backlog=4096, print=None)


if __name__ == "__main__":
    main()
