"""Holding a pool of this machine awake: a locked file in its folder, and its status that says what came of it.

    hold a file -> the supervisor wakes the engines -> status: this file's name, Awake -> samples are scored
    remove it   -> off the router, nothing in flight, asleep -> status: without the name, Asleep -> the GPU is free

Several processes may hold a pool; it sleeps when the last one lets go. The kernel drops the lock with the process, so a
trainer that is killed keeps no engine awake. A name is used once, so that no earlier status is taken for an answer.
"""

import asyncio
import fcntl
import os
import secrets
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from rewardpool._discovery.endpoint import Endpoint
from rewardpool._discovery.pool_sources import LocalSource, PoolNotHere
from rewardpool.errors import ConfigError, PoolAccessError, PoolNotReadyError
from rewardpool_runtime.state_files import AWAKE_DIR

if TYPE_CHECKING:
    from rewardpool_api import RewardPool
    from rewardpool_api.status import SleepStatus

LOOK_SECONDS = 0.02
# Time for the engines to wake, or to fall asleep. One that lost its weights is started again meanwhile.
WITHIN_SECONDS = 600.0


class Hold:
    """File that keeps a pool awake for as long as this process lives, or until it is released."""

    def __init__(self, folder: Path) -> None:
        """Keep the pool with this folder awake. Raises PoolAccessError where the folder cannot be written."""
        self.name = f"{os.getpid()}-{secrets.token_hex(4)}"
        self._path = folder / AWAKE_DIR / self.name
        unnamed = self._path.with_name("." + self.name)
        try:
            self._file: BinaryIO = unnamed.open("xb")
            # Locked before it has its name: a file that nobody has locked is taken for one of a dead process.
            fcntl.flock(self._file, fcntl.LOCK_EX)
            unnamed.rename(self._path)
        except OSError as error:
            raise PoolAccessError(f"the pool cannot be kept awake: {error}") from error

    def release(self) -> None:
        self._path.unlink(missing_ok=True)
        # A child of this process may have inherited the file, so closing it here would not be enough.
        fcntl.flock(self._file, fcntl.LOCK_UN)
        self._file.close()


class Awake:
    """Keeps one pool awake for any number of tasks."""

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Hold nothing yet; `clock` is monotonic seconds."""
        self._clock = clock
        self._sleep = sleep
        self._tasks = 0
        self._hold: Hold | None = None
        self._turn = asyncio.Lock()

    @asynccontextmanager
    async def hold(self, endpoint: Endpoint, *, within_seconds: float) -> AsyncGenerator[None, None]:
        source = await _source_of(endpoint)
        if source is None:
            yield
            return
        self._tasks += 1
        try:
            async with self._turn:
                if self._hold is None:
                    self._hold = await self._acquire(source, endpoint.pool, within_seconds)
            yield
        finally:
            self._tasks -= 1
            async with self._turn:
                if self._tasks == 0 and self._hold is not None:
                    hold, self._hold = self._hold, None
                    await self._release(hold, source, endpoint.pool, within_seconds)

    async def _acquire(self, source: LocalSource, pool: str, within_seconds: float) -> Hold:
        hold = Hold(source.folder(*_parts(pool)))
        try:
            await self._until(
                source,
                pool,
                lambda status, ready: hold.name in status.holders and status.state == "Awake" and ready,
                within_seconds,
                what="wake",
            )
        except BaseException:
            hold.release()
            raise
        return hold

    async def _release(self, hold: Hold, source: LocalSource, pool: str, within_seconds: float) -> None:
        hold.release()
        await self._until(
            source,
            pool,
            # Held by another process, it is that one's turn to see it asleep.
            lambda status, _: hold.name not in status.holders and status.state == "Asleep",
            within_seconds,
            what="fall asleep",
        )

    async def _until(
        self,
        source: LocalSource,
        pool: str,
        holds: Callable[["SleepStatus", bool], bool],
        within_seconds: float,
        *,
        what: str,
    ) -> None:
        deadline = self._clock() + within_seconds
        while True:
            found = await _read(source, pool)
            serving = found.status.condition("Serving")
            if found.status.sleep is not None and holds(
                found.status.sleep, serving is not None and serving.status == "True"
            ):
                return
            if self._clock() >= deadline:
                said = f"{serving.reason}: {serving.message}" if serving else "it has no status"
                raise PoolNotReadyError(f"RewardPool {pool} did not {what} within {within_seconds:g} s ({said})")
            await self._sleep(LOOK_SECONDS)


async def _source_of(endpoint: Endpoint) -> LocalSource | None:
    """Return the source of a pool whose engines can sleep; None for one that never sleeps.

    Raises:
        ConfigError: The pool is to sleep, or may be, and is in no place where that can be done.
    """
    if endpoint.source is None:
        raise ConfigError("pool", "name the pool: by its URL alone it cannot be kept awake")
    found = await endpoint.source.read_pool(*_parts(endpoint.pool))
    if not found.spec.engine.sleep.enabled:
        return None
    if not isinstance(endpoint.source, LocalSource):
        raise ConfigError(
            "spec.engine.sleep.enabled",
            f"RewardPool {endpoint.pool} is in {endpoint.source}, where nobody wakes engines: set it to false, or start"
            " the pool on the trainer's machine with `rewardpool up`",
        )
    return endpoint.source


async def sleeping_folder(endpoint: Endpoint) -> Path | None:
    """Return what `Pool.sleeping_folder` does. Raises PoolError where the pool cannot be read."""
    if not isinstance(endpoint.source, LocalSource):
        return None
    found = await _read(endpoint.source, endpoint.pool)
    return endpoint.source.folder(*_parts(endpoint.pool)) if found.spec.engine.sleep.enabled else None


async def _read(source: LocalSource, pool: str) -> "RewardPool":
    try:
        return await source.read_pool(*_parts(pool))
    except PoolNotHere as absence:
        raise PoolNotReadyError(f"RewardPool {pool} is gone: {absence}") from absence


def _parts(pool: str) -> tuple[str, str]:
    namespace, _, name = pool.partition("/")
    return namespace, name
