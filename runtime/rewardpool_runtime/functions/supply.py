"""Keeps processes for a function's calls: a parent that lives, and as many of its children as wait for calls.

One task asks the parent, for all: to end what has served, and to fork what is missing. A parent that dies is replaced.
"""

import asyncio
import contextlib
import logging
import os
import random
import signal
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from rewardpool_runtime.functions.limits import CallLimits
from rewardpool_runtime.functions.load import FunctionLoadError
from rewardpool_runtime.functions.parent import Loaded, Parent, ParentEndedError
from rewardpool_runtime.functions.process import FunctionProcess, Printed, ProcessEndedError
from rewardpool_runtime.functions.source import FunctionSource
from rewardpool_runtime.functions.zygote import MAX_FORKS
from rewardpool_runtime.guard.function import Boundary

log = logging.getLogger("rewardpool.functions")

RESERVE: Final = 2
WAIT_SECONDS: Final = 60.0
PAUSE_SECONDS: Final = (0.1, 10.0)
"""Shortest and longest pause before a parent that died is started again, or asked again; doubled each time."""
HEALTHY_SECONDS: Final = 30.0  # a parent that lived for so long and then died is not a failed start


class NoProcessError(Exception):
    """No process could be had in time."""


class Supply:
    """Processes with the function in them; used on one event loop."""

    def __init__(
        self,
        source: FunctionSource,
        *,
        limits: CallLimits,
        env: Mapping[str, str],
        further: Collection[str],
        printed: Printed,
        boundary: Boundary | None,
    ) -> None:
        """See `ProcessRunner`."""
        self._boundary = boundary
        self._source = source
        self._limits = limits
        self._env = env
        self._further = tuple(further)
        self._printed = printed
        self.imports_itself = False
        """True if each process imports the function: what has threads after that cannot be forked."""
        self._size = 0
        self._parent: Parent | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._work = asyncio.Event()
        self._waiting: deque[FunctionProcess] = deque()
        self._wanted: deque[asyncio.Future[FunctionProcess]] = deque()
        self._live: dict[int, FunctionProcess] = {}
        self._to_end: set[int] = set()
        self._to_reap: dict[int, asyncio.Future[int | None]] = {}
        self._starting: set[asyncio.Task[None]] = set()

    async def start(self) -> Loaded:
        """Start the parent with the function; raises FunctionLoadError."""
        try:
            self._parent, loaded = await self._started()
        except (OSError, ParentEndedError) as error:
            raise FunctionLoadError(f"cannot load the function {self._source.name}: {error}") from None
        self._keeper = asyncio.create_task(self._keep(self._parent))
        self._keeper.add_done_callback(_report)
        return loaded

    def keep(self, size: int) -> None:
        """Keep so many processes that serve or wait from now on, and the reserve."""
        self._size = size + RESERVE
        self._work.set()

    async def acquire(self) -> FunctionProcess:
        """Return a process for a call, to be put back or ended; raises NoProcessError."""
        while self._waiting:
            process = self._waiting.popleft()
            if not process.has_ended:
                return process
            self.end(process)
        wanted: asyncio.Future[FunctionProcess] = asyncio.get_running_loop().create_future()
        self._wanted.append(wanted)
        self._work.set()
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                return await wanted
        except TimeoutError:
            raise NoProcessError(f"none of the function's processes was there within {WAIT_SECONDS:g} s") from None
        except asyncio.CancelledError:
            if wanted.done() and not wanted.cancelled() and wanted.exception() is None:
                self.put_back(wanted.result())
            raise

    def put_back(self, process: FunctionProcess) -> None:
        while self._wanted:
            wanted = self._wanted.popleft()
            if not wanted.done():
                wanted.set_result(process)
                return
        # One that has served holds what its calls have loaded.
        (self._waiting.appendleft if process.served else self._waiting.append)(process)

    def end(self, process: FunctionProcess) -> None:
        """End a process, with all that it started, and replace it."""
        process.close()
        if process.pid in self._live and process.pid not in self._to_reap:
            self._to_end.add(process.pid)
            self._work.set()

    async def status(self, process: FunctionProcess) -> int | None:
        """Return how a process ended that ended by itself, as `ending` takes it; raises ParentEndedError."""
        if process.pid not in self._live or process.pid in self._to_end:
            raise ParentEndedError("its parent process ended")
        if (found := self._to_reap.get(process.pid)) is None:
            found = self._to_reap[process.pid] = asyncio.get_running_loop().create_future()
            self._work.set()
        return await asyncio.shield(found)

    async def close(self) -> None:
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.wait({self._keeper})
        self._drop()
        for wanted in self._wanted:
            if not wanted.done():
                wanted.set_exception(NoProcessError("the function's processes are being ended"))
        if self._parent is not None:
            await self._parent.close()

    async def _started(self) -> tuple[Parent, Loaded]:
        parent = Parent(env=self._env, folders=self._source.folders)
        try:
            loaded = await self._load(parent, here=not self.imports_itself)
            if not loaded.threads:
                return parent, loaded
            log.warning(
                "importing %s starts %d threads (%s), and a process with threads cannot be forked: so each process"
                " imports it, which takes its time; start threads at the first call, or set OMP_NUM_THREADS=1",
                self._source.name,
                len(loaded.threads),
                ", ".join(loaded.threads)[:200],
            )
            await parent.close()
            self.imports_itself = True
            parent = Parent(env=self._env, folders=self._source.folders)
            await self._load(parent, here=False)
        except BaseException:
            await parent.close()
            raise
        return parent, loaded

    async def _load(self, parent: Parent, *, here: bool) -> Loaded:
        return await parent.load(
            self._source.to_wire(), further=self._further, limits=self._limits, boundary=self._boundary, here=here
        )

    async def _keep(self, parent: Parent) -> None:
        """Tend a parent until it dies, then another one, for ever."""
        failures = 0
        while True:
            began = asyncio.get_running_loop().time()
            parent.ended.add_done_callback(lambda _: self._work.set())
            try:
                await self._tend(parent)
            except ParentEndedError as error:
                log.warning("%s: %s: another is started, and asked for what was running", self._source.name, error)
            self._drop()
            await parent.close()
            failures = 0 if asyncio.get_running_loop().time() - began > HEALTHY_SECONDS else failures
            while True:
                failures += 1
                await asyncio.sleep(_pause(failures))
                try:
                    self._parent, _ = await self._started()
                    break
                except (FunctionLoadError, ParentEndedError, OSError) as error:
                    log.error("%s: %s", self._source.name, error)  # noqa: TRY400 - a reason, not a crash
            parent = self._parent
            self._work.set()

    async def _tend(self, parent: Parent) -> None:
        """Send the parent what is to be done; raises ParentEndedError when it has ended."""
        failures = 0
        while True:
            await self._work.wait()
            self._work.clear()
            end, reap = list(self._to_end), list(self._to_reap)
            missing = self._size - (len(self._live) - len(end) - len(reap))
            try:
                made = _made(min(max(0, missing), MAX_FORKS), self._printed)
                problem = await self._tended(parent, made, end=end, reap=reap)
            except OSError as error:
                problem = str(error)
            if problem:
                failures += 1
                log.error("%s: a process cannot be made: %s", self._source.name, problem)
                await asyncio.sleep(_pause(failures))
                self._work.set()
            elif missing > MAX_FORKS:
                self._work.set()
            else:
                failures = 0

    async def _tended(
        self, parent: Parent, made: Sequence[FunctionProcess], *, end: Sequence[int], reap: Sequence[int]
    ) -> str:
        """Let the parent end and fork processes; return what went wrong."""
        forked = 0
        try:
            answer = await parent.tend([process.theirs for process in made], end=end, reap=reap)
            forked = len(answer.forked)
            for process, pid in zip(made, answer.forked, strict=False):
                process.forked(pid)
                self._live[pid] = process
        finally:
            for process in made[forked:]:
                process.close()
        for pid in [*end, *reap]:
            self._to_end.discard(pid)
            gone = self._live.pop(pid)
            gone.close()
            if (asked := self._to_reap.pop(pid, None)) is not None and not asked.done():
                asked.set_result(answer.ended.get(pid))
        for process in made[:forked]:
            if self.imports_itself:
                task = asyncio.create_task(self._when_ready(process))
                self._starting.add(task)
                task.add_done_callback(self._starting.discard)
            else:
                self.put_back(process)
        return answer.problem

    async def _when_ready(self, process: FunctionProcess) -> None:
        try:
            await process.ready
            self.put_back(process)
        except ProcessEndedError as error:
            log.error("%s: %s", self._source.name, error or "a process died while it imported it")  # noqa: TRY400
            await asyncio.sleep(PAUSE_SECONDS[1] * random.uniform(0.5, 1.0))  # noqa: S311 - no more than so often
            self.end(process)

    def _drop(self) -> None:
        for task in self._starting:
            task.cancel()
        for pid, process in self._live.items():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
            process.close()
        for asked in self._to_reap.values():
            if not asked.done():
                asked.set_exception(ParentEndedError("its parent process ended"))
        self._waiting.clear()
        self._live.clear()
        self._to_end.clear()
        self._to_reap.clear()


def _report(keeper: "asyncio.Task[None]") -> None:
    if not keeper.cancelled():
        log.critical("the function gets no processes any more", exc_info=keeper.exception())


def _made(count: int, printed: Printed) -> list[FunctionProcess]:
    made: list[FunctionProcess] = []
    try:
        made += (FunctionProcess(printed) for _ in range(count))
    except OSError:
        for process in made:
            process.close()
        raise
    return made


def _pause(failures: int) -> float:
    shortest, longest = PAUSE_SECONDS
    return min(longest, shortest * 2.0 ** min(failures - 1, 20)) * random.uniform(0.5, 1.0)  # noqa: S311 - a pause
