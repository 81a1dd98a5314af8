"""Command lines: what each engine is started with, as tables."""

import json
from typing import Any

import pytest
from support.env_vars import env_vars

from rewardpool_api import RewardPoolSpec
from rewardpool_runtime.functions.limits import CallLimits
from rewardpool_worker.engine_side.middleware.settings import Settings
from rewardpool_worker.engines import Launch, LaunchTarget, engine_for
from rewardpool_worker.function_server import options_of, parser

MIDDLEWARE = "rewardpool_worker.engine_side.middleware"


def launch(
    model: dict[str, Any] | None = None, *, claim_dir: str | None = None, sleeps: bool = True, **engine: Any
) -> Launch:
    name = engine.setdefault("name", "vllm")
    spec = RewardPoolSpec.model_validate(
        {
            "model": {"source": "hf://org/model", **(model or {})},
            "engine": engine,
            "worker": {"drainSeconds": 45, "gpus": 8},
        }
    )
    target = LaunchTarget(
        served_name="rm",
        host="0.0.0.0",
        port=8000,
        files_dir="/files",
        key_file="/key",
        claim_dir=claim_dir,
        sleeps=sleeps,
    )
    return engine_for(name).launch(spec, target)


def value_of(flag: str, argv: tuple[str, ...]) -> str:
    return argv[argv.index(flag) + 1]


@pytest.mark.parametrize(
    ("engine", "flags"),
    [
        (
            {"name": "vllm", "dtype": "bfloat16", "maxModelLen": 4096, "tensorParallelSize": 2},
            {
                "--model": "org/model",
                "--revision": "main",
                "--served-model-name": "rm",
                "--host": "0.0.0.0",
                "--port": "8000",
                "--dtype": "bfloat16",
                "--tensor-parallel-size": "2",
                "--max-model-len": "4096",
                "--runner": "pooling",
                "--worker-extension-cls": "rewardpool_worker.engine_side.whole_checkpoint.WholeCheckpoint",
                "--shutdown-timeout": "45",
                "--middleware": f"{MIDDLEWARE}.score.ScoreMiddleware",
            },
        ),
        (
            {"name": "sglang", "dtype": "bfloat16", "maxModelLen": 4096, "tensorParallelSize": 2},
            {
                "--model-path": "org/model",
                "--revision": "main",
                "--served-model-name": "rm",
                "--host": "0.0.0.0",
                "--port": "8000",
                "--dtype": "bfloat16",
                "--tp-size": "2",
                "--context-length": "4096",
            },
        ),
        (
            {"name": "transformers", "dtype": "bfloat16", "maxModelLen": 4096},
            {
                "--model": "org/model",
                "--revision": "main",
                "--served-model-name": "rm",
                "--host": "0.0.0.0",
                "--port": "8000",
                "--dtype": "bfloat16",
                "--max-model-len": "4096",
                "--drain-seconds": "45",
            },
        ),
    ],
)
def test_the_spec_becomes_flags(engine: dict[str, Any], flags: dict[str, str]) -> None:
    argv = launch(**engine).argv
    assert {flag: value_of(flag, argv) for flag in flags} == flags


TEACHER = {"type": "Teacher", "topK": 8}


def test_a_teacher_on_vllm_is_bounded_and_keeps_no_prefixes() -> None:
    found = launch(TEACHER)
    flags = {"--runner": "generate", "--max-logprobs": "8", "--logprobs-mode": "raw_logprobs"}
    flags["--max-num-batched-tokens"] = "2048"
    assert {flag: value_of(flag, found.argv) for flag in flags} == flags
    assert "--no-enable-prefix-caching" in found.argv
    assert (found.env["REWARDPOOL_MODEL_TYPE"], found.env["REWARDPOOL_TOP_K"]) == ("Teacher", "8")


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_a_teacher_on_gpus_is_to_leave_memory_for_its_steps(engine: str) -> None:
    assert launch(TEACHER, name=engine).env["REWARDPOOL_STEP_TOKENS"] == "2048"


def test_a_teacher_on_sglang_has_no_prefix_cache_and_generates() -> None:
    found = launch(TEACHER, name="sglang")
    assert "--disable-radix-cache" in found.argv
    assert "--is-embedding" not in found.argv


def test_a_teacher_that_says_no_more_gives_64_most_likely_tokens() -> None:
    assert value_of("--max-logprobs", launch({"type": "Teacher"}).argv) == "64"
    assert "REWARDPOOL_TOP_K" not in launch({"type": "Generative"}).env


def test_sglang_serves_a_reward_model_as_an_embedding_and_skips_the_warm_up_that_has_no_key() -> None:
    assert {"--is-embedding", "--skip-server-warmup"} <= set(launch(name="sglang").argv)


