"""A network in memory: the client's own sockets end here, and every byte between it and the routers passes by.

    client -> `Connector` -> the event loop: `sock_connect`, `create_connection` -> a `Cable` -> a `Server`

Only the event loop is another one; the client and aiohappyeyeballs run as they are. What is sent arrives later, in its
order. A wire that is cut loses nothing for good: as with TCP, what was sent meanwhile arrives some time after its end,
and a connection that is asked for meanwhile is tried again after 1, 3 and 7 seconds.
"""

import asyncio
import random
import socket
from collections.abc import Callable
from typing import Any, Final, Protocol

from simulation.virtual_time import Clock, VirtualLoop

from rewardpool_api.contract import REQUEST_ID_HEADER

Address = tuple[str, int]
LATENCY_SECONDS: Final = (0.0001, 0.001)
ID_HEADER: Final = f"{REQUEST_ID_HEADER}: ".encode()
SYN_SECONDS: Final = (0.0, 1.0, 3.0, 7.0, 15.0)
"""After which the first packet of a connection is sent, again and again."""


class Server(Protocol):
    """A process that listens at an address."""

    def received(self, cable: "Cable", data: bytes) -> None:
        """Bytes arrived."""

    def left(self, cable: "Cable") -> None:
        """The client closed the connection."""


