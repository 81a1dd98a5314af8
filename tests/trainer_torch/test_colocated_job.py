"""`python -m rewardpool_train` on two ranks, with pools that sleep on its GPUs: real supervisors, routers and torchrun.

The engines are StandInVllm, since real ones sleep on GPUs alone, and the ranks compute on the CPU.
"""

import asyncio
import json
import os
import signal
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from support import torchrun
from support.env_vars import env_vars
from support.fleet import ROOT, eventually
from support.local_machine import POOL, LocalMachine, local_machine, machine

from rewardpool_api.status import SleepStatus
from rewardpool_train.colocated import GpuLock
from rewardpool_train.job import main

__all__ = ["machine"]

pytestmark = pytest.mark.real
STAND_IN = ROOT / "tests" / "worker" / "stand_in_vllm"
SECOND_POOL = "rl/second"
SECONDS = 240.0
"""Deadline of a job that takes half a minute on two cores."""
Interval = tuple[float, float]


@pytest.fixture
def second(machine: LocalMachine) -> Iterator[LocalMachine]:
    """The same machine, seen by another pool."""
    (machine.home / "second").mkdir()
    with local_machine(machine.home / "second", pool=SECOND_POOL) as second:
        second.environ = machine.environ
        yield second


async def up(machine: LocalMachine, policy_folder: Path, *, sleeps: bool = True, teaches: bool = False) -> None:
    env = {"PYTHONPATH": f"{STAND_IN}:{ROOT / 'tests'}", "STAND_IN_LOG": str(machine.home / "engine.log")}
    engine = {"name": "vllm", "sleep": {"enabled": sleeps}, "env": env_vars(env)}
    model = {"source": f"file://{policy_folder}", "type": "Teacher" if teaches else "Discriminative"}
    machine.give_gpus(1)
    await machine.up(model=model, engine=engine, worker={"gpus": 1, "drainSeconds": 5})


def config_of(machine: LocalMachine, policy_folder: Path, **changes: Any) -> Path:
    (machine.home / "prompts.jsonl").write_text("\n".join(json.dumps({"prompt": digit}) for digit in "1234"))
    config = {
        "policy": {"path": str(policy_folder)},
        "data": {"prompts": "prompts.jsonl"},
        "reward": {"pool": POOL},
        "rollout": {"prompts_per_step": 8, "group_size": 4, "max_new_tokens": 12},
        "update": {"groups_per_minibatch": 4},
        "steps": 3,
        "output": "out",
    }
    file = machine.home / "train.yaml"
    file.write_text(yaml.safe_dump(config | changes))
    return file


@asynccontextmanager
async def job(machine: LocalMachine, config: Path) -> AsyncIterator[Process]:
    """The job on two ranks, ended with the block."""
    environ = {**machine.environ, "PYTHONPATH": str(ROOT / "tests"), "OMP_NUM_THREADS": "1"}
    environ["KUBECONFIG"] = str(machine.home / "none")
    process = await asyncio.create_subprocess_exec(
        *torchrun.command("support.colocated_job", machine.home, config, ranks=2), env=environ
    )
    try:
        async with asyncio.timeout(SECONDS):
            yield process
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()


def operations(machine: LocalMachine) -> list[list[Interval]]:
    """When each rank computed."""
    lines = [file.read_text().splitlines() for file in sorted(machine.home.glob("rank-*"))]
    return [[(float(line.split()[0]), float(line.split()[1])) for line in rank] for rank in lines]


def events(machine: LocalMachine) -> list[tuple[float, str]]:
    """What its engine did, and when."""
    lines = (machine.home / "engine.log").read_text().splitlines()
    return [(float(line.split()[0]), line.split()[1]) for line in lines]


def assert_computes_asleep(ranks: list[list[Interval]], seen: list[tuple[float, str]]) -> None:
    """Assert that an engine slept whenever a rank computed."""
    for begin, end in (operation for rank in ranks for operation in rank):
        assert [what for at, what in seen if begin <= at <= end] == []
        assert [what for at, what in seen if at < begin][-1] == "sleep"


def sleep_of(machine: LocalMachine) -> SleepStatus | None:
    return machine.pool().status.sleep


