"""Runs a user's `compute_score`: where (event loop, threads, processes), for how long, and what counts as a score.

The function is the user's code. It may raise, hang, return something that is not a score or take its process down;
each of these is an `Outcome` for the sample that caused it, and none of them harms another sample or becomes a number.

A pool of type Function runs functions by it on its workers, a mixture of rewards in the training job: a function means
the same in both.
"""

import asyncio
import functools
import importlib
import inspect
import logging
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from numbers import Real
from types import MappingProxyType
from typing import Any, Final, Protocol

from rewardpool_api.contract import Fault
from rewardpool_runtime.json_values import NotJsonError, described, finite, json_value, shown

log = logging.getLogger("rewardpool.functions")

MAX_MESSAGE = 2000
"""Characters of a user's exception that are passed on."""
LEFT_OUT: Final = "left_out"
"""Beside a score: the names of what the function returned and JSON cannot hold, each with the reason."""
PROCESS_START_SECONDS = 300
"""How long a new process may take to import the function's module and what that imports."""


@dataclass(frozen=True, kw_only=True)
class FunctionArguments:
    """The arguments of one call, named as verl's reward functions name them."""

    data_source: str
    solution_str: str
    ground_truth: Any = None
    extra_info: dict[str, Any] | None = None


@dataclass(frozen=True)
class Scored:
    """A score, and whatever else the function returned beside it."""

    value: float
    info: dict[str, Any] = field(default_factory=dict)
    """JSON values."""


@dataclass(frozen=True)
class Failed:
    """The function gave no score.

    Attributes:
        message: Why; of an exception, its type first.
        fault: `verifier`, or `policy` where it is certain that the policy's own code is the cause.
    """

    message: str
    fault: Fault = "verifier"


Outcome = Scored | Failed


NO_FUNCTION: Final = "the module {} has no function {}"
"""What no other attempt changes, unlike an import that failed; `diagnosis.py` looks for it in a worker's log."""


OTHER_PARAMETERS: Final = "it cannot be called with"
"""What no other attempt changes either; `diagnosis.py` looks for it too."""


class FunctionNotFoundError(Exception):
    """There is no such function, or it has other parameters; the text says what is missing."""


def load_function(reference: str) -> Callable[..., Any]:
    """Import `module:function`.

    Raises:
        FunctionNotFoundError: the module cannot be imported, or has no such function.
    """
    module_name, _, name = reference.partition(":")
    try:
        module = importlib.import_module(module_name)
    except BaseException as error:  # a module runs any code while it is imported
        raise FunctionNotFoundError(f"cannot load the function {reference}: {error_text(error)}") from error
    if not hasattr(module, name):
        raise FunctionNotFoundError(f"cannot load the function {reference}: {NO_FUNCTION.format(module_name, name)}")
    function = getattr(module, name)
    if not callable(function):
        raise FunctionNotFoundError(f"cannot load the function {reference}: it is a {type(function).__name__}")
    return function  # type: ignore[no-any-return]


def check_signature(function: Callable[..., Any], *, name: str, further: Iterable[str] = ()) -> None:
    """Refuse a function that cannot be called with the arguments of a sample, before there is one.

    Args:
        function: The user's, loaded.
        name: Its name, for the message.
        further: Names of arguments that are given besides those of a sample.

    Raises:
        FunctionNotFoundError: its parameters are others.
    """
    try:
        signature = inspect.signature(function)
    except ValueError:  # of some functions that are not written in Python
        return
    given = [*FunctionArguments.__dataclass_fields__, *further]
    try:
        signature.bind(**dict.fromkeys(given))
    except TypeError as error:
        raise FunctionNotFoundError(
            f"cannot load the function {name}: {OTHER_PARAMETERS} {', '.join(dict.fromkeys(given))} by name ({error});"
            f" its parameters are {signature}"
        ) from None


