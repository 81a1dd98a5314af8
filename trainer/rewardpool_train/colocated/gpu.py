"""Share a GPU between a training loop and a reward pool: each enters a block around what needs the GPU.

    async with SharedGpu(pool.awake) as gpu:
        async with gpu.training():      # rollouts and updates; the pool sleeps
            ...
        async with gpu.scoring():       # around each sample's score, as soon as its rollout has ended
            score = await pool.score(sample)

One task calls `gpu_scheduler.choose` whenever something happens, and only this task wakes the pool or puts it to sleep.
Inside `training` no engine uses the GPU; inside `scoring` the trainer does not.

Every rank of a job has its own `SharedGpu`, with `peers`. An operation of the trainer begins when all ranks are ready
for it (`any_overdue` is a barrier): if a rank took the GPU before, it would hold it in a collective while another rank
waited for scores that need it. While a rank computes, it shares `GpuLock` with the other ranks, so no engine wakes.
"""

import asyncio
import fcntl
import os
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Protocol, Self

from rewardpool._client.wake_lock import WITHIN_SECONDS
from rewardpool.errors import ConfigError, PoolAccessError, PoolNotReadyError
from rewardpool_runtime.file_lock import try_lock
from rewardpool_runtime.state_files import GPU_FILE
from rewardpool_train.colocated.gpu_scheduler import POLL_SECONDS, Costs, Moment, choose, seconds_until_due

TICK_SECONDS = 0.001  # shortest wait


class Peers(Protocol):
    """The other ranks of a job, as `SharedGpu` uses them."""

    async def any_overdue(self, overdue: bool) -> bool:
        """Wait until all ranks have called this, and return whether one of them has an overdue sample."""
        ...

    def try_acquire(self) -> bool:
        """Share the GPU with the ranks that compute; return False while an engine uses it."""
        ...

    def release(self) -> None: ...

    def others_compute(self) -> bool:
        """Return whether another rank holds the GPU; only for a rank that does not."""
        ...


class GpuLock:
    """Lock on the GPUs that reward pools of this machine share with trainers: a file in each pool's folder.

    Ranks that compute hold it in shared mode, engines exclusively. The kernel releases it for a rank that is killed.
    Without folders it is the lock of a job of one process.

    Raises:
        PoolAccessError: A pool's folder cannot be written; raised by `try_acquire` and `others_compute`.
    """

    def __init__(self, folders: Iterable[Path] = ()) -> None:
        self._paths = [folder / GPU_FILE for folder in sorted(folders)]
        self._held: list[BinaryIO] = []

    async def any_overdue(self, overdue: bool) -> bool:
        return False  # there are no other ranks to wait for, and `choose` knows what is overdue on this one

    def try_acquire(self) -> bool:
        for path in self._paths:
            file = _open_lock(path)
            self._held.append(file)
            if not try_lock(file, shared=True):
                self.release()
                return False
        return True

    def release(self) -> None:
        while self._held:
            file = self._held.pop()
            # A child of this process may have inherited the file, so closing it here would not be enough.
            fcntl.flock(file, fcntl.LOCK_UN)
            file.close()

    def others_compute(self) -> bool:
        # Two ranks that check at the same moment may each see the other's check as a rank that computes.
        return any(_is_shared(path) for path in self._paths)


def _is_shared(path: Path) -> bool:
    with _open_lock(path) as file:
        # A file that cannot even be shared is locked by an engine.
        return try_lock(file, shared=True) and not try_lock(file)


def _open_lock(path: Path) -> BinaryIO:
    try:
        return path.open("ab")
    except OSError as error:
        raise PoolAccessError(f"the GPUs of a pool cannot be locked: {error}") from error


@dataclass(frozen=True, kw_only=True)
class TurnReport:
    """Cost of sharing so far.

    Attributes:
        turns: Number of times that the pool woke.
        wake_seconds: Total time of waking it.
        sleep_seconds: Total time of putting it to sleep.
    """

    turns: int = 0
    wake_seconds: float = 0.0
    sleep_seconds: float = 0.0
    scored: int = 0


