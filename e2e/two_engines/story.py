"""From vLLM to SGLang under load, and what may then happen to SGLang: a function for each step, in their order."""

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from autoscaling.manifests import callers
from autoscaling.model import end, score_texts
from autoscaling.pods import Asking
from faults.stage import settle
from scene import Scene, StoryError
from two_engines import manifests

START_SECONDS = 900.0
"""Two engines start at once on two cores that are asked all the while; alone one takes a minute."""
ROLLOUT_SECONDS = 1800.0
LEAVING_SECONDS = 180.0
AT_ONCE = 8
FLOOD = 2000
"""Samples with a token id that is in no vocabulary; one of them ends an SGLang that is not guarded."""
POD_SECONDS = 120.0


def play(scene: Scene, *, folder: Path) -> dict[str, Any]:
    """The whole story; returns what each step says, and what became of all samples."""
    texts = score_texts(folder)
    scene.apply(manifests.golden(texts), manifests.pool())
    settle(scene, what="two vLLM pods serve", deadline_seconds=START_SECONDS)
    load = ask(scene, "load", folder=folder / "load", texts=texts)
    steps: Mapping[str, Callable[[], dict[str, Any]]] = {
        "rollout": lambda: roll(scene),
        "flood": lambda: flood(scene, folder=folder / "flood"),
        "kill": lambda: kill(scene),
        "scale_down": lambda: scale_down(scene),
    }
    report: dict[str, Any] = {}
    for name, step in steps.items():
        scene.say(f"two engines: {name}")
        began = time.monotonic()
        report[name] = {**step(), "seconds": round(time.monotonic() - began, 1)}
        scene.say(f"  {report[name]}")
    tally = load.tally(end(scene, load))
    return {
        **report,
        **{count: getattr(tally, count) for count in ("samples", "failed", "wrong", "retried")},
        "slowest_seconds": round(tally.slowest_seconds, 1),
        "problems": tally.problems,
    }


def ask(scene: Scene, name: str, *, folder: Path, texts: str, samples: int | None = None) -> Asking:
    """A pod that asks so many samples, or until it is deleted; returns when the first is answered."""
    pod = callers(name, folder, at_once=AT_ONCE, samples=samples)
    asking = Asking.start(scene, pod, folder=folder, texts=texts)
    answers = folder / "samples.jsonl"
    scene.until(
        lambda: answers.exists() and answers.stat().st_size > 0,
        what=f"the samples of {name} are answered",
        deadline_seconds=POD_SECONDS,
    )
    return asking


def roll(scene: Scene) -> dict[str, Any]:
    """The rollout to SGLang passes the comparison with vLLM's scores."""
    scene.change(manifests.on_sglang())
    settle(scene, what="two SGLang pods serve", deadline_seconds=ROLLOUT_SECONDS)
    parity = (scene.pool()["status"].get("rollout") or {}).get("parity") or {}
    if parity.get("outcome") != "Passed":
        raise StoryError(f"the rollout was not compared, or not passed: {parity}")
    return {"parity": parity}


def flood(scene: Scene, *, folder: Path) -> dict[str, Any]:
    """Token ids beyond the vocabulary are refused, each of them, and no worker ends by them."""
    before = lives(scene)
    bad = [{"token_ids": [1] * length + [4_000_000], "score": None} for length in range(24)]
    flooding = ask(scene, "flood", folder=folder, texts=json.dumps(bad), samples=FLOOD)
    scene.until(lambda: flooding.phase() == "Succeeded", what="the flood is answered", deadline_seconds=LEAVING_SECONDS)
    tally = flooding.tally(FLOOD)
    if tally.problems:
        raise StoryError(f"{tally.failed} of the flood were not refused as invalid, {tally.wrong} got a score: {tally}")
    settle(scene, what="the pool is whole", deadline_seconds=LEAVING_SECONDS)
    if lives(scene) != before:
        raise StoryError(f"workers were lost in the flood: {before} became {lives(scene)}")
    return {"refused": tally.samples, "workers_lost": 0}


def lives(scene: Scene) -> dict[str, int]:
    """How often each worker's process was started anew, by the pod's uid."""
    return {
        pod["metadata"]["uid"]: sum(status["restartCount"] for status in pod["status"].get("containerStatuses", []))
        for pod in scene.pods("worker")
    }


def kill(scene: Scene) -> dict[str, Any]:
    """`kill -9` of one of two: the other one scores, until the kubelet has started it again."""
    pod = scene.pods("worker")[0]
    uid = pod["metadata"]["uid"]
    scene.kill(pod)
    scene.until(
        lambda: lives(scene).get(uid, 1) > 0, what="the kubelet starts it again", deadline_seconds=LEAVING_SECONDS
    )
    seconds = settle(scene, what="two SGLang pods serve again", deadline_seconds=START_SECONDS)
    return {"whole_again_seconds": round(seconds, 1)}


def scale_down(scene: Scene) -> dict[str, Any]:
    """One of two finishes what it has, and leaves."""
    scene.change({"replicas": 1})
    seconds = settle(scene, what="one SGLang pod serves", deadline_seconds=LEAVING_SECONDS)
    return {"left_seconds": round(seconds, 1)}
