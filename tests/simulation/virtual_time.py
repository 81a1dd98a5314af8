"""Programs of asyncio on virtual time: an hour of waiting takes no time, and one seed gives one run to the letter.

    with VirtualTime(seed=7, packages=("rewardpool_operator",)) as time:
        time.run(main())

Within the `with`, the modules of `packages` that are loaded already have clocks, dates, random numbers and tokens of
this run. The event loop has no sockets and no threads: what would wait for the world outside is an error. Sets of tasks
are ordered by when those were started, not by where in memory they are; sets of strings need the environment variable
PYTHONHASHSEED for two processes to agree.
"""

import asyncio
import gc
import random
import secrets
import sys
import time
import uuid
from asyncio import base_events
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractContextManager
from contextvars import Context
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import count
from types import FunctionType, ModuleType
from typing import Any, Final, Self, TypeVar

T = TypeVar("T")

BEGIN: Final = datetime(2030, 1, 1, tzinfo=UTC)
"""What the calendar says when a run begins; the clock says 0."""
MOST_STEPS: Final = 100_000
"""Turns of the event loop at one moment; a program that makes more of them goes on without a pause."""


class DeadlockError(RuntimeError):
    """Every task waits for something that will never happen."""


class LivelockError(RuntimeError):
    """Tasks go on and on, and none of them lets time pass."""


class NumberedTask(asyncio.Task):
    """A task whose place in a set is the same in every run."""

    number: int = 0

    def __hash__(self) -> int:
        return self.number


class Clock:
    """Moves on when the event loop has nothing else to do. In place of a selector."""

    def __init__(self) -> None:
        self.now = 0.0
        self._steps = 0

    def select(self, timeout: float | None) -> list[Any]:
        if timeout is None:
            raise DeadlockError("every task waits for something that will never happen")
        if timeout > 0:
            self.now += timeout
            self._steps = 0
        self._steps += 1
        if self._steps > MOST_STEPS:
            raise LivelockError(f"{MOST_STEPS} turns of the event loop in no time, at {self.now:g} s")
        return []


class VirtualLoop(base_events.BaseEventLoop):
    """An event loop of tasks and timers alone."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._selector = clock
        # The end of a wait is rounded: without this a timer may be a rounding error away, for ever.
        self._clock_resolution = 1e-6
        self._numbers = count(1)
        self.set_task_factory(self._numbered)

    def time(self) -> float:
        return self._selector.now

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> "asyncio.Future[Any]":  # type: ignore[override]
        """Call it at once: the order in which threads end is nobody's to repeat."""
        future: asyncio.Future[Any] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future

    def _numbered(
        self, _: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, T], *, context: Context | None = None
    ) -> "asyncio.Task[T]":
        task = NumberedTask.__new__(NumberedTask)
        task.number = next(self._numbers)
        task.__init__(coroutine, loop=self, context=context)
        return task

    def _process_events(self, _: list[Any]) -> None:
        """There are no events but those of the program itself."""

    def _write_to_self(self) -> None:
        """There are no other threads to be woken by."""


class VirtualTime(AbstractContextManager["VirtualTime"]):
    """A run's time and chance.

    Args:
        seed: of everything that is random in the run.
        packages: first names of the modules that shall go by it; what is imported later goes by the real ones.
    """

    def __init__(self, *, seed: int, packages: Sequence[str] = ("rewardpool",)) -> None:
        self.chance = random.Random(seed)
        """For the simulated world."""
        self.clock = Clock()
        self._packages = tuple(packages)
        self._seed = seed
        self._undo: list[Callable[[], None]] = []

    def monotonic(self) -> float:
        """Seconds since the run began."""
        return self.clock.now

    def now(self, zone: tzinfo | None = UTC) -> datetime:
        """What the calendar says."""
        return (BEGIN + timedelta(seconds=self.clock.now)).astimezone(zone)

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run to its end, as `asyncio.run` does.

        Raises:
            DeadlockError: it waits for good.
            LivelockError: it works for good.
        """
        with asyncio.Runner(loop_factory=lambda: VirtualLoop(self.clock)) as runner:
            return runner.run(main)

    def __enter__(self) -> Self:
        # A generator that nobody finished ends when it is collected, which is at another moment each time.
        gc.collect()
        gc.disable()
        self._undo.append(gc.enable)
        state = random.getstate()
        self._undo.append(lambda: random.setstate(state))
        random.seed(self._seed)
        others = self._others()
        for module in _modules(self._packages):
            self._replace_in(module, others)
        for name, function in (("monotonic", time), ("time", time), ("token_hex", secrets), ("token_urlsafe", secrets)):
            self._set(function, name, others[id(getattr(function, name))])
        return self

    def __exit__(self, *_: object) -> None:
        for undo in reversed(self._undo):
            undo()
        self._undo.clear()

    def _others(self) -> dict[int, Any]:
        """What replaces what: by identity, since a class may be equal to another."""
        secret = random.Random(self._seed + 1)

        class Dates(type):
            def __instancecheck__(cls, instance: object) -> bool:
                return isinstance(instance, datetime)

        class VirtualDate(datetime, metaclass=Dates):
            now = staticmethod(lambda tz=None: self.now(tz))
            fromisoformat = staticmethod(datetime.fromisoformat)
            fromtimestamp = staticmethod(datetime.fromtimestamp)
            strptime = staticmethod(datetime.strptime)

            def __new__(cls, *arguments: Any, **keywords: Any) -> Any:
                return datetime(*arguments, **keywords)

        def hexadecimal(size: int = 32) -> str:
            return secret.randbytes(size).hex()

        return {
            id(time.monotonic): self.monotonic,
            id(time.perf_counter): self.monotonic,
            id(time.time): lambda: BEGIN.timestamp() + self.clock.now,
            id(datetime): VirtualDate,
            id(secrets.token_hex): hexadecimal,
            id(secrets.token_urlsafe): hexadecimal,
            id(uuid.uuid4): lambda: uuid.UUID(int=secret.getrandbits(128), version=4),
        }

    def _replace_in(self, module: ModuleType, others: dict[int, Any]) -> None:
        """Replace what the module has by name, and what is the default of an argument."""
        for name, value in list(vars(module).items()):
            if id(value) in others:
                self._set(module, name, others[id(value)])
        for function in _functions(module):
            keywords = function.__kwdefaults__ or {}
            if any(id(value) in others for value in keywords.values()):
                changed = {name: others.get(id(value), value) for name, value in keywords.items()}
                self._set(function, "__kwdefaults__", changed)
            defaults = function.__defaults__ or ()
            if any(id(value) in others for value in defaults):
                self._set(function, "__defaults__", tuple(others.get(id(value), value) for value in defaults))

    def _set(self, owner: Any, name: str, value: Any) -> None:
        before = getattr(owner, name)
        self._undo.append(lambda: setattr(owner, name, before))
        setattr(owner, name, value)


def _modules(packages: tuple[str, ...]) -> list[ModuleType]:
    return [module for name, module in sorted(sys.modules.items()) if name.startswith(packages)]


def _functions(module: ModuleType) -> Iterator[FunctionType]:
    for value in vars(module).values():
        if isinstance(value, FunctionType):
            yield value
        elif isinstance(value, type) and value.__module__ == module.__name__:
            yield from (entry for entry in vars(value).values() if isinstance(entry, FunctionType))
