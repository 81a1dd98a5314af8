"""New connections to an origin, some at a time.

A burst of thousands of requests wants a connection for each. Opened all at once they overflow the queue in which the
router's system keeps what the router has not accepted: what does not fit is dropped, and tried again after 1, 3 and 7
seconds. So requests take turns; one that waits goes on a connection that is answered meanwhile. Silence ends the wait
of all that waited through it: the address of a pod that is gone does not refuse, it is silent.

Names are resolved and addresses tried by aiohappyeyeballs, as aiohttp does.
"""

import asyncio
import math
import os
import socket
import ssl
from collections import deque
from collections.abc import Callable
from functools import lru_cache
from typing import Generic, TypeVar

import aiohappyeyeballs
from aiohappyeyeballs import AddrInfoType

from rewardpool_runtime.listeners import check_listener

# Limit of one connection; and of a turn, where no other connection to that origin was made meanwhile.
CONNECT_SECONDS = 5.0
# Connections to one origin in the making. Servers keep 128 to 4,096 that they have not accepted yet.
AT_A_TIME = 128
# After this time the next address of a name is tried beside one that is silent (RFC 8305).
NEXT_ADDRESS_SECONDS = 0.25
# The addresses of a name are good for this long.
RESOLVE_SECONDS = 10.0

# Host, port, verification of its certificate (None for plain HTTP), and whether the listener must be this user.
Origin = tuple[str, int, ssl.SSLContext | None, bool]

P = TypeVar("P", bound=asyncio.Protocol)
W = TypeVar("W")


class UnreachableError(Exception):
    """The connection failed, or its other end does not speak HTTP."""


class Turns(Generic[W]):
    """Queue for new connections to one origin. Pure: times are arguments."""

    def __init__(self) -> None:
        self._making = 0
        self._connected_at = -math.inf
        self._waiting: deque[tuple[W, float]] = deque()

    def acquire(self, one: W, *, now: float) -> bool:
        """Return whether it is this caller's turn; if not, the caller waits for it."""
        if self.are_free:
            self._making += 1
            return True
        self._waiting.append((one, now))
        return False

    def release(self, *, connected: bool, now: float) -> list[W]:
        """A turn is over; returns who waited in vain: since before a connection was made last, and for too long."""
        self._making -= 1
        if connected:
            self._connected_at = now
            return []
        limit = now - CONNECT_SECONDS
        in_vain = []
        while self._waiting and max(self._waiting[0][1], self._connected_at) <= limit:
            in_vain.append(self._waiting.popleft()[0])
        return in_vain

    def next(self) -> W | None:
        return self._waiting.popleft()[0] if self._waiting else None

    @property
    def are_free(self) -> bool:
        return self._making < AT_A_TIME


class Addresses:
    """The addresses of names, looked up once for all who ask within some seconds: a flood opens many connections."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._known: dict[tuple[str, int], tuple[float, asyncio.Task[list[AddrInfoType]]]] = {}

    async def resolve(self, host: str, port: int) -> list[AddrInfoType]:
        """Return the addresses, beginning with another one each time, so that connections spread. Raises OSError."""
        if numeric := _numeric(host, port):
            return list(numeric)
        now = self._clock()
        known = self._known.get((host, port))
        if known is None or known[0] <= now or (known[1].done() and known[1].exception() is not None):
            looking = asyncio.create_task(_look_up(host, port))
            known = self._known[host, port] = (now + RESOLVE_SECONDS, looking)
        found = await asyncio.shield(known[1])  # whoever gives up does not take it away from the others
        found.append(found.pop(0))
        return list(found)

    def forget(self, host: str, port: int) -> None:
        self._known.pop((host, port), None)


async def _look_up(host: str, port: int) -> list[AddrInfoType]:
    return list(await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM))


@lru_cache(maxsize=64)
def _numeric(host: str, port: int) -> tuple[AddrInfoType, ...]:
    """The address that a host is already, for which no thread has to look; none for a name."""
    try:
        return tuple(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST))
    except socket.gaierror:
        return ()


class Connector:
    """Makes connections, on the running event loop."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock` gives monotonic seconds."""
        self._names = Addresses(clock)
        self._loop = asyncio.get_running_loop()

    async def connect(self, origin: Origin, protocol: Callable[[], P]) -> P:
        """Make a connection. Raises UnreachableError where there is none within 5 s."""
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                return await self._made(origin, protocol)
        except TimeoutError:
            self._names.forget(*origin[:2])
            raise silence() from None
        except OSError as error:
            self._names.forget(*origin[:2])
            raise UnreachableError(in_words(error)) from error

    async def _made(self, origin: Origin, protocol: Callable[[], P]) -> P:
        host, port, tls, is_own = origin
        addresses = await self._names.resolve(host, port)
        delay = NEXT_ADDRESS_SECONDS if len(addresses) > 1 else None
        sock = await aiohappyeyeballs.start_connection(addresses, happy_eyeballs_delay=delay, interleave=1)
        if is_own:
            # After it is made: before, somebody else might listen in between.
            _check(sock, host, port)
        # The socket is the loop's from here on, also when this fails: closed here, its number would be a new
        # connection's while the loop still ends the old one, and the new one would be refused.
        server_hostname = host if tls is not None else None
        _, made = await self._loop.create_connection(protocol, sock=sock, ssl=tls, server_hostname=server_hostname)
        return made


def _check(sock: socket.socket, host: str, port: int) -> None:
    """Close a connection that this user's own programs do not serve. Raises ForeignListenerError."""
    try:
        check_listener(host, port)
    except BaseException:
        sock.close()
        raise


def silence() -> UnreachableError:
    return UnreachableError(f"no connection within {CONNECT_SECONDS:g} s")


def in_words(error: OSError) -> str:
    """Return the reason why no connection can be made, without the system's error number."""
    if isinstance(error, ConnectionError) and error.errno:
        return os.strerror(error.errno)
    return str(error) or type(error).__name__
