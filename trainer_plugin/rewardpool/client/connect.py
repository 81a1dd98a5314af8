"""New connections to an origin, some at a time.

A burst of thousands of requests wants a connection for each. Opened all at once they overflow the queue in which the
router's system keeps what the router has not accepted: what does not fit is dropped, and tried again after 1, 3 and 7
seconds. So they take turns. A turn that ends in silence ends the wait of all that came before it: the address of a pod
that is gone does not refuse, it is silent.

Names are resolved and addresses tried by aiohappyeyeballs, as aiohttp does.
"""

import asyncio
import os
import ssl
from collections.abc import Callable
from typing import TypeVar

import aiohappyeyeballs

from rewardpool.client.addresses import Addresses

CONNECT_SECONDS = 5.0
"""For one connection; and for a turn, as long as no other connection to that origin is made."""
AT_A_TIME = 128
"""Connections to one origin that are being made. Servers keep 128 to 4,096 that they have not accepted yet."""
NEXT_ADDRESS_SECONDS = 0.25
"""After which the next address of a name is tried beside one that is silent (RFC 8305)."""

Origin = tuple[str, int, ssl.SSLContext | None]
"""Host, port, and what verifies its certificate; None for plain HTTP."""

P = TypeVar("P", bound=asyncio.Protocol)


class UnreachableError(Exception):
    """There is no connection, or who answers on it speaks no HTTP."""


class _Turns:
    """Those of one origin."""

    def __init__(self) -> None:
        self.free = asyncio.Semaphore(AT_A_TIME)
        self.connected_at = 0.0
        """When a connection was made last (the loop's time)."""


class Connector:
    """Makes connections, on the running event loop."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock` gives monotonic seconds."""
        self._names = Addresses(clock)
        self._loop = asyncio.get_running_loop()
        self._turns: dict[Origin, _Turns] = {}

    async def connect(self, origin: Origin, protocol: Callable[[], P]) -> P:
        """Make a connection, in its turn.

        Raises:
            UnreachableError: There is none within 5 s.
        """
        turns = self._turns.setdefault(origin, _Turns())
        try:
            await self._turn(turns)
            try:
                async with asyncio.timeout(CONNECT_SECONDS):
                    made = await self._made(origin, protocol)
                turns.connected_at = self._loop.time()
                return made
            finally:
                turns.free.release()
        except TimeoutError:
            self._names.forget(*origin[:2])
            raise UnreachableError(f"no connection within {CONNECT_SECONDS:g} s") from None
        except OSError as error:
            self._names.forget(*origin[:2])
            raise UnreachableError(in_words(error)) from error

    async def _turn(self, turns: _Turns) -> None:
        """Wait for it while connections are made. Raises TimeoutError when none was for so long."""
        began = self._loop.time()
        while True:
            deadline = max(began, turns.connected_at) + CONNECT_SECONDS
            try:
                async with asyncio.timeout_at(deadline):
                    await turns.free.acquire()
                    return
            except TimeoutError:
                if max(began, turns.connected_at) + CONNECT_SECONDS <= deadline:
                    raise

    async def _made(self, origin: Origin, protocol: Callable[[], P]) -> P:
        host, port, tls = origin
        addresses = await self._names.of(host, port)
        delay = NEXT_ADDRESS_SECONDS if len(addresses) > 1 else None
        sock = await aiohappyeyeballs.start_connection(addresses, happy_eyeballs_delay=delay, interleave=1)
        # The socket is the loop's from here on, also when this fails: closed here, its number would be a new
        # connection's while the loop still ends the old one, and the new one would be refused.
        server_hostname = host if tls is not None else None
        _, made = await self._loop.create_connection(protocol, sock=sock, ssl=tls, server_hostname=server_hostname)
        return made


def in_words(error: OSError) -> str:
    """What keeps a connection from being made, without the system's number for it."""
    if isinstance(error, ConnectionError) and error.errno:
        return os.strerror(error.errno)
    return str(error) or type(error).__name__
