"""vLLM: the OpenAI-compatible server with the score middleware in front.

Measured with vLLM 0.32. A reward model is started with `--runner pooling`; its raw logit comes from `/classify`, which
the middleware maps the contract to. `vllm_launcher` stands in front: it looks tokens up, and looks at the adapters'
files and at HOME.
A worker extension has the checkpoint loaded whole, see `whole_checkpoint`.
"""

from rewardpool_api import RewardPoolSpec, names
from rewardpool_api.engines import FOR_MODELS, TEACHER_STEP_TOKENS
from rewardpool_worker.engines.launch import (
    Launch,
    LaunchTarget,
    can_sleep,
    environment,
    model_path,
    python_path,
    revision_flags,
    trust_flags,
)

# What `vllm serve` runs. The program `vllm` itself, and `vllm.entrypoints.cli.main`, end at once where the wheel has
# another name than `vllm`, as the one for CPUs has: they look up the version of a package of that name.
SERVER_MODULE = "vllm.entrypoints.launchers.api_server.entry"
MIDDLEWARE = "rewardpool_worker.engine_side.middleware.score.ScoreMiddleware"
WHOLE_CHECKPOINT = "rewardpool_worker.engine_side.whole_checkpoint.WholeCheckpoint"


def launch(spec: RewardPoolSpec, target: LaunchTarget) -> Launch:
    """Build the command line of one vLLM worker; a pure function.

    Raises:
        ValueError: see `model_path`.
    """
    engine = spec.engine
    argv = [*target.python, target.program, "vllm_launcher", "-m", SERVER_MODULE]
    argv += ["--model", model_path(spec, target), *revision_flags(spec, target)]
    argv += ["--served-model-name", target.served_name]
    argv += ["--host", target.host, "--port", str(target.port)]
    argv += ["--dtype", engine.dtype, "--tensor-parallel-size", str(engine.tensor_parallel_size)]
    if spec.model.type == "Discriminative":
        argv += ["--runner", "pooling", "--worker-extension-cls", WHOLE_CHECKPOINT]
    elif spec.model.type == "Teacher":
        argv += _teacher_flags(spec)
    argv += trust_flags(spec)
    if engine.max_model_len is not None:
        argv += ["--max-model-len", str(engine.max_model_len)]
    # Without it SIGTERM kills the engine at once and leaves every request in flight hanging, silently.
    argv += ["--shutdown-timeout", str(spec.worker.drain_seconds)]
    if can_sleep(spec, target):
        argv += ["--enable-sleep-mode"]
    argv += ["--middleware", MIDDLEWARE]
    # One line per sample is more log than anybody reads.
    argv += ["--disable-uvicorn-access-log"]
    variables = {"PYTHONPATH": python_path(spec, target)}
    if can_sleep(spec, target):
        # /sleep and /wake_up are served in this mode alone, beside routes that nobody should reach: the score
        # middleware lets none of them through.
        variables |= {"VLLM_SERVER_DEV_MODE": "1", names.ENV_SLEEP_MAX_ABS_DIFF: str(engine.sleep.max_abs_diff)}
    return Launch(argv=(*argv, *engine.args), env=environment(spec, target, **variables))


def _teacher_flags(spec: RewardPoolSpec) -> list[str]:
    flags = ["--runner", "generate", "--worker-extension-cls", WHOLE_CHECKPOINT]
    flags += ["--max-logprobs", str(spec.model.most_top_k), "--logprobs-mode", "raw_logprobs"]
    # Log-probabilities never read the prefix cache, and are the same only in steps of the same size.
    return [*flags, *FOR_MODELS["vllm"].no_prefix_cache.args, "--max-num-batched-tokens", str(TEACHER_STEP_TOKENS)]
