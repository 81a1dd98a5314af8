"""Python functions: RewardPool's own server around a user's `compute_score`."""

from rewardpool_api import RewardPoolSpec
from rewardpool_api.sandbox import SandboxSpec
from rewardpool_runtime.functions.limits import ALL
from rewardpool_worker.engines.launch import Launch, LaunchTarget, environment, model_path


def launch(spec: RewardPoolSpec, target: LaunchTarget) -> Launch:
    """Build the command line of one function worker; a pure function."""
    argv = [*target.python, "-m", "rewardpool_worker.function_server"]
    argv += ["--function", model_path(spec, target), "--served-name", target.served_name]
    argv += ["--host", target.host, "--port", str(target.port)]
    argv += ["--drain-seconds", str(spec.worker.drain_seconds)]
    # On one machine a worker has the variables of the user's shell; the function gets those of the manifest.
    for name in (ALL,) if target.is_pod else spec.engine.variables:
        argv += ["--env", name]
    if spec.sandbox is not None:
        argv += _flags(spec.sandbox)
    return Launch(argv=(*argv, *spec.engine.args), env=environment(spec, target))


def _flags(sandbox: SandboxSpec) -> list[str]:
    values = {
        "--cpu-seconds": f"{sandbox.cpu_seconds:g}",
        "--idle-seconds": f"{sandbox.idle_seconds:g}",
        "--memory-mib": sandbox.memory_mib,
        "--concurrency": sandbox.concurrency,
        "--calls-per-process": sandbox.calls_per_process,
        "--network": sandbox.network,
        "--on-missing": sandbox.on_missing,
    }
    return [word for name, value in values.items() if value is not None for word in (name, str(value))]
