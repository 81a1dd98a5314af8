"""A pool that shares the trainer's GPU, on one machine: real supervisor, real router, real client.

The engine is StandInVllm, since real ones sleep on GPUs alone; it holds requests while it sleeps, as the real one does.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from typing import Any

import pytest
from support.env_vars import env_vars
from support.fleet import ROOT, eventually
from support.local_machine import POOL, LocalMachine, local_machine
from support.tiny_teacher import computed

from rewardpool import BlockingPool, Pool, RewardConfig, Sample
from rewardpool_api.status import SleepStatus
from rewardpool_api.teacher_wire import question
from rewardpool_train.colocated import Costs, SharedGpu

pytestmark = pytest.mark.real
STAND_IN = ROOT / "tests" / "worker" / "stand_in_vllm"
CONFIG = RewardConfig(pool=POOL, wait_seconds=90, timeout=20)

HOLDER = """
import sys, time
from rewardpool import BlockingPool, RewardConfig

pool = BlockingPool(RewardConfig(pool=sys.argv[1], wait_seconds=90))
with pool.awake():
    print("awake", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def machine_here(machine: LocalMachine, monkeypatch: pytest.MonkeyPatch) -> LocalMachine:
    """A machine whose pools this process finds."""
    find_pools_of(machine, monkeypatch)
    return machine


@pytest.fixture
async def sleeper(lasting: LocalMachine, monkeypatch: pytest.MonkeyPatch) -> LocalMachine:
    """The machine of the tests that leave its pool, of two replicas, serving and asleep."""
    find_pools_of(lasting, monkeypatch)
    if lasting.folder.read_pool() is None:
        await up(lasting, replicas=2)
    return lasting


def find_pools_of(machine: LocalMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in machine.environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("KUBECONFIG", str(machine.home / "none"))


def engine(**env: str) -> dict[str, Any]:
    return {
        "name": "vllm",
        "sleep": {"enabled": True},
        "env": env_vars({"PYTHONPATH": f"{STAND_IN}:{ROOT / 'tests'}", **env}),
    }


async def up(machine: LocalMachine, replicas: int = 1, *, gpus: int = 2, teaches: bool = False, **env: str) -> None:
    model = {"source": f"file://{machine.home}", "type": "Teacher" if teaches else "Discriminative"}
    machine.give_gpus(gpus)
    await machine.up(model=model, engine=engine(**env), worker={"gpus": 1, "drainSeconds": 5}, replicas=replicas)


def start_holder() -> subprocess.Popen[str]:
    """Another process that holds the pool awake until it is killed."""
    command = [sys.executable, "-c", HOLDER, POOL]
    return subprocess.Popen(command, env=dict(os.environ), stdout=subprocess.PIPE, text=True)


def sleep_of(machine: LocalMachine) -> SleepStatus:
    status = machine.pool().status.sleep
    assert status is not None
    return status


async def test_up_gives_up_at_once_where_numbers_depend_on_the_batch(machine_here: LocalMachine) -> None:
    model = {"source": f"file://{machine_here.home}", "type": "Discriminative"}
    varying = {**engine(STAND_IN_VARIES="1"), "sleep": {"enabled": False}}
    file = machine_here.manifest(model=model, engine=varying, worker={"gpus": 0})
    code, said = await machine_here.run("up", "-f", file)
    assert (code, "no worker can start (NumbersVary: " in said) == (1, True), said
    assert "in a batch by 1 (" in said
    _, explained = await machine_here.run("explain", machine_here.pool_key)
    assert "spec.engine.deterministic to true, which takes a GPU" in " ".join(explained.split())


async def test_it_sleeps_whenever_nobody_holds_it_awake(sleeper: LocalMachine) -> None:
    assert sleep_of(sleeper) == SleepStatus(state="Asleep")
    async with Pool(CONFIG) as pool:
        for _ in range(2):
            async with pool.awake(), pool.awake():
                assert sleep_of(sleeper).state == "Awake"
                scores = await asyncio.gather(*(pool.score(Sample(text="x" * n)) for n in range(1, 20)))
                assert scores == [float(n) for n in range(1, 20)]
            assert sleep_of(sleeper) == SleepStatus(state="Asleep")
            assert {worker.phase for worker in sleeper.pool().status.workers} == {"Asleep"}


async def test_a_sample_in_flight_is_scored_before_it_sleeps(sleeper: LocalMachine) -> None:
    async with Pool(CONFIG) as pool:
        async with pool.awake():
            score = asyncio.create_task(pool.score(Sample(text="abc")))
            await asyncio.sleep(0.02)
        assert await asyncio.wait_for(score, 1) == 3.0


async def test_a_holder_that_is_killed_keeps_nothing_awake(sleeper: LocalMachine) -> None:
    holder = start_holder()
    try:
        assert holder.stdout is not None
        assert await asyncio.to_thread(holder.stdout.readline) == "awake\n"
        assert sleep_of(sleeper).state == "Awake"
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.communicate()

    async def asleep() -> bool:
        return sleep_of(sleeper) == SleepStatus(state="Asleep")

    await eventually(asleep, what="it sleeps", seconds=10)


async def test_a_worker_that_died_while_it_slept_starts_at_the_next_wake(machine_here: LocalMachine) -> None:
    await up(machine_here)
    (worker,) = machine_here.pool().status.workers
    assert worker.pid is not None
    with contextlib.suppress(ProcessLookupError):
        os.killpg(worker.pid, signal.SIGKILL)

    async def gone() -> bool:
        return machine_here.pool().status.workers[0].phase == "Waiting"

    await eventually(gone, what="it is gone", seconds=10)
    await asyncio.sleep(2)
    assert machine_here.pool().status.workers[0].phase == "Waiting"
    async with Pool(RewardConfig(pool=POOL)) as pool, pool.awake():
        assert await pool.score(Sample(text="abc")) == 3.0


async def test_an_engine_that_lost_its_weights_is_started_again_and_scores_right(machine_here: LocalMachine) -> None:
    await up(machine_here, STAND_IN_LOSES_WEIGHTS="1")
    async with Pool(CONFIG) as pool:
        async with pool.awake():
            assert await pool.score(Sample(text="abc")) == 3.0
        (worker,) = machine_here.pool().status.workers
        assert worker.restarts == 1
        assert "it came back without its weights" in machine_here.folder.logs.joinpath("supervisor.log").read_text()


async def test_a_training_loop_shares_its_gpu(sleeper: LocalMachine) -> None:
    seen: list[str] = []

    async def score(gpu: SharedGpu, pool: Pool, number: int) -> float:
        async with gpu.scoring():
            return await pool.score(Sample(text="x" * number))

    async with Pool(CONFIG) as pool, SharedGpu(pool.awake, Costs(patience_seconds=0.02)) as gpu:
        for _ in range(3):
            async with gpu.training():
                seen.append(sleep_of(sleeper).state)
                scores = [asyncio.create_task(score(gpu, pool, number)) for number in range(1, 9)]
                await asyncio.sleep(0.2)
                assert not any(task.done() for task in scores)
            assert await asyncio.gather(*scores) == [float(number) for number in range(1, 9)]
        report = gpu.report()
    assert seen == ["Asleep"] * 3
    assert report.turns == 3
    print(report)


SEQUENCES = [[chance % 50 for chance in range(first, first + 12)] for first in range(0, 160, 7)]


async def teaches_right(pool: Pool) -> None:
    """Assert that it gives each sequence's log-probabilities."""
    answers = await asyncio.gather(*(pool.logprobs(sequence, top_k=2) for sequence in SEQUENCES))
    assert [answer.flat for answer in answers] == [computed(question(sequence, top_k=2)) for sequence in SEQUENCES]


async def test_two_teachers_take_turns_on_one_gpu(machine_here: LocalMachine) -> None:
    (machine_here.home / "second").mkdir()
    with local_machine(machine_here.home / "second", pool="rl/second") as second:
        second.environ = machine_here.environ
        for machine in (machine_here, second):
            await up(machine, gpus=1, teaches=True)
            assert sleep_of(machine) == SleepStatus(state="Asleep")
        assert machine_here.gpus() == ["0", "0"]
        async with Pool(CONFIG) as one, Pool(RewardConfig(pool="rl/second", timeout=20)) as other:
            for pool, waits in [(one, second), (other, machine_here)] * 2:
                async with pool.awake():
                    await teaches_right(pool)
                    assert sleep_of(waits) == SleepStatus(state="Asleep")


async def test_of_two_teachers_the_one_that_lost_its_weights_is_started_again(machine_here: LocalMachine) -> None:
    await up(machine_here, 2, teaches=True, STAND_IN_ONE_LOSES_WEIGHTS=str(machine_here.home / "lost"))
    async with Pool(CONFIG) as pool, pool.awake():
        await teaches_right(pool)
        await machine_here.serves(2)
        await teaches_right(pool)
    assert sorted(worker.restarts for worker in machine_here.pool().status.workers) == [0, 1]
    assert "it came back without its weights" in machine_here.folder.logs.joinpath("supervisor.log").read_text()


async def test_code_that_is_not_async_holds_it_too(sleeper: LocalMachine) -> None:

    def hold() -> float:
        with BlockingPool(CONFIG) as pool, pool.awake():
            return pool.score(Sample(text="abc"))

    assert await asyncio.to_thread(hold) == 3.0
    assert sleep_of(sleeper).state == "Asleep"
