"""16,384 samples in flight: more than one router may have open files for, so there are several behind one name.

    client -> routers.bench: 127.0.0.1, .2, .3 -> a router at each -> the same workers

A router needs two files for a request, so three of them share the crowd, as replicas behind a Service do. Here the name
is known to this process alone. Each way has its turn alone and closes its connections, for two of them would need more
files than this process may have.
"""

import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final
from unittest import mock

from support.fleet import Fleet
from support.ports import free_port

from client_cost.stage import Stage

NAME: Final = "routers.bench"
HOSTS: Final = ("127.0.0.1", "127.0.0.2", "127.0.0.3")
FILES_FOR_OTHERS: Final = 512


def files_needed(concurrency: int) -> int:
    """Open files that this process needs, or one of the routers, whichever is more."""
    return max(concurrency, 2 * -(-concurrency // len(HOSTS))) + FILES_FOR_OTHERS


@asynccontextmanager
async def behind_more_routers(stage: Stage, folder: Path) -> AsyncIterator[Stage]:
    """The same workers behind a router at each of `HOSTS`."""
    port = free_port()
    urls = [worker.url for worker in stage.workers]
    async with AsyncExitStack() as stack:
        for host in HOSTS:
            (folder / host).mkdir(parents=True)
            fleet = Fleet(folder / host, workers=0, others=urls, key=stage.key_file.read_text(), host=host)
            fleet.router.move(port)
            await stack.enter_async_context(fleet)
        stack.enter_context(named(port))
        yield replace(stage, router=f"http://{NAME}:{port}")


@contextmanager
def named(port: int) -> Iterator[None]:
    """Within this block the name has all of their addresses."""
    look_up = socket.getaddrinfo

    def with_name(host: Any, *args: Any, **options: Any) -> Any:
        if host != NAME:
            return look_up(host, *args, **options)
        kind = (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "")
        return [(*kind, (address, port)) for address in HOSTS]

    with mock.patch.object(socket, "getaddrinfo", with_name):
        yield
