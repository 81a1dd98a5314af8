"""Replicas of real pools on one machine, each with GPUs of its own; nvidia-smi is a stand-in, and nobody uses a GPU."""

from collections.abc import Iterator

import pytest
from support.env_vars import env_vars
from support.local_machine import POOL, LocalMachine, local_machine

pytestmark = pytest.mark.real
ONE_EACH = {"gpus": 1, "drainSeconds": 5}
OTHER = "rl/other"


@pytest.fixture
def other(machine: LocalMachine) -> Iterator[LocalMachine]:
    """The same machine, seen by another pool."""
    (machine.home / "other").mkdir()
    with local_machine(machine.home / "other", pool=OTHER) as other:
        other.environ = machine.environ
        yield other


async def test_replicas_of_two_pools_have_a_gpu_each_and_a_third_pool_is_refused_by_their_names(
    machine: LocalMachine, other: LocalMachine
) -> None:
    machine.give_gpus(3)
    await machine.up(replicas=2, worker=ONE_EACH)
    await other.up(worker=ONE_EACH)
    assert sorted(machine.gpus()) == ["0", "1", "2"]
    code, said = await other.run("scale", OTHER, "2")
    assert (code, f"1 of 3 GPUs are free: GPU 0 is {POOL}'s, GPU 1 is {POOL}'s" in said) == (2, True), said
    assert (await machine.run("down", POOL))[0] == 0
    code, said = await other.run("scale", OTHER, "3")
    assert code == 0, said
    assert sorted(machine.gpus()) == ["0", "1", "2"]


@pytest.mark.long
async def test_the_gpus_that_the_terminal_of_up_has_are_those_of_its_pool_whoever_scales_it(
    machine: LocalMachine,
) -> None:
    machine.give_gpus(4)
    machine.environ["CUDA_VISIBLE_DEVICES"] = "2,3"
    await machine.up(worker=ONE_EACH)
    machine.environ["CUDA_VISIBLE_DEVICES"] = "0"
    assert (await machine.run("scale", POOL, "2"))[0] == 0
    assert sorted(machine.gpus()) == ["2", "3"]
    code, said = await machine.run("scale", POOL, "3")
    assert (code, "for each of 3 replicas, and this machine has 2 GPUs for the pool" in said) == (2, True), said


@pytest.mark.long
async def test_a_changed_manifest_replaces_one_by_one_where_no_gpu_is_free(machine: LocalMachine) -> None:
    machine.give_gpus(2)
    await machine.up(replicas=2, worker=ONE_EACH)
    before = {process.pid for process in machine.processes()}
    engine = {"name": "python", "env": env_vars({"CHANGED": "1"})}
    said = await machine.up(replicas=2, worker=ONE_EACH, engine=engine)
    assert "is as the manifest says" in said
    await machine.serves(2)
    assert sorted(machine.gpus()) == ["0", "1"]
    workers = [process for process in machine.processes() if process.environ().get("CHANGED")]
    assert len(workers) == 2
    assert not before & {process.pid for process in workers}


@pytest.mark.parametrize(
    ("gpus", "words"),
    [(0, "and this machine has no GPU for the pool"), (1, "for each of 2 replicas, and this machine has 1 GPU")],
)
async def test_a_machine_with_too_few_gpus_is_refused_before_anything_starts(
    machine: LocalMachine, gpus: int, words: str
) -> None:
    machine.give_gpus(gpus)
    code, said = await machine.run("up", "-f", machine.manifest(replicas=2, worker=ONE_EACH))
    assert (code, words in said) == (2, True), said
    assert not machine.folder.path.exists()


async def test_a_pool_that_counts_no_gpus_keeps_what_its_environment_says(machine: LocalMachine) -> None:
    machine.environ["CUDA_VISIBLE_DEVICES"] = "7"
    await machine.up(replicas=2)
    assert machine.gpus() == ["7", "7"]
