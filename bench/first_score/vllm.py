"""vllm_cluster: the quick start's pool on vLLM, whose pods share a folder for caches, and the same engine alone.

RewardPool keeps no engine's caches from one pod to the next: `spec.model.cache` is for models. So the manifest says it,
in `podTemplate` and the engine's environment: what vLLM looks up of a model's class (`VLLM_CACHE_ROOT`, which is also
where compiled graphs go; this pool compiles none, as it has `--enforce-eager`), and Python's byte code. Weights come
from safetensors by mmap. The first round finds the folder empty and is reported apart.
"""

import json
import shutil
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import yaml
from engine.starts import MARKS, phases, watched
from support.replicas import replicas

from cluster.contract import Cluster
from first_score.cluster import NAMESPACE, Manifest, Round, applied, one_round, router, until_at_zero
from first_score.engine_log import phases_of_log
from first_score.figures import entry, medians
from machine import ENGINE_IMAGE, QUICKSTART, environment
from overlay import Environment, host_folders, quick_start_on_this_machine
from rewardpool_api import RewardPool
from scene import Scene

NAME: Final = "judge"
ENGINE: Final = "vllm"
TEXT: Final = "how long does the first score take?"
MOST_ROUNDS: Final = 3
"""Of some minutes each."""
IDLE_SECONDS: Final = 15
"""In which the log of a pod is read before it goes."""
TOLERANCE: Final = 1e-3


def pool(caches: Path, *, server: Environment) -> Manifest:
    """The pool at zero; `caches` is a folder of the node."""
    made = quick_start_on_this_machine(
        yaml.safe_load((QUICKSTART / "pool.yaml").read_text()), server=server, image=ENGINE_IMAGE
    )
    made["metadata"] = {"name": NAME, "namespace": NAMESPACE}
    spec = made["spec"]
    spec["router"] = router()
    del spec["replicas"]
    policy = {"type": "QueueDepth", "queueDepth": {"targetPerReplica": 8}}
    spec["autoscaling"] = {"minReplicas": 0, "maxReplicas": 1, "policy": policy, "cooldownSeconds": IDLE_SECONDS}
    spec["autoscaling"]["scaleDown"] = {"stabilizationWindowSeconds": 0}
    spec["worker"]["drainSeconds"] = 5
    volumes, mounts = host_folders([caches], read_only=False)
    pod = spec["worker"]["podTemplate"]["spec"]
    pod["volumes"] += volumes
    pod["containers"][0]["volumeMounts"] += mounts
    spec["engine"]["env"] += [
        {"name": "VLLM_CACHE_ROOT", "value": str(caches / "vllm")},
        {"name": "PYTHONPYCACHEPREFIX", "value": str(caches / "byte-code")},
    ]
    return made


def measure(cluster: Cluster, *, rounds: int, folder: Path, say: Callable[[str], None]) -> dict[str, Any]:
    """The entry of the pool on vLLM.

    Args:
        cluster: with the engine's image and a GPU, as it says.
        rounds: at most `MOST_ROUNDS` are made, behind one with empty caches.
        folder: for the caches and the logs; both are gone in the end.
        say: hears how it goes.
    """
    work = folder / "first-score-vllm"
    shutil.rmtree(work, ignore_errors=True)
    (caches := work / "caches").mkdir(parents=True)
    made = pool(caches, server=environment("server"))
    scene = Scene(cluster, namespace=NAMESPACE, name=NAME, say=say)
    found: list[tuple[Round, dict[str, float]]] = []
    alone: list[tuple[float, dict[str, float]]] = []
    try:
        with applied(scene, made):
            for number in range(min(rounds, MOST_ROUNDS) + 1):
                until_at_zero(scene)
                if number:
                    alone.append(_alone(made, work / f"alone-{number}", expected=found[0][0].score))
                    say(f"vLLM alone, {number}: {alone[-1][0]:.1f} s, {alone[-1][1]}")
                one, taken = _round(scene, [one.first for one, _ in found])
                found.append((one, taken))
                say(f"vllm_cluster, {number}: {one.seconds:.1f} s, {one.first['parts']}, {taken}")
    finally:
        shutil.rmtree(work, ignore_errors=True)
    (empty, *kept) = found
    made_of = _entry(kept, [seconds for seconds, _ in alone])
    made_of["engine_alone"]["phases"] = medians([taken for _, taken in alone])
    return made_of | {"empty_caches": _entry([empty], [])}


def _entry(found: list[tuple[Round, dict[str, float]]], alone: list[float]) -> dict[str, Any]:
    made = entry([one.seconds for one, _ in found], [one.first for one, _ in found], alone)
    return made | {"phases": medians([taken for _, taken in found])}


def _round(scene: Scene, known: list[Any]) -> tuple[Round, dict[str, float]]:
    one = one_round(scene, json.dumps({"model": NAME, "input": TEXT}).encode(), known=known)
    pod = scene.pods("worker")[-1]
    log = scene.kubectl("logs", pod["metadata"]["name"], "--container=worker", "--timestamps")
    (status,) = pod["status"]["containerStatuses"]
    began = datetime.fromisoformat(status["state"]["running"]["startedAt"])
    return one, phases_of_log(log, MARKS[ENGINE], began=began, answered=one.answered)


def _alone(made: Manifest, folder: Path, *, expected: float) -> tuple[float, dict[str, float]]:
    """Seconds of the engine's own start with the same caches, and its phases.

    Raises:
        RuntimeError: it gives another score than the pool.
    """
    folder.mkdir()
    spec = RewardPool.model_validate(made).spec
    with (
        watched(folder / "worker-0" / "engine.log", MARKS[ENGINE]) as seen,
        replicas(spec, folder, count=1) as engine,
    ):
        taken = phases(seen, MARKS[ENGINE], engine.start_seconds)
        ((score,),) = engine.scores([TEXT])
    if abs(score - expected) > TOLERANCE:
        raise RuntimeError(f"the engine alone gives {score}, and the pool {expected}")
    return engine.start_seconds, taken
