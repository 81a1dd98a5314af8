"""The addresses of names, looked up once for all who ask within some seconds: a flood opens many connections."""

import asyncio
import socket
from collections.abc import Callable
from functools import lru_cache

from aiohappyeyeballs import AddrInfoType

RESOLVE_SECONDS = 10.0


class Addresses:
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
