"""Several ranks and one pool on the same GPUs, on a simulated clock: each rank has the real SharedGpu.

SimulatedMachine is what they share: the pool with its supervisor, which wakes it for whoever holds it as soon as no
rank computes, and the barrier of the ranks.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Literal

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.simulated_time import run

from rewardpool.errors import PoolNotReadyError
from rewardpool_train.colocated import Costs, SharedGpu, TurnReport

SUPERVISOR_SECONDS = 0.05
COSTS = Costs(wake_seconds=2, sleep_seconds=1, samples_per_second=10, patience_seconds=0.1)
URGENT = Costs(
    wake_seconds=2, sleep_seconds=1, samples_per_second=10, patience_seconds=0.1, longest_wait_seconds=5
)  # fmt: skip


class SimulatedMachine:
    """What the ranks share, and how it is at the moment."""

    def __init__(self, ranks: int) -> None:
        self.barrier = asyncio.Barrier(ranks)
        self.computing: set[int] = set()
        self.holders: set[object] = set()
        self.engine: Literal["asleep", "turning", "awake"] = "asleep"
        self.overdue: set[int] = set()
        self.scored: list[tuple[int, int]] = []
        self.begun: list[float] = []
        self._changed = asyncio.Event()

    def change(self) -> None:
        """Have everybody look again who waits for something."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait for something."""
        while not holds():
            await self._changed.wait()

    async def supervise(self) -> None:
        """Wake the pool for whoever holds it, unless a rank computes; put it to sleep for nobody."""
        while True:
            await self.until(lambda: bool(self.holders) and not self.computing)
            await asyncio.sleep(SUPERVISOR_SECONDS)
            if not self.holders or self.computing:
                continue
            await self._turn("awake", seconds=2)
            await self.until(lambda: not self.holders)
            await self._turn("asleep", seconds=1)

    async def _turn(self, to: Literal["asleep", "awake"], *, seconds: float) -> None:
        self.engine = "turning"
        await asyncio.sleep(seconds)
        self.engine = to
        self.change()

    @asynccontextmanager
    async def held(self) -> AsyncGenerator[None, None]:
        """As `Pool.awake`."""
        hold = object()
        self.holders.add(hold)
        self.change()
        try:
            await self.until(lambda: self.engine == "awake")
            yield
        finally:
            self.holders.discard(hold)
            self.change()
        await self.until(lambda: self.engine == "asleep")


class SimulatedRank:
    """One rank: its `Peers`, and a job that takes simulated seconds."""

    def __init__(self, machine: SimulatedMachine, rank: int) -> None:
        self.machine = machine
        self._rank = rank

    async def any_overdue(self, overdue: bool) -> bool:
        machine = self.machine
        await machine.barrier.wait()
        if overdue:
            machine.overdue.add(self._rank)
        await machine.barrier.wait()
        found = bool(machine.overdue)
        await machine.barrier.wait()
        machine.overdue.clear()
        return found

    def try_acquire(self) -> bool:
        if self.machine.engine != "asleep":
            return False
        self.machine.computing.add(self._rank)
        return True

    def release(self) -> None:
        self.machine.computing.discard(self._rank)
        self.machine.change()

    def others_compute(self) -> bool:
        return bool(self.machine.computing - {self._rank})

    async def compute(self, gpu: SharedGpu, seconds: float, *, collective: bool = True) -> None:
        """An operation of the trainer; a collective one ends when all ranks are in it."""
        machine = self.machine
        async with gpu.training():
            assert machine.engine == "asleep"
            machine.begun.append(asyncio.get_running_loop().time())
            if collective:
                await machine.barrier.wait()
            await asyncio.sleep(seconds)
            assert machine.engine == "asleep"
            assert self._rank in machine.computing

    async def score(self, gpu: SharedGpu, number: int, *, after: float = 0.0, seconds: float = 1.0) -> None:
        """A sample that comes some time later."""
        await asyncio.sleep(after)
        async with gpu.scoring():
            assert self.machine.engine == "awake"
            assert not self.machine.computing
            await asyncio.sleep(seconds)
            self.machine.scored.append((self._rank, number))


Story = Callable[[SimulatedRank, SharedGpu, int], Awaitable[None]]


def played(
    story: Story, *, ranks: int = 2, costs: Costs = COSTS, within: float = 10_000
) -> tuple[SimulatedMachine, list[TurnReport]]:
    """Play one story on every rank; raises TimeoutError where they wait for each other for ever."""

    async def play() -> tuple[SimulatedMachine, list[TurnReport]]:
        machine = SimulatedMachine(ranks)
        clock = asyncio.get_running_loop().time

        async def live(number: int) -> TurnReport:
            rank = SimulatedRank(machine, number)
            async with SharedGpu(machine.held, costs, peers=rank, clock=clock) as gpu:
                await story(rank, gpu, number)
            return gpu.report()

        supervisor = asyncio.create_task(machine.supervise())
        async with asyncio.timeout(within):
            reports = await asyncio.gather(*map(live, range(ranks)))
            # A rank that gave up a pool while that woke does not wait for it to fall asleep again.
            await machine.until(lambda: machine.engine == "asleep")
        supervisor.cancel()
        assert machine.engine == "asleep"
        assert not machine.computing
        return machine, reports

    return run(play())


