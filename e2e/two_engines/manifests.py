"""The pool on vLLM and on SGLang, and the golden set that a rollout between them is compared by."""

import json
from typing import Any, Final

from autoscaling import manifests
from autoscaling.callers import TOLERANCE
from autoscaling.manifests import NAMESPACE, Manifest
from machine import environment
from overlay import host_folders

GOLDEN: Final = "golden"
SGLANG_ARGS: Final = ["--device=cpu", "--mem-fraction-static=0.1", "--max-total-tokens=8192"]


def pool() -> Manifest:
    """Two replicas of the quick start's reward model on vLLM, with what SGLang's pods will mount."""
    made = manifests.model_pool()
    spec = made["spec"]
    del spec["autoscaling"]
    # The same folders for both engines, so that the change of engine changes nothing else.
    volumes, mounts = host_folders([*environment("server").folders, *environment("sglang").folders])
    template = spec["worker"]["podTemplate"]["spec"]
    template["volumes"], template["containers"][0]["volumeMounts"] = volumes, mounts
    parity = {"goldenSetRef": {"name": GOLDEN}, "maxAbsDiff": TOLERANCE}
    return {**made, "spec": {**spec, "replicas": 2, "rollout": {"parity": parity}}}


def on_sglang() -> dict[str, Any]:
    """What of the spec changes with the engine; a merge patch, in which a list is replaced."""
    env = [
        {"name": "HF_HUB_OFFLINE", "value": "1"},
        {"name": "SGLANG_USE_CPU_ENGINE", "value": "1"},
        {"name": "PATH", "value": environment("sglang").search_path},
    ]
    return {"engine": {"name": "sglang", "args": SGLANG_ARGS, "env": env}}


def golden(texts: str) -> Manifest:
    """The ConfigMap with the texts that both revisions score; `texts` as `autoscaling.reference` writes them."""
    lines = [json.dumps({"text": known["text"]}) for known in json.loads(texts)]
    metadata = {"name": GOLDEN, "namespace": NAMESPACE}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"golden.jsonl": "\n".join(lines)}}
