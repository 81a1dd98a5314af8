"""StandInService: the address in front of a pool's routers, which kube-proxy would be on a node.

Each new connection goes to any ready router that is not on its way out, as endpoints would have it; connections that
are open stay where they are. Kubernetes itself takes no loopback address for an endpoint.
"""

import asyncio
import contextlib
import json
import random
import threading
from collections.abc import Callable
from typing import Any, Self

from support.operator_cluster import Cluster

from rewardpool_api import names

LOOK_SECONDS = 0.3


class StandInService:
    """Forwards connections to a pool's routers, in a thread of its own; a context manager."""

    def __init__(self, cluster: Cluster, pool: str) -> None:
        self._find: Callable[[], list[dict[str, Any]]] = lambda: cluster.pods(pool, names.COMPONENT_ROUTER)
        self._endpoints: list[str] = []
        self._loop = asyncio.new_event_loop()
        self._done = threading.Event()
        self._threads = [threading.Thread(target=self._loop.run_forever), threading.Thread(target=self._look)]
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

    def _look(self) -> None:
        while not self._done.wait(LOOK_SECONDS):
            # An API server that is busy for a moment leaves the endpoints as they are.
            with contextlib.suppress(json.JSONDecodeError):
                self._endpoints = [pod["status"]["podIP"] for pod in self._find() if takes_connections(pod)]

    async def _listen(self) -> str:
        server = await asyncio.start_server(self._forward, "127.0.0.1", 0)
        return f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            host = random.choice(self._endpoints)
            far_reader, far_writer = await asyncio.open_connection(host, names.ROUTER_PORT)
        except (OSError, IndexError):
            writer.transport.abort()
            return
        await asyncio.gather(_pump(reader, far_writer), _pump(far_reader, writer))


def takes_connections(pod: dict[str, Any]) -> bool:
    """Whether the pod would be a ready endpoint."""
    ready = next((item["status"] for item in pod["status"].get("conditions", []) if item["type"] == "Ready"), "False")
    return ready == "True" and "deletionTimestamp" not in pod["metadata"]


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    writer.close()
