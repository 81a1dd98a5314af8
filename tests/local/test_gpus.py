"""Which GPUs a pool's replicas get, as tables; and the locks by which pools of one machine keep out of each other's."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from support.decide_builders import a_pool
from support.env_vars import env_vars
from support.stand_in_nvidia_smi import stand_in_nvidia_smi

from rewardpool_api import names
from rewardpool_local.gpu_shares import GpuShares
from rewardpool_local.gpus import (
    Gpu,
    GpusUnreadableError,
    choose_visible,
    counted,
    find,
    parse,
    refusal,
    variables,
)
from rewardpool_local.machine import unheeded

FOUR = tuple(Gpu(name=str(index), uuid=f"GPU-{letter}{index}") for index, letter in enumerate("abcd"))


@pytest.mark.parametrize(
    ("given", "uuids"),
    [
        pytest.param(None, ["GPU-a0", "GPU-b1", "GPU-c2", "GPU-d3"], id="nothing said: all of them"),
        pytest.param("2,0", ["GPU-c2", "GPU-a0"], id="in the user's order"),
        pytest.param(" 1 , 1", ["GPU-b1"], id="named twice, had once"),
        pytest.param("GPU-d,0", ["GPU-d3", "GPU-a0"], id="the beginning of an id"),
        pytest.param("3,-1,0", ["GPU-d3"], id="-1 ends the list"),
        pytest.param("", [], id="none"),
        pytest.param("-1", [], id="none, as some write it"),
        pytest.param("MIG-1/0,MIG-2/0", ["MIG-1/0", "MIG-2/0"], id="slices"),
    ],
)
def test_the_users_list_says_which_gpus_a_pool_may_have(given: str | None, uuids: list[str]) -> None:
    assert [gpu.uuid for gpu in choose_visible(FOUR, given)] == uuids


@pytest.mark.parametrize("given", ["4", "0,x", "GPU-", "GPU-e", "0.5"])
def test_a_list_with_what_is_no_gpu_here_is_refused_by_that_entry(given: str) -> None:
    with pytest.raises(GpusUnreadableError, match=f"names {given.split(',')[-1]}, which is no GPU of this machine"):
        choose_visible(FOUR, given)


def test_a_list_is_taken_at_its_word_where_nobody_knows_what_there_is() -> None:
    assert [gpu.name for gpu in choose_visible(None, "5,7")] == ["5", "7"]
    assert choose_visible(None, None) == ()


def test_numbers_are_given_with_the_order_that_they_count_in() -> None:
    assert variables(FOUR[2:]) == {"CUDA_VISIBLE_DEVICES": "2,3", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def test_an_engine_whose_gpus_nobody_counts_keeps_its_environment() -> None:
    assert variables(()) == {}


@pytest.mark.parametrize(
    ("spec", "visible", "words"),
    [
        ({"replicas": 4}, FOUR, None),
        ({"replicas": 0}, (), None),
        ({"suspend": True}, (), None),
        ({"worker": {"gpus": 0}}, (), None),
        ({"worker": {"gpus": 1, "gpuResource": "amd.com/gpu"}}, (), None),
        ({}, (), "spec.worker.gpus is 1 for each of 1 replica, and this machine has no GPU"),
        ({"replicas": 5}, FOUR, "for each of 5 replicas, and this machine has 4 GPUs"),
        ({"worker": {"gpus": 2}, "replicas": 3}, FOUR, "spec.worker.gpus is 2 for each of 3 replicas"),
        ({"replicas": 2}, FOUR[:1], "and this machine has 1 GPU for the pool"),
    ],
)
def test_more_gpus_than_there_are_is_refused_with_their_number(
    spec: dict[str, Any], visible: Sequence[Gpu], words: str | None
) -> None:
    said = refusal(a_pool(**spec), visible, {})
    assert said == words if words is None else words in str(said) and "spec.worker.gpus: 0" in str(said)


@pytest.mark.parametrize(("least", "refused"), [(0, False), (4, False), (5, True)])
def test_a_pool_that_scales_itself_needs_gpus_for_the_least_it_has(least: int, refused: bool) -> None:
    policy = {"type": "QueueDepth", "queueDepth": {"targetPerReplica": 8}}
    pool = a_pool(autoscaling={"minReplicas": least, "maxReplicas": 16, "policy": policy})
    assert (refusal(pool, FOUR, {}) is not None) is refused


def test_gpus_of_other_pools_are_refused_by_the_pools_names() -> None:
    said = refusal(a_pool(replicas=3), FOUR, {"GPU-a0": "rl/a", "GPU-d3": "rl/b"})
    assert "2 of 4 GPUs are free: GPU 0 is rl/a's, GPU 3 is rl/b's. Stop a pool (`rewardpool down rl/a`)" in str(said)
    assert refusal(a_pool(replicas=2), FOUR, {"GPU-a0": "rl/a", "GPU-d3": "rl/b"}) is None


def test_gpus_of_another_vendor_are_said_not_to_be_counted() -> None:
    pool = a_pool(worker={"gpus": 1, "gpuResource": "amd.com/gpu"})
    assert counted(pool.spec) == 0
    assert unheeded(pool)[0].startswith("spec.worker.gpus is not counted here for amd.com/gpu")


@pytest.mark.parametrize(
    ("output", "code", "found"),
    [
        ("0, GPU-a0\n1, GPU-b1\n", 0, FOUR[:2]),
        ("", 0, ()),
        ("No devices were found\n", 6, ()),
    ],
)
def test_the_answer_of_nvidia_smi_is_a_list_of_gpus(output: str, code: int, found: Sequence[Gpu]) -> None:
    assert parse(output, "", code) == found


@pytest.mark.parametrize(
    ("output", "code"),
    [
        ("Failed to initialize NVML: Driver/library version mismatch", 18),
        ("0, GPU-a0\n", 255),
        ("0\n", 0),
        ("a, GPU-a0\n", 0),
        ("", 9),
    ],
)
def test_an_answer_of_nvidia_smi_that_is_none_is_an_error_and_not_zero_gpus(output: str, code: int) -> None:
    with pytest.raises(GpusUnreadableError, match="nvidia-smi does not say which GPUs there are"):
        parse(output, "", code)


def test_nvidia_smi_is_asked_where_there_is_one(tmp_path: Path) -> None:
    assert find({"PATH": str(tmp_path)}) is None
    stand_in_nvidia_smi(tmp_path, ["0, GPU-a0"])
    assert find({"PATH": str(tmp_path)}) == FOUR[:1]


def machine_of(folder: Path, gpus: int) -> Mapping[str, str]:
    """The environment of a machine with so many GPUs."""
    stand_in_nvidia_smi(folder / "programs", [f"{gpu.name}, {gpu.uuid}" for gpu in FOUR[:gpus]])
    return {"PATH": str(folder / "programs"), names.ENV_STATE_DIR: str(folder / "state")}


def visible_of(shares: GpuShares, *replicas: str) -> list[str | None]:
    return [shares.variables(replica).get("CUDA_VISIBLE_DEVICES") for replica in replicas]


async def test_replicas_of_all_pools_of_a_machine_have_gpus_of_their_own(tmp_path: Path) -> None:
    environ = machine_of(tmp_path, 4)
    one, other = GpuShares("rl/one", environ), GpuShares("rl/other", environ)
    pair, single = a_pool(worker={"gpus": 2}).spec, a_pool().spec
    assert [await one.acquire("worker-1", single), await other.acquire("worker-1", pair)] == [None, None]
    assert await one.acquire("worker-2", single) is None
    assert visible_of(one, "worker-1", "worker-2") + visible_of(other, "worker-1") == ["0", "3", "1,2"]


async def test_a_replica_without_a_gpu_is_told_who_has_them_and_gets_one_that_is_let_go(tmp_path: Path) -> None:
    environ = machine_of(tmp_path, 2)
    one, other = GpuShares("rl/one", environ), GpuShares("rl/other", environ)
    spec = a_pool().spec
    assert [await one.acquire(name, spec) for name in ("worker-1", "worker-2")] == [None, None]
    words = await other.acquire("worker-1", spec)
    assert words == "Insufficient nvidia.com/gpu: 1 needed, 0 of 2 free; GPU 0 is rl/one's; GPU 1 is rl/one's"
    one.release("worker-2")
    assert await other.acquire("worker-1", spec) is None
    assert visible_of(other, "worker-1") == ["1"]


async def test_a_replica_that_lacks_a_part_of_its_gpus_keeps_none_of_them(tmp_path: Path) -> None:
    environ = machine_of(tmp_path, 2)
    one, other = GpuShares("rl/one", environ), GpuShares("rl/other", environ)
    assert await one.acquire("worker-1", a_pool().spec) is None
    assert "1 of 2 free" in str(await other.acquire("worker-1", a_pool(worker={"gpus": 2}).spec))
    assert await one.acquire("worker-2", a_pool().spec) is None


async def test_a_replica_that_starts_again_finds_its_own_gpu(tmp_path: Path) -> None:
    shares = GpuShares("rl/one", machine_of(tmp_path, 2))
    spec = a_pool().spec
    for _ in range(2):
        assert [await shares.acquire(name, spec) for name in ("worker-1", "worker-2")] == [None, None]
        assert visible_of(shares, "worker-1", "worker-2") == ["0", "1"]


async def test_engines_that_sleep_share_gpus_with_each_other_alone(tmp_path: Path) -> None:
    environ = machine_of(tmp_path, 2)
    sleeping = a_pool(engine={"sleep": {"enabled": True}}).spec
    pools = [GpuShares(f"rl/{name}", environ) for name in ("one", "two", "three")]
    assert [await pool.acquire("worker-1", sleeping) for pool in pools] == [None] * 3
    assert [visible_of(pool, "worker-1") for pool in pools] == [["0"], ["1"], ["0"]]
    assert "0 of 2 free" in str(await GpuShares("rl/awake", environ).acquire("worker-1", a_pool().spec))


async def test_the_list_in_the_manifest_goes_before_that_of_the_environment(tmp_path: Path) -> None:
    environ = {**machine_of(tmp_path, 4), "CUDA_VISIBLE_DEVICES": "0"}
    shares = GpuShares("rl/one", environ)
    spec = a_pool(engine={"env": env_vars({"CUDA_VISIBLE_DEVICES": "2,3"})}).spec
    assert [await shares.acquire(name, spec) for name in ("worker-1", "worker-2")] == [None, None]
    assert visible_of(shares, "worker-1", "worker-2") == ["2", "3"]


async def test_a_broken_nvidia_smi_keeps_a_replica_waiting_in_its_words(tmp_path: Path) -> None:
    environ = machine_of(tmp_path, 1)
    stand_in_nvidia_smi(tmp_path / "programs", ["Failed to initialize NVML"], code=18)
    assert "exit code 18: Failed to initialize NVML" in str(
        await GpuShares("rl/one", environ).acquire("w", a_pool().spec)
    )
