"""Python functions: RewardPool's own server around a user's `compute_score`."""

from rewardpool_api import RewardPoolSpec
from rewardpool_runtime.functions.limits import ALL
from rewardpool_worker.engines.launch import Launch, LaunchTarget, environment, model_path


def launch(spec: RewardPoolSpec, target: LaunchTarget) -> Launch:
    """Build the command line of one function worker; a pure function.

    The user's module is found on `spec.engine.env`'s PYTHONPATH; concurrency and limits are flags of `function_server`
    for `spec.engine.args`. In a pod the function gets all variables that image and manifest give; on one machine, where
    a worker has those of the user's shell, it gets those of the manifest.
    """
    argv = [*target.python, "-m", "rewardpool_worker.function_server"]
    argv += ["--function", model_path(spec, target), "--served-name", target.served_name]
    argv += ["--host", target.host, "--port", str(target.port)]
    argv += ["--drain-seconds", str(spec.worker.drain_seconds)]
    for name in (ALL,) if target.is_pod else spec.engine.variables:
        argv += ["--env", name]
    return Launch(argv=(*argv, *spec.engine.args), env=environment(spec, target))