async def test_two_ranks_share_their_gpus_with_all_pools_of_their_reward(
    machine: LocalMachine, second: LocalMachine, policy_folder: Path
) -> None:
    await asyncio.gather(up(machine, policy_folder), up(second, policy_folder))
    reward = {"rewards": [{"pool": POOL}, {"pool": SECOND_POOL, "weight": 0.5}]}
    async with job(machine, config_of(machine, policy_folder, reward=reward)) as process:
        assert await process.wait() == 0
    totals = json.loads((machine.home / "out" / "metrics.json").read_text())
    assert (totals["samples"], totals["scored"], totals["lost"]) == (96, 96, 0)
    assert totals["colocated"]["turns"] >= 3
    ranks = operations(machine)
    # Each step rolls out, trains two mini-batches and publishes.
    assert [len(rank) for rank in ranks] == [12, 12]
    for pool in (machine, second):
        assert_computes_asleep(ranks, events(pool))
        assert sum(what == "score" for _, what in events(pool)) >= 96
        assert sleep_of(pool) == SleepStatus(state="Asleep")
        assert GpuLock([pool.folder.path]).try_acquire()


async def test_two_ranks_share_their_gpus_with_a_reward_and_a_teacher(
    machine: LocalMachine, second: LocalMachine, policy_folder: Path
) -> None:
    await asyncio.gather(up(machine, policy_folder), up(second, policy_folder, teaches=True))
    config = config_of(machine, policy_folder, distillation={"teacher": SECOND_POOL}, steps=2)
    async with job(machine, config) as process:
        assert await process.wait() == 0
    totals = json.loads((machine.home / "out" / "metrics.json").read_text())
    assert (totals["samples"], totals["scored"], totals["lost"]) == (64, 64, 0)
    assert totals["colocated"]["turns"] >= 2
    for pool in (machine, second):
        assert_computes_asleep(operations(machine), events(pool))
        assert sum(what == "score" for _, what in events(pool)) >= 64
        assert sleep_of(pool) == SleepStatus(state="Asleep")


@pytest.mark.long  # tests/local kills a process that holds a pool awake
@pytest.mark.parametrize("when", ["it computes", "it holds the pool awake"])
async def test_a_rank_that_is_killed_leaves_nothing_awake_and_nothing_locked(
    machine: LocalMachine, policy_folder: Path, when: str
) -> None:
    await up(machine, policy_folder)
    lock = GpuLock([machine.folder.path])

    def rank_to_kill() -> int | None:
        status = sleep_of(machine)
        if when == "it computes":
            ranks = [int(file.name.partition("-")[2]) for file in machine.home.glob("rank-*")]
            return ranks[0] if lock.others_compute() else None
        return int(status.holders[0].partition("-")[0]) if status and status.holders else None

    async with job(
        machine, config_of(machine, policy_folder, schedule="one_step_off_minibatch", steps=1000)
    ) as process:
        while (rank := rank_to_kill()) is None:
            assert process.returncode is None
            await asyncio.sleep(0.005)
        os.kill(rank, signal.SIGKILL)
        assert await process.wait() != 0

    async def asleep() -> bool:
        return sleep_of(machine) == SleepStatus(state="Asleep") and lock.try_acquire()

    await eventually(asleep, what="it sleeps, and the GPU is free", seconds=20)


async def test_a_job_that_cannot_share_is_refused_with_the_fields_path(
    machine: LocalMachine, policy_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in {**machine.environ, "KUBECONFIG": str(machine.home / "none")}.items():
        monkeypatch.setenv(name, value)
    await up(machine, policy_folder)
    apart = config_of(machine, policy_folder, schedule="fully_async")
    assert await asyncio.to_thread(main, [str(apart)]) == 1
    assert "error: schedule: fully_async keeps the GPUs busy all the time" in capsys.readouterr().err
    own = {"function": "support.rare_reward:has_a_pair_of_sevens"}
    without = config_of(machine, policy_folder, reward=own, colocated={"enabled": True})
    assert await asyncio.to_thread(main, [str(without)]) == 1
    assert "error: colocated.enabled: the reward has no pool that could sleep" in capsys.readouterr().err