class Network:
    """Who listens where, and which wires are cut."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.servers: dict[Address, Server] = {}
        self.names: dict[str, list[str]] = {}
        self.latency = LATENCY_SECONDS
        self.reached: dict[socket.socket, Address] = {}
        self.open: dict[Cable, None] = {}
        """By the client."""
        self.connections = 0
        """That were made."""
        self.busy: dict[Cable, bytes] = {}
        """Those that wait for an answer, each with the id of its request."""
        self.most_busy = 0
        self.most_ids = 0
        """Different ones at a time."""
        self.undelivered = 0
        """Requests over new connections that were reset before the requests arrived."""
        self._cut: dict[Address, list[Callable[[], None]]] = {}
        self._cut_at: dict[Address, float] = {}

    def listen(self, address: Address, server: Server) -> None:
        self.servers[address] = server

    def stop(self, address: Address) -> None:
        """The process there ends: what is open is reset, and nobody listens."""
        self.servers.pop(address, None)
        for cable in [cable for cable in self.open if cable.address == address]:
            cable.reset()

    def asks(self, cable: "Cable", data: bytes) -> None:
        """Note a request that leaves the client."""
        begin = data.find(ID_HEADER)
        if begin < 0:
            return
        begin += len(ID_HEADER)
        self.busy[cable] = data[begin : data.find(b"\r", begin)]
        if len(self.busy) > self.most_busy:
            self.most_busy = len(self.busy)
        if len(self.busy) > self.most_ids:
            self.most_ids = max(self.most_ids, len(set(self.busy.values())))

    def cut(self, address: Address, now: float) -> None:
        if address not in self._cut:
            self._cut[address] = []
            self._cut_at[address] = now

    def heal(self, address: Address, loop: asyncio.AbstractEventLoop) -> None:
        """Packets pass again; what was sent meanwhile is sent again, each connection in its own time."""
        waiting = self._cut.pop(address, None)
        if waiting is None:
            return
        longest = 0.2 + loop.time() - self._cut_at.pop(address)
        delays: dict[int, float] = {}
        for arrive in waiting:
            cable = id(getattr(arrive, "__self__", arrive))
            delay = delays.setdefault(cable, self.chance.uniform(0.0, longest))
            loop.call_later(delay, arrive)

    def is_cut(self, address: Address) -> bool:
        return address in self._cut

    def hold(self, address: Address, arrive: Callable[[], None]) -> None:
        self._cut[address].append(arrive)

    def delay(self) -> float:
        return self.chance.uniform(*self.latency)

    async def connect(self, address: Address) -> None:
        """Return when a connection is made. Raises ConnectionRefusedError."""
        waited = 0.0
        for seconds in SYN_SECONDS:
            await asyncio.sleep(seconds - waited)
            waited = seconds
            if not self.is_cut(address):
                break
        else:
            raise TimeoutError("no answer")
        await asyncio.sleep(2 * self.delay())
        if address not in self.servers:
            raise ConnectionRefusedError(111, "Connection refused")


class NetworkLoop(VirtualLoop):
    """Virtual time, and sockets that end in a `Network`."""

    def __init__(self, clock: Clock, network: Network) -> None:
        super().__init__(clock)
        self.network = network
        self.problems: list[str] = []
        """What nobody handled."""
        self.turns = 0
        self.set_exception_handler(self._note)

    def _run_once(self) -> None:
        self.turns += 1
        super()._run_once()  # type: ignore[misc]  # asyncio's own

    def _note(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.problems.append(f"{context.get('message')}: {context.get('exception')!r}")

    async def sock_connect(self, sock: socket.socket, address: Any) -> None:
        await self.network.connect(address[:2])
        self.network.reached[sock] = address[:2]

    async def create_connection(self, factory: Any, *_: Any, sock: Any = None, **__: Any) -> Any:  # type: ignore[override]
        address = self.network.reached.pop(sock)
        protocol = factory()
        cable = Cable(self, sock, address, protocol)
        protocol.connection_made(cable)
        return cable, protocol

    async def getaddrinfo(self, host: Any, port: Any, **_: Any) -> Any:
        await asyncio.sleep(self.network.delay())
        if host not in self.network.names:
            raise socket.gaierror(-2, "Name or service not known")
        found = self.network.names[host]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in found]


class Cable(asyncio.Transport):
    """One connection: the client's end is a transport, the server's has `answer`, `end` and `reset`."""

    def __init__(self, loop: NetworkLoop, sock: socket.socket, address: Address, protocol: Any) -> None:
        super().__init__()
        self.address = address
        self.is_over = False
        """The server's end is closed, or was told that the client's is."""
        self.is_kept = False
        """An answer went over it."""
        self.buffer = b""
        """What the server has of a request that is not whole."""
        self.on_it: list[Any] = []
        """Requests that the server has not answered, for it to keep."""
        self._loop = loop
        self._network = loop.network
        self._sock = sock
        self._protocol = protocol
        self._is_closing = False
        self._up_at = 0.0
        self._down_at = 0.0
        self._up: list[Any] = []
        self._down: list[Any] = []
        self._network.open[self] = None
        self._network.connections += 1

    # The client's end.

    def write(self, data: Any) -> None:
        if not self._is_closing:
            self._network.asks(self, data)
            self._send_up(data)

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        """Everything that was written has left already."""
        self._close(None)

    def abort(self) -> None:
        self._close(None)

    def _close(self, error: Exception | None) -> None:
        if self._is_closing:
            return
        self._is_closing = True
        self._network.open.pop(self, None)
        self._network.busy.pop(self, None)
        self._loop.call_soon(self._lost, error)
        if error is None:
            self._send_up(None)

    def _lost(self, error: Exception | None) -> None:
        self._protocol.connection_lost(error)
        self._protocol = None
        self._sock.close()

    # Between them: None is the end of what is sent, an exception a reset.

    def _send_up(self, data: bytes | None) -> None:
        self._up.append(data)
        self._up_at = max(self._up_at, self._loop.time() + self._network.delay())
        self._loop.call_at(self._up_at, self._arrive_up)

    def _arrive_up(self) -> None:
        if self._network.is_cut(self.address):
            self._network.hold(self.address, self._arrive_up)
            return
        data = self._up.pop(0)
        server = self._network.servers.get(self.address)
        if data is not None and (self.is_over or server is None) and not self.is_kept:
            self._network.undelivered += 1
        if self.is_over:
            return
        if server is None:
            self.reset()
        elif data is None:
            self.is_over = True
            server.left(self)
        else:
            server.received(self, data)

    def _send_down(self, data: Any, *, is_last: bool) -> None:
        self._down.append((data, is_last))
        self._down_at = max(self._down_at, self._loop.time() + self._network.delay())
        self._loop.call_at(self._down_at, self._arrive_down)

    def _arrive_down(self) -> None:
        if self._network.is_cut(self.address):
            self._network.hold(self.address, self._arrive_down)
            return
        data, is_last = self._down.pop(0)
        if is_last:
            self._network.busy.pop(self, None)
        if self._is_closing:
            return
        if data is None:
            self._protocol.eof_received()
            self._close(None)
        elif isinstance(data, Exception):
            self._close(data)
        else:
            self._protocol.data_received(data)

    # The server's end.

    def answer(self, data: bytes, *, is_last: bool = True) -> None:
        """Send a part of an answer."""
        if not self.is_over:
            self.is_kept = is_last
            self._send_down(data, is_last=is_last)

    def end(self) -> None:
        """Close it when all that was answered has arrived."""
        if not self.is_over:
            self.is_over = True
            self._send_down(None, is_last=True)

    def reset(self) -> None:
        """The server's process is gone."""
        if not self.is_over:
            self.is_over = True
            self._send_down(ConnectionResetError(104, "Connection reset by peer"), is_last=True)
