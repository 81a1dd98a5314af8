"""Log-probabilities through a real router while workers die, stand still and come back, and the router is restarted.

The engines are stand-ins below the worker's wire: `support.teacher_process`.
"""

import asyncio
import itertools
import os
import random
import signal
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.fleet import ROOT, Fleet, Program, server_python
from support.tiny_teacher import VOCABULARY, computed

from rewardpool import Logprobs, Pool, Report, RewardConfig, SampleError
from rewardpool_api.names import ENV_KEY_FILE, ENV_WORKER
from rewardpool_api.teacher_wire import question

pytestmark = pytest.mark.real

KEY = "the-key-of-the-teachers"
TOP_K = 2
PATH = os.pathsep.join(str(ROOT / room) for room in ("tests", "crds", "runtime", "workers"))
"""The servers' Python has none of RewardPool installed."""


@dataclass
class Served:
    """A fleet of teachers."""

    fleet: Fleet
    teachers: list[Program]

    def pool(self, **settings: Any) -> Pool:
        """By the fleet's router."""
        return Pool(RewardConfig(url=self.fleet.router.url, key_file=self.fleet.key_file, **settings))


def command(port: int, *, wrong: str | None) -> list[str]:
    flags = [] if wrong is None else ["--wrong", wrong]
    return [server_python(), "-m", "support.teacher_process", "--port", str(port), *flags]


@asynccontextmanager
async def served(folder: Path, *, workers: int, wrong: Mapping[int, str] = {}) -> AsyncIterator[Served]:
    (folder / "key").write_text(KEY)
    teachers = [
        Program(
            partial(command, wrong=wrong.get(index)),
            env={ENV_KEY_FILE: str(folder / "key"), ENV_WORKER: f"teacher-{index}", "PYTHONPATH": PATH},
            log=folder / f"teacher-{index}.log",
        )
        for index in range(workers)
    ]
    try:
        await asyncio.gather(*(one.start(seconds=30) for one in teachers))
        async with Fleet(folder, workers=0, others=[one.url for one in teachers], key=KEY) as fleet:
            yield Served(fleet, teachers)
    finally:
        for one in teachers:
            one.kill()


@dataclass
class Asked:
    """What became of every sequence."""

    sequences: list[list[int]]
    answers: dict[int, Logprobs] = field(default_factory=dict)
    slowest: float = 0.0
    progress: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def answered(self, count: int) -> None:
        """Wait until so many have an answer."""
        async with self.progress:
            await self.progress.wait_for(lambda: len(self.answers) >= count)

    async def ask(self, pool: Pool, index: int) -> None:
        began = time.monotonic()
        self.answers[index] = await pool.logprobs(self.sequences[index], top_k=TOP_K)
        self.slowest = max(self.slowest, time.monotonic() - began)
        async with self.progress:
            self.progress.notify_all()

    def check(self) -> None:
        """None is lost, none is another's or wrong, none is zero."""
        assert sorted(self.answers) == [*range(len(self.sequences))]
        for index, sequence in enumerate(self.sequences):
            assert self.answers[index].flat == computed(question(sequence, top_k=TOP_K)), index
            assert any(self.answers[index].logprobs)


def sequences(count: int) -> list[list[int]]:
    chance = random.Random(11)
    return [[chance.randrange(VOCABULARY) for _ in range(chance.randint(4, 24))] for _ in range(count)]


Faults = Callable[[Served, Asked], "asyncio.Future[None]"]


async def asked_during(folder: Path, count: int, faults: Faults, *, workers: int) -> tuple[Asked, Report]:
    """Ask about so many sequences during some faults."""
    asked = Asked(sequences(count))
    async with (
        served(folder, workers=workers) as there,
        there.pool(concurrency=32, timeout=120) as pool,
        asyncio.TaskGroup() as group,
    ):
        trouble = asyncio.ensure_future(faults(there, asked))
        crowd = iter(range(count))

        async def work() -> None:
            for index in crowd:
                await asked.ask(pool, index)

        workers_of_the_crowd = [group.create_task(work()) for _ in range(64)]
        await asyncio.wait(workers_of_the_crowd)
        trouble.cancel()
        done = (await asyncio.gather(trouble, return_exceptions=True))[0]
        assert done is None or isinstance(done, asyncio.CancelledError), done
        return asked, pool.report()


