"""The Unix socket at which the operator answers the front and the kubelet's probe, which then need none of its rights.

Asked for is one of a few paths, in a line of its own; the answer is its length in a line, and its bytes. There are no
headers and no arguments to read. One is answered at a time, and then as long a pause is made as that took: whoever asks
on and on has half of the operator's time at most.
"""

import asyncio
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from time import monotonic
from typing import Final

log = logging.getLogger(__name__)

HEALTH_PATH: Final = "/healthz"
METRICS_PATH: Final = "/metrics"
OPENMETRICS_PATH: Final = "/openmetrics"
POOLS_PATH: Final = "/pools"
MAX_LINE: Final = 64  # bytes of a question, and of an answer's length
MAX_ANSWER: Final = 128 << 20  # bytes; a thousand pools, or their metrics, have some MiB
SECONDS: Final = 10.0
ACCEPT_PAUSE_SECONDS: Final = 1.0

Answers = Mapping[str, Callable[[], Awaitable[bytes]]]
Ask = Callable[[str], Awaitable[bytes]]
"""Returns the answer to a path. Raises OSError where there is none."""


def listen(path: Path) -> socket.socket:
    """Make the socket; one that was left there by a process before is replaced.

    Raises:
        OSError: It cannot be made there, as where there is something else.
    """
    if path.is_socket():
        path.unlink()
    listener = socket.socket(socket.AF_UNIX)
    listener.setblocking(False)
    try:
        listener.bind(os.fspath(path))
        listener.listen()
    except OSError:
        listener.close()
        raise
    return listener


async def serve(listener: socket.socket, answers: Answers, *, seconds: float = SECONDS) -> None:
    """Answer whoever connects, until cancelled."""
    while True:
        try:
            connection, _ = await asyncio.get_running_loop().sock_accept(listener)
        except OSError as error:  # as where no file may be opened now
            log.warning("the socket %s takes no connection, and is tried again: %s", listener.getsockname(), error)
            await asyncio.sleep(ACCEPT_PAUSE_SECONDS)
            continue
        began = monotonic()
        with connection:
            try:
                async with asyncio.timeout(seconds):
                    await _answer(connection, answers)
            except (OSError, TimeoutError) as error:
                log.debug("a question at the socket was not answered: %s", error)
            except Exception:
                log.exception("a question at the socket was not answered")
        await asyncio.sleep(monotonic() - began)


async def _answer(connection: socket.socket, answers: Answers) -> None:
    loop = asyncio.get_running_loop()
    connection.setblocking(False)
    line = b""
    while not line.endswith(b"\n") and len(line) < MAX_LINE:
        part = await loop.sock_recv(connection, MAX_LINE - len(line))
        if not part:
            return
        line += part
    answer = answers.get(line.removesuffix(b"\n").decode(errors="replace"))
    if answer is not None:
        said = await answer()
        await loop.sock_sendall(connection, b"%d\n%b" % (len(said), said))


async def request(path: Path, what: str) -> bytes:
    """Return what the operator at this socket answers.

    Raises:
        OSError: It does not answer.
    """
    try:
        async with asyncio.timeout(2 * SECONDS):
            reader, writer = await asyncio.open_unix_connection(path)
            try:
                writer.write(f"{what}\n".encode())
                length = int(await reader.readline())
                if length > MAX_ANSWER:
                    raise ValueError(f"an answer of {length} bytes")
                return await reader.readexactly(length)
            finally:
                writer.close()
    except (OSError, TimeoutError, ValueError, asyncio.IncompleteReadError) as error:
        log.debug("%s at %s: %s", what, path, error)
        raise OSError("the operator does not answer") from None
