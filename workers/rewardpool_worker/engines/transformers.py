"""transformers: RewardPool's own small server for reward models that only their own code can score.

`transformers_server.py` and what it needs are mounted, as the score middleware is, so that any image with torch,
transformers, uvicorn and prometheus_client serves. The stock one is vLLM's: it has these four and the clients of hub
and S3, it is on the nodes of whoever serves with vLLM already, and its transformers is the release that the tests run.
"""

from rewardpool_api import RewardPoolSpec
from rewardpool_worker.engines.launch import (
    Launch,
    LaunchTarget,
    environment,
    invariance,
    model_path,
    python_path,
    revision_flags,
    trust_flags,
)


def launch(spec: RewardPoolSpec, target: LaunchTarget) -> Launch:
    """Build the command line of one worker; a pure function.

    Raises:
        ValueError: see `model_path`.
    """
    engine = spec.engine
    argv = [*target.python, target.program, "transformers_server"]
    argv += ["--model", model_path(spec, target), *revision_flags(spec, target), *trust_flags(spec)]
    argv += ["--served-model-name", target.served_name]
    argv += ["--host", target.host, "--port", str(target.port)]
    argv += ["--dtype", engine.dtype, "--drain-seconds", str(spec.worker.drain_seconds)]
    if engine.max_model_len is not None:
        argv += ["--max-model-len", str(engine.max_model_len)]
    argv += invariance(spec).args
    return Launch(argv=(*argv, *engine.args), env=environment(spec, target, PYTHONPATH=python_path(spec, target)))
