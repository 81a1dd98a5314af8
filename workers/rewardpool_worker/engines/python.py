"""Python functions: RewardPool's own server around a user's `compute_score`."""

from rewardpool_api import RewardPoolSpec
from rewardpool_worker.engines.launch import Launch, LaunchTarget, environment, model_path


def launch(spec: RewardPoolSpec, target: LaunchTarget) -> Launch:
    """Build the command line of one function worker; a pure function.

    The user's module is found on `spec.engine.env`'s PYTHONPATH; concurrency, processes and timeouts are flags of
    `function_server` for `spec.engine.args`.
    """
    argv = [*target.python, "-m", "rewardpool_worker.function_server"]
    argv += ["--function", model_path(spec, target), "--served-name", target.served_name]
    argv += ["--host", target.host, "--port", str(target.port)]
    argv += ["--drain-seconds", str(spec.worker.drain_seconds)]
    return Launch(argv=(*argv, *spec.engine.args), env=environment(spec, target))