def test_a_rank_that_asks_for_the_gpu_waits_without_it_for_one_whose_scores_are_not_there() -> None:
    async def story(rank: SimulatedRank, gpu: SharedGpu, number: int) -> None:
        await rank.compute(gpu, 3)
        if number == 1:
            await rank.score(gpu, 0, seconds=20)
        await rank.compute(gpu, 3)

    machine, reports = played(story)
    assert machine.scored == [(1, 0)]
    assert [report.turns for report in reports] == [0, 1]
    assert machine.begun[2] == pytest.approx(machine.begun[3], abs=0.1)
    assert machine.begun[2] >= 3 + 2 + 20 + 1


def test_a_rank_gives_up_a_pool_that_does_not_wake_because_another_rank_was_quicker_to_compute() -> None:
    async def story(rank: SimulatedRank, gpu: SharedGpu, number: int) -> None:
        async with asyncio.TaskGroup() as tasks:
            if number == 1:
                tasks.create_task(rank.score(gpu, 0, after=1))
            await rank.compute(gpu, 3)
            # Its patience has just ended: it holds the pool, and the supervisor has not seen it yet.
            await asyncio.sleep(COSTS.patience_seconds + SUPERVISOR_SECONDS / 2)
            await rank.compute(gpu, 3)
            assert rank.machine.scored == []

    machine, reports = played(story)
    assert machine.scored == [(1, 0)]
    assert reports[1].turns == 1


def test_no_engine_wakes_while_the_slower_rank_still_computes() -> None:
    async def story(rank: SimulatedRank, gpu: SharedGpu, number: int) -> None:
        await rank.compute(gpu, 30 if number else 3, collective=False)
        await rank.score(gpu, number)

    machine, _ = played(story)
    assert sorted(machine.scored) == [(0, 0), (1, 1)]


def test_a_sample_that_waited_too_long_on_one_rank_goes_before_the_next_operation_of_all() -> None:
    async def story(rank: SimulatedRank, gpu: SharedGpu, number: int) -> None:
        async with asyncio.TaskGroup() as tasks:
            if number == 0:
                tasks.create_task(rank.score(gpu, 0, after=1))
            for _ in range(4):
                await rank.compute(gpu, 3)
            if number == 0:
                assert (0, 0) in rank.machine.scored

    played(story, costs=URGENT)


def test_an_engine_that_never_gives_the_gpu_back_is_an_error() -> None:
    async def play() -> None:
        machine = SimulatedMachine(1)
        machine.engine = "awake"
        clock = asyncio.get_running_loop().time
        rank = SimulatedRank(machine, 0)
        async with SharedGpu(machine.held, peers=rank, deadline_seconds=30, clock=clock) as gpu:
            with pytest.raises(PoolNotReadyError, match="within 30 s"):
                await rank.compute(gpu, 1)

    run(play())


operations = st.tuples(st.floats(0.01, 20), st.booleans())
arrivals = st.lists(st.tuples(st.floats(0, 60), st.floats(0, 5)), max_size=8)


@settings(deadline=None, max_examples=60)
@example(job=[(1.0, False)], ranks=[(0.0, []), (3.0, [(0.0, 0.0)])], costs=COSTS)  # given up while it wakes
@given(
    job=st.lists(operations, min_size=1, max_size=5),
    ranks=st.lists(st.tuples(st.floats(0, 3), arrivals), min_size=2, max_size=4),
    costs=st.sampled_from([COSTS, URGENT]),
)
def test_ranks_and_engines_never_meet_never_deadlock_and_leave_no_sample(
    job: list[tuple[float, bool]], ranks: list[tuple[float, list[tuple[float, float]]]], costs: Costs
) -> None:
    async def story(rank: SimulatedRank, gpu: SharedGpu, number: int) -> None:
        pause, samples = ranks[number]
        async with asyncio.TaskGroup() as tasks:
            for index, (after, seconds) in enumerate(samples):
                tasks.create_task(rank.score(gpu, index, after=after, seconds=seconds))
            for seconds, collective in job:
                # Without collectives in them, operations take each rank its own time.
                await rank.compute(gpu, seconds * (1 + number * (not collective)), collective=collective)
                await asyncio.sleep(pause)

    machine, _ = played(story, ranks=len(ranks), costs=costs)
    expected = {(number, index) for number, (_, samples) in enumerate(ranks) for index in range(len(samples))}
    assert set(machine.scored) == expected
    assert len(machine.scored) == len(expected)
