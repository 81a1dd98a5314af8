"""Runs a function in this process, where it shares objects with the code that gave it: sync ones in threads.

A thread cannot be stopped. One that exceeds its time is left alone, and another takes its place, for as many as there
are places; beyond that, samples fail.
"""

import asyncio
import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from rewardpool_runtime.functions.limits import ASYNC_CONCURRENCY, CallLimits
from rewardpool_runtime.functions.load import check_signature, load_function
from rewardpool_runtime.functions.outcome import (
    NO_FURTHER,
    Failed,
    FunctionArguments,
    Outcome,
    called,
    failed,
    is_async,
    read_result,
)
from rewardpool_runtime.functions.runner import Places
from rewardpool_runtime.json_values import described

log = logging.getLogger("rewardpool.functions")


class ThreadRunner:
    """Runs the function here: a coroutine on the event loop, anything else in threads."""

    def __init__(
        self, function: str | Callable[..., Any], *, limits: CallLimits, further: Mapping[str, Any] = NO_FURTHER
    ) -> None:
        """Load the function; raises FunctionLoadError. The arguments are those of `ProcessRunner`."""
        self._function = load_function(function) if isinstance(function, str) else function
        self._name = function if isinstance(function, str) else getattr(function, "__qualname__", described(function))
        check_signature(self._function, name=self._name, further=further)
        self._is_async = is_async(self._function)
        self._further = further
        self._limits = limits
        self._places = Places(limits.concurrency or ASYNC_CONCURRENCY)
        self._threads = ThreadPoolExecutor(2 * self.places, thread_name_prefix="compute_score")
        self._hung: set[asyncio.Future[Outcome | None]] = set()

    @property
    def places(self) -> int:
        return self._places.count

    @property
    def reached(self) -> Sequence[str]:
        """Nothing that this process does not: it runs the function itself."""
        return ()

    async def start(self) -> None:
        """Nothing is left to do."""

    async def run(
        self, sample: FunctionArguments, *, label: str = "", started: Callable[[], None] | None = None
    ) -> Outcome:
        async with self._places.one(started):
            run = self._awaited if self._is_async else self._in_thread
            outcome = await run(sample.with_further(self._further))
        if isinstance(outcome, Failed) and outcome.traceback:
            log.error("%s: %s", label or "a call", outcome.traceback.rstrip())
        return outcome

    async def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        if self._hung:
            log.warning("%s has %d threads that hang: the process may not end by itself", self._name, len(self._hung))

    async def _in_thread(self, arguments: Mapping[str, Any]) -> Outcome:
        if len(self._hung) > self.places:
            return Failed(f"{len(self._hung)} threads hang in the function; run it in processes (run_in: processes)")
        call = asyncio.get_running_loop().run_in_executor(self._threads, called, self._function, arguments)
        done, _ = await asyncio.wait({call}, timeout=self._limits.wall_seconds)
        if not done:
            self._hung.add(call)
            call.add_done_callback(self._hung.discard)
            return self._limits.overdue()
        outcome = call.result()
        if outcome is None:  # it is to be awaited
            self._is_async = True
            return await self._awaited(arguments)
        return outcome

    async def _awaited(self, arguments: Mapping[str, Any]) -> Outcome:
        try:
            async with asyncio.timeout(self._limits.wall_seconds) as limit:
                result = self._function(**arguments)
                return read_result(await result if inspect.isawaitable(result) else result)
        except TimeoutError as error:
            return self._limits.overdue() if limit.expired() else failed(error)
        except BaseException as error:
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                raise
            return failed(error)
