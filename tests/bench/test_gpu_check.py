"""Which checks `make gpu-check` makes on which machine, and what its report says. What the engines do needs a GPU."""

import json
import sys

import pytest
from gpu_check import __main__ as command
from gpu_check import run
from gpu_check.plan import CLASSES, Check, on_gpu, plan, why_not
from gpu_check.report import Result, as_json, as_markdown, held
from support.stand_in_nvidia_smi import stand_in_nvidia_smi

from rewardpool_api import RewardPool
from rewardpool_train.config import load_train_config

GOLDEN = {
    name: {
        "apiVersion": "rewardpool.dev/v1alpha1",
        "kind": "RewardPool",
        "metadata": {"name": name, "namespace": "golden"},
        "spec": {
            "model": {"source": f"file:///models/{name}"},
            "engine": {
                "name": "vllm",
                "dtype": "float32",
                "maxModelLen": 1024,
                "args": ["--enforce-eager"],
                "env": [{"name": "VLLM_CPU_KVCACHE_SPACE", "value": "1"}],
            },
            "worker": {"gpus": 0},
        },
    }
    for name in CLASSES
}


def test_every_check_has_a_manifest_that_the_api_takes():
    checks = plan(GOLDEN, ["vllm", "sglang"])
    pools = [RewardPool.model_validate(check.manifest) for check in checks if check.manifest is not None]
    assert [pool.spec.worker.gpus for pool in pools] == [check.gpus for check in checks if check.manifest is not None]


def test_no_two_checks_have_one_name():
    names = [check.name for check in plan(GOLDEN, ["vllm", "sglang"])]
    assert len(set(names)) == len(names)


def test_what_only_a_cpu_needs_is_left_out_on_a_gpu():
    engine = on_gpu(GOLDEN["qwen3"], "vllm")["spec"]["engine"]
    assert engine == {
        "name": "vllm",
        "dtype": "bfloat16",
        "maxModelLen": 1024,
        "args": ["--gpu-memory-utilization=0.3"],
    }


def test_a_class_that_an_engine_does_not_have_is_not_asked_of_it():
    names = [check.name for check in plan(GOLDEN, ["sglang"])]
    assert not any("mistral" in name for name in names)
    assert any("gemma2" in name for name in names)


@pytest.mark.parametrize(("gpus", "said"), [(1, "needs 2 GPUs, and there are 1"), (2, None), (8, None)])
def test_a_check_for_two_gpus_needs_two(gpus, said):
    assert why_not(Check(name="tensor parallel", kind="scores", gpus=2), gpus) == said


HELD = Result(name="scores", outcome="held", seconds=61.2, figures={"max_abs_diff": 0.01234567, "texts": 31})
FAILED = Result(name="sleep", outcome="failed", why="no memory | came\nback")
NOT_RUN = Result(name="tensor parallel", outcome="not run", why="needs 2 GPUs, and there are 1")


@pytest.mark.parametrize(
    ("results", "holds"),
    [([HELD, NOT_RUN], True), ([HELD, FAILED], False), ([NOT_RUN], False), ([], False)],
)
def test_a_report_holds_where_something_was_checked_and_nothing_failed(results, holds):
    assert held(results) is holds


def test_the_report_has_a_line_for_each_check_with_its_figures_or_why():
    assert as_markdown([HELD, FAILED, NOT_RUN], gpus=["H100"]).splitlines()[4:] == [
        "| scores | held | 61 | max_abs_diff 0.0123, texts 31 |",
        "| sleep | failed | 0 | no memory \\| came back |",
        "| tensor parallel | not run | 0 | needs 2 GPUs, and there are 1 |",
    ]


def test_the_file_has_the_figures_as_they_are():
    (check,) = as_json([HELD], gpus=["H100"])["checks"]
    assert check["figures"]["max_abs_diff"] == 0.01234567


def test_the_training_job_is_the_quick_starts_with_three_steps_and_the_checks_own_pool(tmp_path):
    (file := tmp_path / "train.yaml").write_text(run.training_config(tmp_path / "out"))
    config = load_train_config(file)
    assert (config.steps, config.reward["pool"], config.output) == (3, "default/gpu-check", tmp_path / "out")
    assert config.data.prompts.is_file()


@pytest.mark.parametrize(
    ("lines", "code", "found"),
    [(["H100, 80 GiB, 1", "H100, 80 GiB, 1"], 0, ["H100, 80 GiB, 1"] * 2), (["No devices"], 6, []), ([], 0, [])],
)
def test_gpus_are_what_nvidia_smi_lists(monkeypatch, tmp_path, lines, code, found):
    stand_in_nvidia_smi(tmp_path, lines, code=code)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert command.gpus() == found


def test_without_nvidia_smi_or_its_answer_there_are_no_gpus(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert command.gpus() == []
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\nexec /bin/sleep 30\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setattr(command, "SMI_SECONDS", 0.1)
    assert command.gpus() == []


def test_an_engine_without_an_interpreter_is_refused_by_its_variable(monkeypatch, capsys):
    monkeypatch.delenv("REWARDPOOL_SGLANG_PYTHON", raising=False)
    monkeypatch.setattr(sys, "argv", ["gpu_check", "--on-cpu", "--engine", "sglang"])
    with pytest.raises(SystemExit):
        command.main()
    assert "set REWARDPOOL_SGLANG_PYTHON to the interpreter that has the engine" in capsys.readouterr().err


CHECK = Check(name="scores", kind="scores", gpus=1, manifest=GOLDEN["qwen3"], model_class="qwen3", engine="vllm")


def result(monkeypatch, folder, *, count, said):
    """What becomes of the check where `rewardpool verify` says this."""
    monkeypatch.setenv("REWARDPOOL_SERVER_PYTHON", sys.executable)
    monkeypatch.setattr(run, "_rewardpool", lambda machine, *words, **_: said if words[0] == "verify" else "")
    return command.result_of(CHECK, count=count, folder=folder)


FIGURES = {"texts": 31, "unscored": 0, "max_abs_diff": 0.01, "mean_abs_diff": 0.001, "rank_flips": 0}


@pytest.mark.parametrize(
    ("count", "said", "outcome", "why"),
    [
        (1, {**FIGURES, "holds": True}, "held", ""),
        (1, {**FIGURES, "holds": False}, "failed", "the scores are not those of transformers"),
        (0, {}, "not run", "needs 1 GPUs, and there are 0"),
    ],
)
def test_a_check_is_what_verify_says(monkeypatch, tmp_path, count, said, outcome, why):
    found = result(monkeypatch, tmp_path, count=count, said=json.dumps(said))
    assert (found.outcome, (found.why or "")[: len(why)]) == (outcome, why)
    assert bool(found.figures) == (outcome == "held")


def test_a_command_that_fails_or_hangs_fails_the_check_with_its_words(tmp_path):
    machine = run.Machine(folder=tmp_path, golden=tmp_path)
    with pytest.raises(run.CheckError, match="ended with 3: no GPU is free"):
        run._run([sys.executable, "-c", "import sys; print('no GPU is free'); sys.exit(3)"], machine, 30)
    with pytest.raises(run.CheckError, match="took longer than 0 s"):
        run._run([sys.executable, "-c", "import time; time.sleep(30)"], machine, 0.2)
