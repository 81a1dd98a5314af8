"""A gateway from its start to SIGTERM."""

import asyncio
import ipaddress
import os
import secrets
import signal
from collections.abc import Callable
from pathlib import Path

from aiohttp import web

from rewardpool.errors import ConfigError
from rewardpool_api.names import GATEWAY_GRACE_SECONDS
from rewardpool_runtime.http_server import Runner


def parse_listen(listen: str) -> tuple[str, int]:
    """Return host and port of `HOST:PORT`, an IPv6 address in brackets. Raises ConfigError for another form."""
    host, separator, port = listen.rpartition(":")
    if not separator or not host or not port.isdecimal() or int(port) > 65_535:
        raise ConfigError("--listen", f"must be HOST:PORT, not {listen}")
    return host.removeprefix("[").removesuffix("]"), int(port)


def key_for(host: str, key_file: Path | None) -> str | None:
    """The key that callers of a gateway at this address must present; None for none, on loopback only.

    A file that does not exist is made, with 256 random bits in it, readable by its owner.

    Raises:
        ConfigError: An address that others reach, and no file; or one that cannot be read, or is empty.
    """
    if key_file is None:
        if not _is_loopback(host):
            raise ConfigError("--key-file", f"is needed, as others reach {host}; a new file is filled with a new key")
        return None
    try:
        if not key_file.exists():
            descriptor = os.open(key_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w") as file:
                file.write(secrets.token_urlsafe(32))
        key = key_file.read_text(encoding="ascii").strip()
    except OSError as error:
        raise ConfigError("--key-file", f"{key_file} cannot be used: {error.strerror}; give another file") from None
    except UnicodeDecodeError:
        raise ConfigError("--key-file", f"{key_file} is no key: it is not text in ASCII; give another file") from None
    if not key:
        raise ConfigError("--key-file", f"{key_file} is empty; remove it to get a new key")
    return key


async def serve(app: web.Application, *, host: str, port: int, timeout: float, ready: Callable[[str], None]) -> None:
    """Serve until SIGTERM or SIGINT; then no new connection is taken and requests in flight get their answers.

    Args:
        port: 0 for a free one.
        timeout: Seconds for one sample.
        ready: Called with the base URL once it listens.

    Raises:
        ConfigError: It cannot listen there.
        RewardPoolError: The reward cannot be opened.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    # Who has gone does not wait for a score any more: its work is cancelled, or its retry would be scored twice.
    runner = Runner(app, handler_cancellation=True, shutdown_timeout=timeout + GATEWAY_GRACE_SECONDS)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, host, port).start()
        except OSError as error:
            # asyncio says the address once more; a name that is not known has a number of its own, below zero.
            why = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
            raise ConfigError("--listen", f"cannot listen at {host}:{port}: {why}; give another HOST:PORT") from None
        bound_host, bound_port = runner.addresses[0][:2]
        ready(f"http://{f'[{bound_host}]' if ':' in bound_host else bound_host}:{bound_port}")
        await stop.wait()
    finally:
        await runner.cleanup()


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
