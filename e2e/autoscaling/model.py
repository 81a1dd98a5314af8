"""vLLM from zero and back: somebody asks, many ask, nobody asks."""

import json
import time
from pathlib import Path
from typing import Any

from autoscaling import manifests
from autoscaling.callers import ASKED, DEADLINE_SECONDS, TEXTS
from autoscaling.course import Course
from autoscaling.manifests import IDLE_SECONDS, LARGEST, LEAVING_SECONDS
from autoscaling.pods import Asking
from faults.tally import Tally
from machine import MODELS, run_in_trainer
from scene import POLL_SECONDS, Scene, StoryError, condition

AT_ZERO_SECONDS = 60.0
POD_SECONDS = 60.0
"""For a pod to begin and to end, beside what it does."""
WANTED_SECONDS = 15.0
READY_SECONDS = 600.0
"""Two vLLMs start at once, beside the one that is asked all the time."""
LOADED_SECONDS = 5.0
"""For which three replicas are asked before the load ends."""


def play(scene: Scene, *, folder: Path) -> dict[str, Any]:
    """The whole story; returns its figures and what became of all samples."""
    course = Course(scene)
    texts = score_texts(folder)
    at_zero(scene, course)
    first = first_request(scene, course, folder=folder / "first", texts=texts)
    load, tally = under_load(scene, course, folder=folder / "load", texts=texts)
    idle = nobody_asks(course)
    return {**first, **load, **idle, "samples": tally.samples + 1, "failed": tally.failed, "wrong": tally.wrong}


def score_texts(folder: Path) -> str:
    """The texts with the scores that they must get, as JSON."""
    path = folder / TEXTS
    run_in_trainer(Path(__file__).parent / "reference.py", MODELS / "reward-model", path, deadline_seconds=120)
    return path.read_text()


def at_zero(scene: Scene, course: Course) -> None:
    """A new pool that may be at zero begins there, with its router."""
    scene.apply(manifests.model_pool())
    scene.until(
        lambda: condition(scene.pool(), "RouterReady").get("status") == "True",
        what="the router of the pool at zero serves",
        deadline_seconds=AT_ZERO_SECONDS,
    )
    if not course.observe().is_zero:
        raise StoryError(f"the pool did not begin at zero: {course.sizes[-1]}")


def first_request(scene: Scene, course: Course, *, folder: Path, texts: str) -> dict[str, Any]:
    """One sample starts a replica, waits for it, and gets its score."""
    pod = manifests.callers("first", folder, at_once=1, samples=1)
    asking = Asking.start(scene, pod, folder=folder, texts=texts)
    course.until(
        lambda size: asking.phase() == "Succeeded",
        what="the first sample is answered",
        deadline_seconds=POD_SECONDS + DEADLINE_SECONDS,
    )
    tally = asking.tally(1)
    if tally.problems:
        raise StoryError(f"the first sample: {tally.problems[0]}")
    most = max(size.wanted for size in course.sizes)
    if most != 1:
        raise StoryError(f"one sample made the pool want {most} replicas")
    return {"first_score_seconds": round(tally.slowest_seconds, 1)}


def under_load(scene: Scene, course: Course, *, folder: Path, texts: str) -> tuple[dict[str, Any], Tally]:
    """Load for three replicas makes it three, and no more."""
    pod = manifests.callers("load", folder, at_once=manifests.CALLERS)
    asking = Asking.start(scene, pod, folder=folder, texts=texts)
    scene.until((folder / "samples.jsonl").exists, what="the load has begun", deadline_seconds=POD_SECONDS)
    began = time.monotonic()
    course.until(
        lambda size: size.wanted == LARGEST, what=f"{LARGEST} replicas are wanted", deadline_seconds=WANTED_SECONDS
    )
    wanted_seconds = time.monotonic() - began
    course.until(lambda size: size.ready == LARGEST, what=f"{LARGEST} replicas score", deadline_seconds=READY_SECONDS)
    ready_seconds = time.monotonic() - began
    time.sleep(LOADED_SECONDS)
    samples = end(scene, asking)
    return {
        "three_wanted_seconds": round(wanted_seconds, 1),
        "three_ready_seconds": round(ready_seconds, 1),
    }, asking.tally(samples)


def end(scene: Scene, asking: Asking) -> int:
    """Let the callers end with the answers to what they asked; return how many samples that were."""
    scene.kubectl("delete", "pod", asking.name, "--wait=false")
    asked = asking.folder / ASKED
    scene.until(asked.exists, what="the callers have their answers", deadline_seconds=POD_SECONDS)
    time.sleep(POLL_SECONDS)
    return int(json.loads(asked.read_text())["asked"])


def nobody_asks(course: Course) -> dict[str, Any]:
    """Without requests the fleet is gone after cooldownSeconds, and not before."""
    seconds = course.until(
        lambda size: size.wanted == 0, what="no replica is wanted", deadline_seconds=IDLE_SECONDS + 10
    )
    leaving = course.until(lambda size: size.is_zero, what="no replica is left", deadline_seconds=LEAVING_SECONDS)
    return {"idle_to_none_wanted_seconds": round(seconds, 1), "idle_to_none_left_seconds": round(seconds + leaving, 1)}