def test_a_busy_sglang_is_healthy_and_a_broken_one_ends_at_once() -> None:
    variables = launch(name="sglang").env
    assert variables["SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION"] == "0"
    assert variables["SGLANG_CUDA_COREDUMP_BEFORE_CRASH_WAIT_SECS"] == "0"


ENGINES = ["vllm", "sglang", "transformers"]


@pytest.mark.parametrize("name", ENGINES)
def test_a_checkpoints_own_code_is_run_only_where_the_manifest_says_so(name: str) -> None:
    assert "--trust-remote-code" not in launch(name=name).argv
    assert "HF_MODULES_CACHE" not in launch(name=name).env
    assert "--trust-remote-code" in launch({"trustRemoteCode": True}, name=name).argv


@pytest.mark.parametrize("name", ENGINES)
def test_code_that_is_run_lies_in_the_pods_own_folder_and_not_in_a_cache_that_pods_share(name: str) -> None:
    assert launch({"trustRemoteCode": True}, name=name).env["HF_MODULES_CACHE"] == "/tmp/rewardpool-modules"
    mine = {"HF_MODULES_CACHE": "/mine"}
    assert launch({"trustRemoteCode": True}, name=name, env=env_vars(mine)).env["HF_MODULES_CACHE"] == "/mine"


@pytest.mark.parametrize(("name", "flag"), [("vllm", "--runner"), ("sglang", "--is-embedding")])
def test_a_judge_generates(name: str, flag: str) -> None:
    started = launch({"type": "Generative"}, name=name)
    assert flag not in started.argv
    assert started.env["REWARDPOOL_MODEL_TYPE"] == "Generative"


def test_a_deterministic_engine_has_its_batch_invariance_and_no_other_has() -> None:
    plain = {name: launch(name=name) for name in ("vllm", "sglang", "transformers")}
    found = {name: launch(name=name, deterministic=True) for name in plain}
    assert {name: [*set(found[name].argv) - set(plain[name].argv)] for name in ("vllm", "sglang")} == {
        "vllm": [],
        "sglang": ["--enable-deterministic-inference"],
    }
    assert value_of("--max-batch-samples", found["transformers"].argv) == "1"
    assert {**plain["vllm"].env, "VLLM_BATCH_INVARIANT": "1"} == found["vllm"].env


def test_a_variable_that_switches_batch_invariance_off_does_not_win() -> None:
    off = [{"name": "VLLM_BATCH_INVARIANT", "value": "0"}]
    assert launch(deterministic=True, env=off).env["VLLM_BATCH_INVARIANT"] == "1"
    assert launch(env=off).env["VLLM_BATCH_INVARIANT"] == "0"


@pytest.mark.parametrize("model_type", ["Discriminative", "Generative", "Teacher"])
def test_vllm_that_sleeps_serves_the_routes_for_it(model_type: str) -> None:
    started = launch({"type": model_type}, name="vllm", sleep={"enabled": True})
    assert "--enable-sleep-mode" in started.argv
    assert started.env["VLLM_SERVER_DEV_MODE"] == "1"
    assert Settings.from_environment(dict(started.env)).sleep_max_abs_diff == 0.01


@pytest.mark.parametrize("name", ["vllm", "sglang"])
def test_where_nobody_wakes_it_an_engine_is_started_as_any_other(name: str) -> None:
    assert launch(name=name, sleep={"enabled": True}, sleeps=False) == launch(name=name)


@pytest.mark.parametrize("model_type", ["Discriminative", "Generative", "Teacher"])
def test_sglang_that_sleeps_keeps_its_weights(model_type: str) -> None:
    started = launch({"type": model_type}, name="sglang", sleep={"enabled": True})
    assert {"--enable-memory-saver", "--enable-weights-cpu-backup"} <= {*started.argv}
    assert Settings.from_environment(dict(started.env)).sleep_max_abs_diff == 0.01


@pytest.mark.parametrize("name", ENGINES)
def test_the_users_arguments_come_last_and_so_win(name: str) -> None:
    assert launch(name=name, args=["--dtype", "float16"]).argv[-2:] == ("--dtype", "float16")


@pytest.mark.parametrize(
    ("source", "path"),
    [("file:///models/rm", "/models/rm"), ("pvc://models/rm/v2/", "/mnt/claim/rm/v2"), ("pvc://models", "/mnt/claim")],
)
def test_files_have_no_revision_and_no_hub(source: str, path: str) -> None:
    started = launch({"source": source}, claim_dir="/mnt/claim")
    assert value_of("--model", started.argv) == path
    assert "--revision" not in started.argv
    assert started.env["HF_HUB_OFFLINE"] == "1"


def test_a_claim_without_kubernetes_names_the_field() -> None:
    with pytest.raises(ValueError, match=r"spec\.model\.source is pvc://"):
        launch({"source": "pvc://models/rm"})


def test_the_key_is_named_as_a_file_and_by_no_flag() -> None:
    started = launch(name="vllm")
    assert started.env["REWARDPOOL_KEY_FILE"] == "/key"
    assert not any("key" in part for part in started.argv)


