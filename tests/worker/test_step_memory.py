"""Whether a teacher's step has room beside its engine, as tables; nvidia-smi is a stand-in, and no GPU is used."""

import json
from pathlib import Path
from typing import Any

import pytest
from support.stand_in_nvidia_smi import stand_in_nvidia_smi

from rewardpool_api.names import ENV_MODEL_PATH, ENV_STEP_TOKENS
from rewardpool_worker.diagnosis import diagnose
from rewardpool_worker.engine_side import vllm_launcher
from rewardpool_worker.engine_side.step_memory import (
    SGLANG,
    VLLM,
    GpuMemory,
    MemoryFlag,
    NoRoomError,
    find_gpus,
    flags,
    flags_or_refuse,
    parse,
)


def gpu(total: float, free: float) -> GpuMemory:
    """A GPU by its gigabytes."""
    return GpuMemory(total=int(total * 1e9), free=int(free * 1e9))


def added(flag: MemoryFlag, given: float | None, *gpus: GpuMemory) -> list[str]:
    """Flags for steps that need 2.5 GB."""
    return flags(flag, given, gpus, tokens=2048, vocabulary=152_000)


@pytest.mark.parametrize(
    ("flag", "given", "gpus"),
    [
        (VLLM, None, [gpu(80, 79.5)]),
        (VLLM, 0.87, [gpu(24, 23.5)]),
        (VLLM, 0.3, [gpu(80, 40)]),
        (SGLANG, 0.93, [gpu(80, 40)]),
        (SGLANG, None, [gpu(24, 23.5)]),
        (VLLM, 0.99, []),
    ],
)
def test_an_engine_that_leaves_room_is_started_as_it_is(
    flag: MemoryFlag, given: float | None, gpus: list[GpuMemory]
) -> None:
    assert added(flag, given, *gpus) == []


def test_a_smaller_fraction_than_the_default_makes_room() -> None:
    assert added(VLLM, None, gpu(80, 79.5), gpu(24, 23.5)) == ["--gpu-memory-utilization", "0.87"]


@pytest.mark.parametrize(
    ("flag", "given", "gpus", "words"),
    [
        (
            VLLM,
            0.95,
            [gpu(80, 79.5), gpu(24, 23.5)],
            "spec.engine.args has --gpu-memory-utilization 0.95, which leaves 0.7 GB of the 23.5 GB that are free on"
            " GPU 1 of 24.0 GB, and a teacher's step needs 2.5 GB beside the engine, 2,048 tokens x 152,000 of the"
            " vocabulary x 8 bytes: set --gpu-memory-utilization to at most 0.87",
        ),
        (VLLM, 0.9, [gpu(80, 60)], "leaves 0.0 GB of the 60.0 GB .* to at most 0.71"),
        (SGLANG, 0.95, [gpu(80, 40)], "leaves 2.0 GB of the 40.0 GB .* set --mem-fraction-static to at most 0.93"),
        (VLLM, None, [gpu(24, 12)], "^--gpu-memory-utilization 0.92 leaves 0.0 GB of the 12.0 GB .* to at most 0.39"),
        (VLLM, None, [gpu(24, 2)], "^--gpu-memory-utilization 0.92 leaves 0.0 GB .* or take a larger GPU"),
        (SGLANG, 0.5, [gpu(24, 0)], "free its memory"),
    ],
)
def test_a_step_without_room_is_refused_with_the_numbers_and_what_to_set(
    flag: MemoryFlag, given: float | None, gpus: list[GpuMemory], words: str
) -> None:
    with pytest.raises(NoRoomError, match=words):
        added(flag, given, *gpus)


def test_what_is_said_to_leave_room_does() -> None:
    (_, most) = added(VLLM, None, gpu(24, 23.5))
    assert added(VLLM, float(most), gpu(24, 23.5)) == []


@pytest.fixture
def teacher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a teacher's checkpoint, for a worker on a GPU of 24 GiB, of which 1 is taken."""
    (tmp_path / "config.json").write_text(json.dumps({"vocab_size": 152_000}))
    monkeypatch.setenv(ENV_MODEL_PATH, str(tmp_path))
    monkeypatch.setenv(ENV_STEP_TOKENS, "2048")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    stand_in_nvidia_smi(tmp_path / "bin", ["24576, 23552"])
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    return tmp_path


@pytest.mark.parametrize(
    "given",
    [
        ["--gpu-memory-utilization", "0.95"],
        ["--gpu_memory_utilization=0.95"],
        ["--gpu-memory-util=0.5", "--gpu-m=0.95"],
    ],
)
def test_vllm_is_not_started_where_a_step_has_no_room(
    teacher: Path, given: list[str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delattr(vllm_launcher.os, "execv")
    assert vllm_launcher.main(["-m", "no.such.module", *given]) == 2
    found = diagnose(exit_code=2, log=capfd.readouterr().err)
    assert found.reason == "OutOfMemory"
    assert "spec.engine.args has --gpu-memory-utilization 0.95" in found.message
    assert "to at most" in found.message


@pytest.mark.parametrize("config", [{"vocab_size": 152_000}, {"text_config": {"vocab_size": 152_000}}])
def test_the_vocabulary_is_the_checkpoints(teacher: Path, config: dict[str, Any]) -> None:
    (teacher / "config.json").write_text(json.dumps(config))
    assert flags_or_refuse(VLLM, []) == ["--gpu-memory-utilization", "0.86"]


@pytest.mark.parametrize("config", ["{}", "nonsense", '{"vocab_size": "many"}'])
def test_without_a_vocabulary_nothing_is_looked_at(teacher: Path, config: str) -> None:
    (teacher / "config.json").write_text(config)
    assert flags_or_refuse(VLLM, ["--gpu-memory-utilization", "1"]) == []


def test_a_worker_that_is_no_teacher_is_started_as_it_is(teacher: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ENV_STEP_TOKENS)
    assert flags_or_refuse(VLLM, ["--gpu-memory-utilization", "1"]) == []


@pytest.mark.parametrize(
    "listing",
    ["[N/A], [N/A]", "Failed to initialize NVML", "24576", "0, GPU-8a3f", ""],
    ids=lambda text: text or "empty",
)
def test_gpus_whose_memory_is_not_said_are_not_looked_at(tmp_path: Path, listing: str) -> None:
    stand_in_nvidia_smi(tmp_path, [listing])
    assert find_gpus({"PATH": str(tmp_path)}) == ()


def test_gpus_of_a_failing_nvidia_smi_are_not_looked_at(tmp_path: Path) -> None:
    stand_in_nvidia_smi(tmp_path, ["24576, 23552"], code=9)
    assert find_gpus({"PATH": str(tmp_path)}) == ()


def test_a_worker_that_may_see_no_gpu_has_none(tmp_path: Path) -> None:
    stand_in_nvidia_smi(tmp_path, ["24576, 23552"])
    assert find_gpus({"PATH": str(tmp_path), "CUDA_VISIBLE_DEVICES": ""}) == ()


@pytest.mark.parametrize("environ", [{"PATH": ""}, {"PATH": "/nowhere"}])
def test_a_machine_without_nvidia_smi_has_nothing_to_look_at(environ: dict[str, str]) -> None:
    assert find_gpus(environ) == ()


def test_a_listing_has_a_gpu_in_each_line() -> None:
    assert parse("81559, 81000\n24564, 100\n") == (
        GpuMemory(total=81559 << 20, free=81000 << 20),
        GpuMemory(total=24564 << 20, free=100 << 20),
    )
