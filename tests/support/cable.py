"""A network cable that can be cut: a TCP forwarder on loopback, in a thread of its own."""

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, Self
from urllib.parse import urlsplit


class Cable:
    """Forwards connections to the address of `url`; a context manager.

    Attributes:
        url: the same URL by way of the cable.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._scheme, self._host, self._port = parts.scheme, parts.hostname, parts.port
        self._near_port = 0
        self._connections: set[asyncio.StreamWriter] = set()
        self._forwarding: set[asyncio.Task[Any]] = set()
        self._server: asyncio.Server | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="cable", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self.repair()
        return self

    def __exit__(self, *_: object) -> None:
        self._do(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=10)

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self._near_port}"

    def cut(self) -> None:
        """Refuse new connections and break those there are."""
        self._do(self._cut())

    def repair(self) -> None:
        """Forward again, on the same port."""
        self._do(self._repair())

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout=10)

    async def _cut(self) -> None:
        if self._server is not None:
            self._server.close()
        for writer in list(self._connections):
            writer.transport.abort()

    async def _end(self) -> None:
        await self._cut()
        if self._forwarding:
            await asyncio.wait(self._forwarding, timeout=5)

    async def _repair(self) -> None:
        self._server = await asyncio.start_server(self._forward, "127.0.0.1", self._near_port)
        self._near_port = self._server.sockets[0].getsockname()[1]

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._forwarding.add(task)
        task.add_done_callback(self._forwarding.discard)
        try:
            far_reader, far_writer = await asyncio.open_connection(self._host, self._port)
        except OSError:
            writer.transport.abort()
            return
        ends = {writer, far_writer}
        self._connections |= ends
        try:
            await asyncio.gather(_pump(reader, far_writer), _pump(far_reader, writer))
        finally:
            self._connections -= ends
            for end in ends:
                end.transport.abort()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.write_eof()
    except OSError:
        # The cut, or an end that hung up; TLS connections take no end of one direction.
        writer.transport.abort()
