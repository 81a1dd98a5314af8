"""Which checks there are, with the manifest of each, and why one cannot be done here. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

Kind = Literal["scores", "sleep", "throughput", "training"]
Manifest = Mapping[str, Any]

CLASSES: Final = ("qwen2", "qwen3", "llama", "mistral", "gemma2")
"""Of `make golden`, one label each."""
ONE_CLASS: Final = "qwen3"
"""For what does not depend on the class."""
TENSOR_PARALLEL: Final = 2
TENSOR_PARALLEL_FLAGS: Final = {"vllm": "--tensor-parallel-size=2", "sglang": "--tp-size=2"}
REFUSED: Final = {("sglang", "mistral")}
"""SGLang has no such class."""
MEMORY_FLAGS: Final = {"vllm": "--gpu-memory-utilization=0.3", "sglang": "--mem-fraction-static=0.3"}
"""Tiny models need no more, and the trainer's part of a check is beside them."""
SLEEP_DIFFERENCE: Final = 0.01


@dataclass(frozen=True, kw_only=True)
class Check:
    """One thing to be seen."""

    name: str
    kind: Kind
    gpus: int
    manifest: Manifest | None = None
    """Of its pool; None for one that makes its own."""
    model_class: str = ONE_CLASS
    engine: str = ""
    samples: int = 4096
    """Of a throughput."""


def plan(golden: Mapping[str, Manifest], engines: Sequence[str], *, on_cpu: bool = False) -> list[Check]:
    """All checks.

    Args:
        golden: By class, the manifests of `make golden`, which are for a CPU.
        engines: Those whose environments are here.
        on_cpu: With the manifests as they are, and without what needs a GPU.
    """
    if on_cpu:
        scores = Check(name=f"scores, vllm, {ONE_CLASS}, float32", kind="scores", gpus=0, manifest=golden[ONE_CLASS])
        speed = Check(name="throughput, vllm", kind="throughput", gpus=0, manifest=golden[ONE_CLASS], samples=256)
        return [scores, speed]
    checks: list[Check] = []
    for engine in engines:
        for model_class in CLASSES:
            if (engine, model_class) not in REFUSED:
                manifest = on_gpu(golden[model_class], engine)
                checks.append(
                    Check(
                        name=f"scores, {engine}, {model_class}, bfloat16",
                        kind="scores",
                        gpus=1,
                        manifest=manifest,
                        model_class=model_class,
                        engine=engine,
                    )
                )
        one = golden[ONE_CLASS]
        parallel = on_gpu(one, engine, gpus=TENSOR_PARALLEL, flags=[TENSOR_PARALLEL_FLAGS[engine]])
        asleep = on_gpu(one, engine, sleeps=True)
        checks += [
            Check(name=f"tensor parallel, {engine}", kind="scores", gpus=2, manifest=parallel, engine=engine),
            Check(name=f"sleep and wake, {engine}", kind="sleep", gpus=1, manifest=asleep, engine=engine),
            Check(name=f"throughput, {engine}", kind="throughput", gpus=1, manifest=on_gpu(one, engine), engine=engine),
        ]
    return [*checks, Check(name="training by FSDP2 over NCCL", kind="training", gpus=2)]


def on_gpu(
    manifest: Manifest, engine: str, *, gpus: int = 1, flags: Sequence[str] = (), sleeps: bool = False
) -> dict[str, Any]:
    """The manifest for an engine on GPUs, in bfloat16 and without what only a CPU needs."""
    spec = manifest["spec"]
    asleep = {"sleep": {"enabled": True, "maxAbsDiff": SLEEP_DIFFERENCE}} if sleeps else {}
    own = {
        "name": engine,
        "dtype": "bfloat16",
        "maxModelLen": spec["engine"]["maxModelLen"],
        "args": [MEMORY_FLAGS[engine], *flags],
        **asleep,
    }
    rollout = {"rollout": {"strategy": "Replace"}} if sleeps else {}
    return {**manifest, "spec": {"model": spec["model"], "engine": own, "worker": {"gpus": gpus}, **rollout}}


def why_not(check: Check, gpus: int) -> str | None:
    """Why the check cannot be done on a machine of so many GPUs; None where it can."""
    return f"needs {check.gpus} GPUs, and there are {gpus}" if check.gpus > gpus else None
