"""StandInService: one address in front of several routers, which kube-proxy would be on a node.

Each new connection goes to any of the endpoints there are just then; connections that are open stay where they are.
Kubernetes itself takes no loopback address for an endpoint.
"""

import asyncio
import contextlib
import random
import threading
from collections.abc import Callable, Sequence
from typing import Any, Self

from rewardpool_api import names

LOOK_SECONDS = 0.3

Endpoints = Sequence[tuple[str, int]]
"""Host and port of each."""


class StandInService:
    """Forwards connections, in threads of its own; a context manager.

    Args:
        look: says which endpoints there are, again and again.

    Attributes:
        url: its address.
    """

    def __init__(self, look: Callable[[], Endpoints]) -> None:
        self._look = look
        self._endpoints = look()
        self._loop = asyncio.new_event_loop()
        self._done = threading.Event()
        self._threads = [threading.Thread(target=self._loop.run_forever), threading.Thread(target=self._look_on)]
        self.url = ""

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        self.url = asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(timeout=10)
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._loop.call_soon_threadsafe(self._loop.stop)
        for thread in self._threads:
            thread.join(timeout=20)

    def _look_on(self) -> None:
        while not self._done.wait(LOOK_SECONDS):
            self._endpoints = self._look()

    async def _listen(self) -> str:
        server = await asyncio.start_server(self._forward, "127.0.0.1", 0)
        return f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(*random.choice(self._endpoints))
        except (OSError, IndexError):
            writer.transport.abort()
            return
        await asyncio.gather(_pump(reader, far_writer), _pump(far_reader, writer))


def ready_routers(pods: Sequence[dict[str, Any]]) -> Endpoints:
    """The router pods that would be endpoints: ready, and not on their way out."""
    return [(pod["status"]["podIP"], names.ROUTER_PORT) for pod in pods if takes_connections(pod)]


def takes_connections(pod: dict[str, Any]) -> bool:
    ready = next((item["status"] for item in pod["status"].get("conditions", []) if item["type"] == "Ready"), "False")
    return ready == "True" and "deletionTimestamp" not in pod["metadata"]


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    writer.close()
