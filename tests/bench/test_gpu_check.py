"""Which checks `make gpu-check` makes on which machine, and what its report says. The checks themselves need a GPU."""

import pytest
from gpu_check.plan import CLASSES, Check, on_gpu, plan, why_not
from gpu_check.report import Result, as_json, as_markdown, held

from rewardpool_api import RewardPool

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
