"""SGLang: its HTTP server, started by `sglang_launcher` with the score middleware in front.

Measured with SGLang 0.5.23. A reward model started with `--is-embedding` answers `/v1/embeddings` with its raw logits,
so the middleware passes the one number of a sample on, or weighs several; what SGLang itself gets wrong about a model,
the launcher sees to.
"""

from rewardpool_api import RewardPoolSpec, names
from rewardpool_api.engines import FOR_MODELS
from rewardpool_worker.engines.launch import (
    Launch,
    LaunchTarget,
    can_sleep,
    environment,
    invariance,
    model_path,
    python_path,
    revision_flags,
    trust_flags,
)


def launch(spec: RewardPoolSpec, target: LaunchTarget) -> Launch:
    """Build the command line of one SGLang worker; a pure function.

    Raises:
        ValueError: see `model_path`.
    """
    engine = spec.engine
    argv = [*target.python, target.program, "sglang_launcher"]
    argv += ["--model-path", model_path(spec, target), *revision_flags(spec, target)]
    argv += ["--served-model-name", target.served_name]
    argv += ["--host", target.host, "--port", str(target.port)]
    argv += ["--dtype", engine.dtype, "--tp-size", str(engine.tensor_parallel_size)]
    if spec.model.type == "Discriminative":
        argv += ["--is-embedding"]
    elif spec.model.type == "Teacher":
        # Behind a prefix of the cache the numbers are others: in bfloat16 by up to 0.18.
        argv += FOR_MODELS["sglang"].no_prefix_cache.args
    argv += [*invariance(spec).args, *trust_flags(spec)]
    if engine.max_model_len is not None:
        argv += ["--context-length", str(engine.max_model_len)]
    # SGLang warms up by asking itself without a key, is refused, and gives up. The readiness probe warms it up instead.
    argv += ["--skip-server-warmup", "--enable-metrics"]
    # One line per sample is more log than anybody reads.
    argv += ["--log-level-http", "warning"]
    if can_sleep(spec, target):
        # Without the backup a woken reward model has random weights: it was made for trainers that send new ones.
        argv += ["--enable-memory-saver", "--enable-weights-cpu-backup"]
    variables = {
        "PYTHONPATH": python_path(spec, target),
        # Its /health generates a token, which takes a second and more under load: routers would drop a busy worker.
        "SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION": "0",
        # It waits a minute for a GPU's memory dump before a broken worker ends, and answers nothing meanwhile.
        "SGLANG_CUDA_COREDUMP_BEFORE_CRASH_WAIT_SECS": "0",
    }
    if can_sleep(spec, target):
        # Its being there has the middleware answer the routes for it.
        variables[names.ENV_SLEEP_MAX_ABS_DIFF] = str(engine.sleep.max_abs_diff)
    return Launch(argv=(*argv, *engine.args), env=environment(spec, target, **variables))
