"""Runs a function's calls: each in a process that is forked ahead from a warm parent; async ones on one process's loop.

A call that hangs, dies, leaks or changes what is global costs its own process, and that is replaced. All waits have a
deadline. What is no fault of the function (`infra`) is tried again: here, where the parent died, else by who asks.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from rewardpool_runtime.functions.limits import LOOK_SECONDS, CallLimits
from rewardpool_runtime.functions.outcome import NO_FURTHER, Failed, FunctionArguments, Outcome
from rewardpool_runtime.functions.parent import ParentEndedError, ending
from rewardpool_runtime.functions.process import FunctionProcess, IsAsyncError, Printed, ProcessEndedError
from rewardpool_runtime.functions.source import FunctionSource
from rewardpool_runtime.functions.supply import NoProcessError, Supply
from rewardpool_runtime.guard.function import Boundary

log = logging.getLogger("rewardpool.functions")

ATTEMPTS: Final = 3
# An event loop that does not say within this time that it cancels a call is blocked.
BLOCKED_SECONDS: Final = 5.0


class FunctionRunner(Protocol):
    """Runs the function."""

    @property
    def places(self) -> int:
        """Number of calls that run at once; known when it is started."""

    @property
    def reached(self) -> Sequence[str]:
        """Things that the function reaches though it should not, in words; known when it is started."""

    async def start(self) -> None:
        """Load the function; raises FunctionLoadError. Done again, it does nothing."""

    async def run(
        self, sample: FunctionArguments, *, label: str = "", started: Callable[[], None] | None = None
    ) -> Outcome:
        """Score one sample when a place is free.

        Args:
            label: Names the sample in the log.
            started: Is called at the moment when it has a place.
        """

    async def close(self) -> None:
        """Let go of threads and processes."""


class Places:
    """Number of calls that run at once, which may become more."""

    def __init__(self, count: int = 0) -> None:
        self.count = count
        self._taken = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    def set(self, count: int) -> None:
        self.count = count
        self._wake()

    async def acquire(self) -> None:
        if self._taken < self.count and not self._waiting:
            self._taken += 1
            return
        mine = asyncio.get_running_loop().create_future()
        self._waiting.append(mine)
        try:
            await mine
        except asyncio.CancelledError:
            if mine.done() and not mine.cancelled():
                self.free()
            raise

    @contextlib.asynccontextmanager
    async def one(self, started: Callable[[], None] | None) -> AsyncIterator[None]:
        """Hold a place for a call, and call `started` at the moment when there is one."""
        await self.acquire()
        try:
            if started is not None:
                started()
            yield
        finally:
            self.free()

    def free(self) -> None:
        self._taken -= 1
        self._wake()

    def _wake(self) -> None:
        while self._waiting and self._taken < self.count:
            mine = self._waiting.popleft()
            if not mine.done():
                self._taken += 1
                mine.set_result(None)


class ProcessRunner:
    """Runs the function in processes of its own; used on one event loop."""

    def __init__(
        self,
        source: FunctionSource,
        *,
        limits: CallLimits,
        env: Mapping[str, str],
        further: Mapping[str, Any] = NO_FURTHER,
        printed: Printed | None = None,
        boundary: Boundary | None = None,
    ) -> None:
        """Prepare.

        Args:
            env: All variables of its processes, as `environment` returns them.
            further: Arguments besides those of a sample.
            printed: Is called with a sample's label and a line that the function printed; by default it is logged.
            boundary: What its processes are kept from; None: from nothing that this process reaches.
        """
        self._name = source.name
        self._limits = limits
        self._further = further
        self._supply = Supply(
            source, limits=limits, env=env, further=further, printed=printed or _log_printed, boundary=boundary
        )
        self.reached: Sequence[str] = ()
        self._places = Places()
        self._is_async = False
        self._calls_per_process = 1
        self._start = asyncio.Lock()
        self._busy: set[FunctionProcess] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._loop: FunctionProcess | None = None
        self._opening = asyncio.Lock()

    @property
    def places(self) -> int:
        return self._places.count

    async def start(self) -> None:
        async with self._start:
            if self.places:
                return
            loaded = await self._supply.start()
            self._is_async, self.reached = loaded.is_async, loaded.reached
            if (most := self._limits.calls_per_process) is None:
                # The sandbox's parent process takes several times as long to start as a run does.
                most = 0 if self._supply.imports_itself or loaded.uses_sandbox else 1
            self._calls_per_process = most
            self._make_room()

    async def run(
        self, sample: FunctionArguments, *, label: str = "", started: Callable[[], None] | None = None
    ) -> Outcome:
        async with self._places.one(started):
            return await self._outcome(sample.with_further(self._further), label)

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        await self._supply.close()

    def _make_room(self) -> None:
        places = self._limits.places(is_async=self._is_async)
        self._supply.keep(0 if self._is_async else places)
        self._places.set(places)

    async def _outcome(self, arguments: Mapping[str, Any], label: str) -> Outcome:
        problem: Exception | None = None
        for _ in range(ATTEMPTS):
            try:
                outcome = await (self._call_async if self._is_async else self._call)(arguments, label)
            except IsAsyncError:
                self._become_async()
                outcome = await self._call_async(arguments, label)
            except ParentEndedError as error:
                problem = error
                continue
            except NoProcessError as error:
                return Failed(str(error), "infra")
            except (ValueError, TypeError, RecursionError) as error:
                return Failed(f"the arguments cannot be sent to the function's process: {error}")
            if isinstance(outcome, Failed):
                log.error("%s: %s", label or "a call", outcome.traceback.rstrip() or outcome.message)
            return outcome
        return Failed(f"the function's process ended {ATTEMPTS} times with its parent: {problem}", "infra")

    def _become_async(self) -> None:
        if not self._is_async:
            log.info("%s returns what is to be awaited: from now on its calls share one event loop", self._name)
            self._is_async = True
            self._make_room()

    async def _call(self, arguments: Mapping[str, Any], label: str) -> Outcome:
        process = await self._supply.acquire()
        self._busy.add(process)
        try:
            call = process.begin(arguments, label=label)
            self._check_later()
            outcome = await call.done
        except ProcessEndedError:
            status = await self._supply.status(process)
            return Failed(f"the function's process {ending(status)} in this call")
        finally:
            self._busy.discard(process)
            process.forget_calls()
            self._release(process)
        return outcome

    def _release(self, process: FunctionProcess) -> None:
        most = self._calls_per_process
        if process.is_free and not self._is_async and (most == 0 or process.served < most):
            self._supply.put_back(process)
        else:
            self._supply.end(process)

    def _check_later(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LOOK_SECONDS, self._check)

    def _check(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        for process in self._busy:
            process.check(self._limits, now)
        if self._busy:
            self._check_later()

    # On one event loop

    async def _call_async(self, arguments: Mapping[str, Any], label: str) -> Outcome:
        process = await self._opened()
        call = process.begin(arguments, label=label)
        try:
            async with asyncio.timeout(self._limits.wall_seconds):
                return await call.done
        except TimeoutError:
            return self._limits.overdue()
        except ProcessEndedError:
            status = await self._supply.status(process)
            return Failed(f"the process of the function's event loop {ending(status)} with this call in it")
        finally:
            if not call.is_answered and not process.has_ended:
                process.send({"id": call.number})
                asyncio.get_running_loop().call_later(BLOCKED_SECONDS, self._end_blocked, process, process.heard)
            process.forget(call)

    async def _opened(self) -> FunctionProcess:
        async with self._opening:
            if self._loop is None or self._loop.has_ended:
                self._loop = await self._supply.acquire()
                self._loop.send({"async": True})
            return self._loop

    def _end_blocked(self, process: FunctionProcess, heard: int) -> None:
        """End the loop's process where it has said nothing since it was told to cancel a call."""
        if process.has_ended or process.heard != heard:
            return
        problem = "the function blocked its event loop, by which no call could go on; its process was ended"
        log.error("%s: %s", self._name, problem)
        process.settle_all(Failed(problem))
        self._supply.end(process)


def _log_printed(label: str, line: str) -> None:
    log.info("%s: %s", label or "(printed)", line)