def test_the_users_python_path_stays_behind_the_mounted_files() -> None:
    assert launch(env=env_vars({"PYTHONPATH": "/mine"})).env["PYTHONPATH"] == "/files/rewardpool_worker.zip:/mine"


def test_the_users_variables_cannot_turn_the_key_off() -> None:
    with pytest.raises(ValueError, match=r"REWARDPOOL_ENGINE.*_KEY_FILE"):
        launch(env=env_vars({"REWARDPOOL_KEY_FILE": ""}))


def test_a_functions_limits_are_options_of_its_server() -> None:
    sandbox = {"cpuSeconds": 5, "memory": "2Gi", "concurrency": 4, "callsPerProcess": 0, "network": "None"}
    spec = RewardPoolSpec.model_validate({"model": {"source": "python://rewards:score"}, "sandbox": sandbox})
    target = LaunchTarget(served_name="rm", host="127.0.0.1", port=8000)
    argv = list(engine_for("python").launch(spec, target).argv)
    options = options_of(parser().parse_args(argv[3:]))
    assert options.limits == CallLimits(
        cpu_seconds=5.0, memory_mib=2048, concurrency=4, calls_per_process=0, of_pool=True
    )
    assert (options.network, options.on_missing) == ("None", "Refuse")


def test_a_function_is_served_by_our_own_server() -> None:
    model = {"source": "python://rewards.length:compute_score", "type": "Function"}
    argv = launch(model, name="python", args=["--env", "HOME"]).argv
    assert argv[:3] == ("python3", "-m", "rewardpool_worker.function_server")
    assert value_of("--function", argv) == "rewards.length:compute_score"
    assert value_of("--drain-seconds", argv) == "45"
    assert argv[-2:] == ("--env", "HOME")


def test_an_unknown_engine_lists_the_known_ones() -> None:
    with pytest.raises(ValueError, match="vllm, sglang, transformers, python"):
        engine_for("tgi")


HEADS = (
    {"type": "Classifier", "weights": [0.5, -1.0], "labels": ["helpful", "é"]},
    {"type": "LMHead", "yesToken": "Yes", "noToken": "No"},
    {"type": "TokenLevel", "stepToken": "<extra_0>", "aggregate": "min"},
    {"type": "TokenLevel", "stepToken": "▁ки", "yesToken": "▁+", "noToken": "▁-", "aggregate": "min"},
)


@pytest.mark.parametrize("head", HEADS, ids=lambda head: head["type"])
def test_vllm_with_a_head_is_started_as_without(head: dict[str, Any]) -> None:
    started = launch({"head": head})
    assert started.argv == launch().argv
    assert json.loads(started.env["REWARDPOOL_HEAD"]) == head
    assert started.env["REWARDPOOL_MODEL_PATH"] == "org/model"


def test_vllm_is_started_by_the_launcher_that_looks_at_its_home() -> None:
    assert launch().argv[:4] == ("python3", "/files/rewardpool_worker.zip", "vllm_launcher", "-m")
    assert "REWARDPOOL_HEAD" not in launch().env


def test_sglang_gets_a_classifiers_weights_in_the_environment() -> None:
    started = launch({"head": HEADS[0]}, name="sglang")
    assert started.argv == launch(name="sglang").argv
    assert json.loads(started.env["REWARDPOOL_HEAD"]) == HEADS[0]


ADAPTERS = [
    {"name": "safe", "source": "hf://org/safe", "revision": "a" * 40},
    {"name": "local", "source": "file:///adapters/local"},
]


def test_adapters_are_told_to_vllm_by_its_launcher() -> None:
    started = launch({"adapters": ADAPTERS})
    assert started.argv[:4] == ("python3", "/files/rewardpool_worker.zip", "vllm_launcher", "-m")
    assert json.loads(started.env["REWARDPOOL_ADAPTERS"]) == [
        {"name": "local", "path": "/adapters/local"},
        {"name": "safe", "path": "org/safe", "revision": "a" * 40},
    ]


def test_the_order_of_adapters_in_the_manifest_makes_no_other_worker() -> None:
    assert launch({"adapters": ADAPTERS}) == launch({"adapters": ADAPTERS[::-1]})


def test_the_hub_is_asked_for_an_adapter_that_is_not_there() -> None:
    local = {"source": "file:///model"}
    assert launch({**local, "adapters": ADAPTERS[1:]}).env["HF_HUB_OFFLINE"] == "1"
    assert "HF_HUB_OFFLINE" not in launch({**local, "adapters": ADAPTERS}).env


def test_an_adapter_on_a_claim_needs_kubernetes() -> None:
    with pytest.raises(ValueError, match="needs Kubernetes"):
        launch({"adapters": [{"name": "a", "source": "pvc://claim/a"}]})