def read_result(result: Any) -> Outcome:
    """Turn what a function returned into a score, or into why there is none.

    A score is a finite real number or a truth value, of Python, numpy or torch, or a mapping with one under `score`.
    What else the mapping has is passed on as JSON has it; a value that JSON cannot hold never costs the score: it is
    left out, and `left_out` says why.
    """
    info: dict[str, Any] = {}
    if isinstance(result, Mapping):
        if "score" not in result:
            return Failed(f"the function returned a mapping without `score`; it has {sorted(map(str, result))!r:.300}")
        info, result = _beside_score(result), result["score"]
    number = _number(result)
    if number is None:
        what = "None" if result is None else f"{shown(result)} ({described(result)})"
        return Failed(f"the function returned {what}, not a number, a truth value, or a mapping with one under `score`")
    value = finite(number)
    return Failed(f"the function returned {shown(number)}, no finite number") if value is None else Scored(value, info)


def _number(result: Any) -> Real | None:
    """Return the number that a result is; None where it is something else."""
    if isinstance(result, Real):
        return result
    if getattr(result, "ndim", None) == 0 and hasattr(result, "item"):  # one value of numpy's or torch's
        result = result.item()
    return result if isinstance(result, Real) else None


def _beside_score(result: Mapping[Any, Any]) -> dict[str, Any]:
    info: dict[str, Any] = {}
    left_out: dict[str, str] = {}
    for name, value in result.items():
        if name == "score":
            continue
        try:
            info.update(json_value({name: value}, "the result"))
        except NotJsonError as error:
            left_out[str(name)] = str(error)
    return {**info, LEFT_OUT: left_out} if left_out else info


def _failed(error: BaseException) -> Failed:
    return Failed(error_text(error)[:MAX_MESSAGE])


def error_text(error: BaseException) -> str:
    """Return the type and text of what the user's code raised."""
    try:
        text = str(error)
    except BaseException:  # which is the user's code too
        text = "(its text cannot be read)"
    return f"{type(error).__name__}: {text}"


def _call(function: Callable[..., Any], arguments: Mapping[str, Any]) -> Outcome:
    try:
        result = function(**arguments)
        return read_result(asyncio.run(result) if inspect.iscoroutine(result) else result)
    except BaseException as error:  # of the user's code, in a thread that nobody else interrupts or cancels
        return _failed(error)


NO_FURTHER: Mapping[str, Any] = MappingProxyType({})