async def test_no_position_is_lost_or_wrong_while_workers_die_and_the_router_is_restarted(tmp_path: Path) -> None:
    async def faults(there: Served, asked: Asked) -> None:
        # While one is dead and the other stands still none is answered, so nothing is over before the last fault.
        dies, stands_still = there.teachers
        await asked.answered(50)
        dies.kill()
        stands_still.signal(signal.SIGSTOP)
        await dies.start(seconds=30)
        await asked.answered(120)
        there.fleet.router.kill()
        stands_still.signal(signal.SIGCONT)
        await there.fleet.router.start()
        await there.fleet.join()

    asked, report = await asked_during(tmp_path, 300, faults, workers=2)
    asked.check()
    assert report.retries
    print(f"slowest of 300: {asked.slowest:.1f} s; {report}")


async def test_what_a_worker_gets_wrong_another_one_answers(tmp_path: Path) -> None:
    asked = Asked(sequences(40))
    wrong = {0: "logits", 1: "null", 2: "-9999"}
    async with served(tmp_path, workers=4, wrong=wrong) as there, there.pool(max_attempts=20) as pool:
        await asyncio.gather(*(asked.ask(pool, index) for index in range(40)))
    asked.check()
    for index in wrong:
        assert "the engine's log-probabilities are wrong" in (tmp_path / f"teacher-{index}.log").read_text()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("logits", r"9\.9.*, not a log-probability"),
        ("-9999", "-9999.0, not a log-probability"),
        ("null", "no log-probabilities"),
        ("nan", "not a finite number"),
    ],
)
async def test_a_sequence_that_its_worker_gets_wrong_has_an_error_that_names_the_worker_and_the_fault(
    tmp_path: Path, wrong: str, said: str
) -> None:
    async with served(tmp_path, workers=1, wrong={0: wrong}) as there:
        # The router would try so often by itself that it has no worker left in the end.
        config = RewardConfig(url=there.teachers[0].url, key_file=there.fleet.key_file, max_attempts=2)
        async with Pool(config) as pool:
            with pytest.raises(SampleError, match=f"worker teacher-0: the engine's log-prob.*{said}") as failed:
                await pool.logprobs([1, 2, 3])
    assert (failed.value.fault, failed.value.kind) == ("infra", "worker")


@pytest.mark.long
async def test_of_ten_thousand_sequences_none_is_lost_though_a_worker_dies_every_three_seconds(tmp_path: Path) -> None:
    count, kills, began = 10_000, 0, time.monotonic()

    async def faults(there: Served, asked: Asked) -> None:
        nonlocal kills
        async with asyncio.TaskGroup() as starting:
            for number, victim in enumerate(itertools.cycle(there.teachers)):
                await asyncio.sleep(3.0)
                victim.kill()
                kills += 1
                starting.create_task(victim.start(seconds=60))
                if number % 5 == 2:
                    neighbour = there.teachers[(number + 1) % len(there.teachers)]
                    neighbour.signal(signal.SIGSTOP)
                    await asyncio.sleep(2.0)
                    neighbour.signal(signal.SIGCONT)
                elif number % 5 == 4:
                    there.fleet.router.kill()
                    await there.fleet.router.start()
                    await there.fleet.join()

    asked, report = await asked_during(tmp_path, count, faults, workers=4)
    seconds = time.monotonic() - began
    asked.check()
    print(f"{count} sequences in {seconds:.0f} s, {kills} kills, slowest {asked.slowest:.1f} s; {report}")
    assert kills >= 2  # of a fast machine that is through sooner