@dataclass(frozen=True)
class _Waiting:
    admitted: asyncio.Future[None]
    since: float
    samples: int


class SharedGpu:
    """Gives the GPU to the trainer and the pool in turns; an async context manager, for one event loop."""

    def __init__(
        self,
        awake: Callable[[], AbstractAsyncContextManager[None]],
        costs: Costs | None = None,
        *,
        peers: Peers | None = None,
        free_memory: Callable[[], None] = lambda: None,
        deadline_seconds: float = WITHIN_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Create it; enter it before its blocks.

        Args:
            awake: Returns a context within which the pool is awake and after which it sleeps: `Pool.awake`.
            costs: Costs of a turn, until the first turn is measured.
            peers: The other ranks; None for a job of one process.
            free_memory: Called when the trainer has computed, to free the GPU memory that it caches.
            deadline_seconds: Deadline for engines that other ranks woke to release the GPU.
            clock: Monotonic seconds.

        Raises:
            ConfigError: The job has several ranks, and `peers` is None.
        """
        if peers is None and int(os.environ.get("WORLD_SIZE", "1")) > 1:
            raise ConfigError(
                "WORLD_SIZE", "a SharedGpu of several ranks needs peers; `colocated` of rewardpool_train sets them"
            )
        self._awake = awake
        self._costs = costs or Costs()
        self._peers = peers or GpuLock()
        self._free_memory = free_memory
        self._deadline_seconds = deadline_seconds
        self._clock = clock
        self._report = TurnReport()
        self._trainer_has = False
        self._trainers: deque[_Waiting] = deque()
        self._samples: deque[_Waiting] = deque()
        self._scoring = 0
        self._quiet_since = clock()
        self._context: AbstractAsyncContextManager[None] | None = None
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._failure: Exception | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._fail(RuntimeError("the SharedGpu was exited"))
        await self._leave_awake()

    def report(self) -> TurnReport:
        return self._report

    @property
    def costs(self) -> Costs:
        """Costs of a turn: as measured, or as given before the first turn."""
        turns = self._report.turns
        if turns == 0:
            return self._costs
        wake, sleep = self._report.wake_seconds / turns, self._report.sleep_seconds / turns
        return replace(self._costs, wake_seconds=wake, sleep_seconds=sleep)

    @asynccontextmanager
    async def training(self) -> AsyncGenerator[None, None]:
        """Give the GPU to the trainer within this block, while the pool sleeps. One at a time; all ranks enter it
        together.

        Raises:
            PoolNotReadyError: An engine did not release the GPU within the deadline.
            Exception: The pool could not be put to sleep.
        """
        while await self._peers.any_overdue(self._is_overdue()):
            await self._wait_for_overdue()
        await self._enter(self._trainers)
        try:
            yield
        finally:
            self._release_trainer()
            self._mark_used()

    @asynccontextmanager
    async def scoring(self, samples: int = 1) -> AsyncGenerator[None, None]:
        """Keep the pool awake within this block, for this many samples that are scored together; blocks may overlap.

        Raises:
            Exception: The pool could not be woken.
        """
        await self._enter(self._samples, samples)
        try:
            yield
        finally:
            self._scoring -= samples
            self._mark_used()

    async def _enter(self, queue: deque[_Waiting], samples: int = 0) -> None:
        if self._task is None:
            raise RuntimeError("enter the SharedGpu before its blocks")
        if self._failure is not None:
            raise self._failure
        place = _Waiting(asyncio.get_running_loop().create_future(), self._clock(), samples)
        queue.append(place)
        self._changed.set()
        try:
            await place.admitted
        except asyncio.CancelledError:
            if place in queue:
                queue.remove(place)
            elif place.admitted.done() and not place.admitted.cancelled() and place.admitted.exception() is None:
                # Admitted and cancelled at the same moment: it never enters its block, so this exits for it.
                if queue is self._trainers:
                    self._release_trainer()
                self._scoring -= samples
            self._changed.set()
            raise

    def _release_trainer(self) -> None:
        try:
            self._free_memory()
        finally:
            self._peers.release()
            self._trainer_has = False

    def _is_overdue(self) -> bool:
        return self._costs.is_overdue(self._waited_seconds())

    def _waited_seconds(self) -> float:
        """Waiting time of the oldest sample; 0 if none waits."""
        return self._clock() - self._samples[0].since if self._samples else 0.0

    async def _wait_for_overdue(self) -> None:
        """Wait until overdue samples of this rank are at the pool; the pool wakes, as the trainer waits here."""
        while self._is_overdue():
            await asyncio.wait({self._samples[0].admitted})

    def _mark_used(self) -> None:
        self._quiet_since = self._clock()
        self._changed.set()

    def _moment(self) -> Moment:
        asks = not self._trainer_has and self._context is None and bool(self._trainers or self._samples)
        return Moment(
            trainer_has=self._trainer_has,
            trainer_waits=bool(self._trainers),
            others_compute=asks and self._peers.others_compute(),
            awake=self._context is not None,
            scoring=self._scoring,
            waiting=sum(place.samples for place in self._samples),
            waited_seconds=self._waited_seconds(),
            quiet_seconds=self._clock() - self._quiet_since,
        )

    async def _run(self) -> None:
        try:
            while True:
                await self._step()
        except Exception as error:  # it is unknown now who uses the GPU, so no one may
            self._fail(error)

    async def _step(self) -> None:
        self._changed.clear()
        moment = self._moment()
        match choose(moment, self.costs):
            case "train":
                await self._train()
            case "admit":
                places = [self._samples.popleft() for _ in range(len(self._samples))]
                admitted = sum(place.samples for place in places if _admit(place))
                self._scoring += admitted
                self._report = replace(self._report, scored=self._report.scored + admitted)
            case "wake":
                await self._wake()
            case "sleep":
                await self._sleep()
            case "wait":
                due = seconds_until_due(moment, self.costs)
                with suppress(TimeoutError):
                    # At least a tick: patience that ends in a rounding error would be checked in an endless loop.
                    async with asyncio.timeout(None if due is None else max(due, TICK_SECONDS)):
                        await self._changed.wait()

    async def _train(self) -> None:
        if self._peers.try_acquire():
            self._trainer_has = _admit(self._trainers.popleft())
            if not self._trainer_has:
                self._peers.release()
            return
        if self._clock() - self._trainers[0].since > self._deadline_seconds:
            raise PoolNotReadyError(f"an engine has not released the GPU within {self._deadline_seconds:g} s")
        await asyncio.sleep(POLL_SECONDS)

    async def _wake(self) -> None:
        began = self._clock()
        context = self._awake()
        if not await self._try_wake(context):
            return
        self._context = context
        seconds = self._report.wake_seconds + self._clock() - began
        self._report = replace(self._report, turns=self._report.turns + 1, wake_seconds=seconds)
        self._quiet_since = self._clock()

    async def _try_wake(self, context: AbstractAsyncContextManager[None]) -> bool:
        """Wake the pool; give up and return False if another rank turns out to compute."""
        entering = asyncio.ensure_future(context.__aenter__())
        try:
            while not entering.done():
                await asyncio.wait({entering}, timeout=POLL_SECONDS)
                if not entering.done() and self._peers.others_compute():
                    return False
            entering.result()
            return True
        finally:
            entering.cancel()  # does nothing where it has ended
            await asyncio.wait({entering})

    async def _sleep(self) -> None:
        began = self._clock()
        await self._leave_awake()
        self._report = replace(self._report, sleep_seconds=self._report.sleep_seconds + self._clock() - began)

    async def _leave_awake(self) -> None:
        context, self._context = self._context, None
        if context is not None:
            await context.__aexit__(None, None, None)

    def _fail(self, error: Exception) -> None:
        """Raise the error in all blocks that wait, and in later ones."""
        self._failure = error
        for queue in (self._trainers, self._samples):
            while queue:
                waiting = queue.popleft().admitted
                if not waiting.done():
                    waiting.set_exception(error)


def _admit(place: _Waiting) -> bool:
    """Admit a request; return False if it was cancelled meanwhile."""
    if place.admitted.done():
        return False
    place.admitted.set_result(None)
    return True
