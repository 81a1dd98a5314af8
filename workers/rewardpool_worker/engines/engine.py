"""The engines there are."""

from collections.abc import Callable
from dataclasses import dataclass

from rewardpool_api import RewardPoolSpec
from rewardpool_worker.engines import python, sglang, transformers, vllm
from rewardpool_worker.engines.launch import Launch, LaunchTarget


@dataclass(frozen=True, kw_only=True)
class Engine:
    """One kind of server."""

    name: str
    launch: Callable[[RewardPoolSpec, LaunchTarget], Launch]
    default_image: str | None
    """Stock image for `spec.engine.image`; None: RewardPool's own image."""
    packages: tuple[str, ...] = ()
    end_seconds: int = 15
    has_s3_client: bool = False
    sockets_variable: str | None = None
    """Variable that names the folder of the sockets by which its processes speak to each other."""


_VLLM_IMAGE = "vllm/vllm-openai:v0.32.0"

_ENGINES = {
    engine.name: engine
    for engine in (
        Engine(
            name="vllm",
            launch=vllm.launch,
            default_image=_VLLM_IMAGE,
            packages=("vllm",),
            has_s3_client=True,
            sockets_variable="VLLM_RPC_BASE_PATH",
        ),
        Engine(
            name="sglang",
            launch=sglang.launch,
            default_image="lmsysorg/sglang:v0.5.23",
            packages=("sglang",),
            sockets_variable="TMPDIR",
            end_seconds=40,  # It ends its processes one after the other: 16 s when idle, about 20 s after a flood.
        ),
        Engine(
            name="transformers",
            launch=transformers.launch,
            default_image=_VLLM_IMAGE,
            packages=("torch", "transformers", "uvicorn", "prometheus_client"),
            has_s3_client=True,
        ),
        Engine(name="python", launch=python.launch, default_image=None),
    )
}


def engine_for(name: str) -> Engine:
    """Look up an engine by `spec.engine.name`.

    Raises:
        ValueError: there is none of that name; the text lists those there are.
    """
    if name not in _ENGINES:
        raise ValueError(f"spec.engine.name must be one of {', '.join(_ENGINES)}, not {name!r}")
    return _ENGINES[name]