def _arguments(sample: FunctionArguments, further: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of the call; `further` ones win, as verl's `reward_kwargs` do."""
    own = {name: getattr(sample, name) for name in FunctionArguments.__dataclass_fields__}
    return {**own, **further}


class Runner(Protocol):
    """Runs the function."""

    async def start(self) -> None:
        """Load the function; raises FunctionNotFoundError. Done again, it only checks."""

    async def run(self, sample: FunctionArguments, *, started: Callable[[], None] | None = None) -> Outcome:
        """Score one sample when a place is free; `started` is called at that moment."""

    @property
    def is_stuck(self) -> bool:
        """Whether more calls hang than threads can be replaced: only another process helps."""

    async def close(self) -> bool:
        """Let go of threads and processes; False when one is stuck in the function and cannot be."""


class LocalRunner:
    """Runs the function in this process: a coroutine on the event loop, anything else in threads.

    A thread cannot be stopped. One that exceeds its time is left alone, and another takes its place, for as many as
    there are places; each further one keeps its place until it ends. Functions that may hang belong into processes.
    """

    def __init__(
        self,
        function: str | Callable[..., Any],
        *,
        concurrency: int,
        timeout_seconds: float,
        timeout_setting: str = "timeout",
        further: Mapping[str, Any] = NO_FURTHER,
    ) -> None:
        """Prepare; `timeout_setting` is what the caller's users set the limit with, for messages."""
        self._function = load_function(function) if isinstance(function, str) else function
        name = function if isinstance(function, str) else getattr(function, "__qualname__", described(function))
        check_signature(self._function, name=name, further=further)
        self._further = further
        self._timeout_seconds = timeout_seconds
        self._timeout_setting = timeout_setting
        self._concurrency = concurrency
        self._places = asyncio.Semaphore(concurrency)
        self._threads = ThreadPoolExecutor(max_workers=2 * concurrency, thread_name_prefix="compute_score")
        self._busy = 0
        self._hung: set[asyncio.Future[Outcome]] = set()
        """Calls that exceeded their time and go on."""
        self._replaced: set[asyncio.Future[Outcome]] = set()
        """Those of them whose place was given to others."""

    async def start(self) -> None:
        """Nothing is left to do: the function was loaded when the runner was made."""

    async def run(self, sample: FunctionArguments, *, started: Callable[[], None] | None = None) -> Outcome:
        """See `Runner`."""
        await self._places.acquire()
        if self._all_hang:
            self._places.release()  # for the next one, which fails in the same way
            return Failed(f"TimeoutError: all {len(self._hung)} threads hang in the function; run it in processes")
        if started is not None:
            started()
        if inspect.iscoroutinefunction(self._function):
            try:
                return await self._run_coroutine(sample)
            finally:
                self._places.release()
        arguments = _arguments(sample, self._further)
        call = asyncio.get_running_loop().run_in_executor(self._threads, _call, self._function, arguments)
        self._busy += 1
        call.add_done_callback(self._came_back)
        done, _ = await asyncio.wait({call}, timeout=self._timeout_seconds)
        if done:
            return call.result()
        self._hung.add(call)
        if len(self._replaced) < self._concurrency or self._all_hang:
            self._replaced.add(call)
            self._places.release()
        return self._overdue()

    @property
    def is_stuck(self) -> bool:
        """See `Runner`."""
        return len(self._hung) > self._concurrency

    @property
    def _all_hang(self) -> bool:
        return len(self._hung) >= 2 * self._concurrency

    async def close(self) -> bool:
        """Let go of the threads; False when one is stuck in the function."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        return self._busy == 0

    async def _run_coroutine(self, sample: FunctionArguments) -> Outcome:
        try:
            async with asyncio.timeout(self._timeout_seconds) as limit:
                return read_result(await self._function(**_arguments(sample, self._further)))
        except TimeoutError as error:
            return self._overdue() if limit.expired() else _failed(error)
        except BaseException as error:
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                raise
            return _failed(error)

    def _overdue(self) -> Failed:
        return _overdue(self._timeout_seconds, self._timeout_setting)

    def _came_back(self, call: asyncio.Future[Outcome]) -> None:
        self._busy -= 1
        self._hung.discard(call)
        if call in self._replaced:
            self._replaced.remove(call)
        else:
            self._places.release()


class ProcessRunner:
    """Runs the function in processes of its own, one call at a time in each."""

    is_stuck = False
    """A process that hangs is replaced."""

    def __init__(
        self,
        reference: str,
        *,
        processes: int,
        timeout_seconds: float,
        timeout_setting: str = "timeout",
        further: Mapping[str, Any] = NO_FURTHER,
    ) -> None:
        """Prepare; the arguments are those of `LocalRunner`."""
        self._all = [_Process(reference, tuple(further), timeout_seconds, timeout_setting) for _ in range(processes)]
        self._further = further
        self._free: asyncio.Queue[_Process] = asyncio.Queue()
        for process in self._all:
            self._free.put_nowait(process)

    async def start(self) -> None:
        """Load the function in every process that is not running; raises FunctionNotFoundError."""
        await asyncio.gather(*(process.start() for process in self._all))

    async def run(self, sample: FunctionArguments, *, started: Callable[[], None] | None = None) -> Outcome:
        """See `Runner`."""
        process = await self._free.get()
        try:
            if started is not None:
                started()
            return await process.call(_arguments(sample, self._further))
        finally:
            self._free.put_nowait(process)

    async def close(self) -> bool:
        """End the processes; they can always be ended."""
        for process in self._all:
            process.close()
        return True


class _Process:
    """One process with the function in it, started again when it died.

    An executor of one: the standard library's breaks as a whole when one of its processes dies, and would fail every
    sample in flight for the one that killed it.
    """

    def __init__(self, reference: str, further: tuple[str, ...], timeout_seconds: float, timeout_setting: str) -> None:
        self._reference = reference
        self._further = further
        self._timeout_seconds = timeout_seconds
        self._timeout_setting = timeout_setting
        self._executor: ProcessPoolExecutor | None = None
        self._pid: int | None = None
        self._starting = asyncio.Lock()
        self._closed = False

    async def start(self) -> ProcessPoolExecutor:
        """Start the process unless it runs; raises FunctionNotFoundError."""
        async with self._starting:
            if self._closed:
                raise RuntimeError("the server is ending")
            if self._executor is None:
                # spawn: a fork of a process with threads in it can deadlock.
                context = multiprocessing.get_context("spawn")
                self._executor = ProcessPoolExecutor(1, context, initializer=_prepare_process, initargs=(sys.path[:],))
                await self._load(self._executor)
            return self._executor

    async def call(self, arguments: Mapping[str, Any]) -> Outcome:
        """Score one sample; a process that dies of it is replaced, and the sample tried once more."""
        for attempt in (1, 2):
            executor = await self.start()
            call = asyncio.wrap_future(executor.submit(_call_in_process, self._reference, arguments))
            try:
                async with asyncio.timeout(self._timeout_seconds):
                    return await call
            except TimeoutError:
                self._kill()
                return _overdue(self._timeout_seconds, self._timeout_setting)
            except BrokenProcessPool:
                log.warning("process %s died while it scored (attempt %d of 2), it is replaced", self._pid, attempt)
                self._drop()
            except asyncio.CancelledError:
                self._kill()  # else the next sample would wait for a call that nobody wants, and be overdue
                raise
            except Exception as error:  # an argument or a result that cannot be sent to or from a process
                return _failed(error)
        return Failed("the function's process died, twice")

    def close(self) -> None:
        """End the process for good."""
        self._closed = True
        self._kill()

    async def _load(self, executor: ProcessPoolExecutor) -> None:
        try:
            loading = asyncio.wrap_future(executor.submit(_load_in_process, self._reference, self._further))
            async with asyncio.timeout(PROCESS_START_SECONDS):
                self._pid = await loading
        except BrokenProcessPool:
            self._drop()
            raise FunctionNotFoundError(f"cannot load the function {self._reference}: its process died") from None
        except (FunctionNotFoundError, TimeoutError):
            self._kill()
            raise

    def _kill(self) -> None:
        # The executor has no way to end a process that is busy.
        if self._pid is not None:
            os.kill(self._pid, signal.SIGKILL)
        self._drop()

    def _drop(self) -> None:
        if self._executor is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)
        self._executor, self._pid = None, None


def _overdue(seconds: float, setting: str) -> Failed:
    return Failed(f"TimeoutError: the function took longer than {seconds:g} s, its limit by {setting}")


# In the processes.


def _prepare_process(path: list[str]) -> None:
    sys.path[:] = path
    # Ctrl-C goes to the whole group; only the server decides when a process ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A server that is killed cannot end its processes, and they do not notice by themselves."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
    os._exit(1)


@functools.cache
def _loaded(reference: str) -> Callable[..., Any]:
    return load_function(reference)


def _load_in_process(reference: str, further: tuple[str, ...]) -> int:
    check_signature(_loaded(reference), name=reference, further=further)
    return os.getpid()


def _call_in_process(reference: str, arguments: Mapping[str, Any]) -> Outcome:
    return _call(_loaded(reference), arguments)
