"""The stories one after the other, and what came of them."""

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from autoscaling import manifests, model, training
from autoscaling.manifests import FUNCTION, MODEL, NAMESPACE
from cluster.contract import Cluster
from cluster.progress import Say
from installation import Installation, evidence
from scene import Scene

Story = Callable[..., dict[str, Any]]

STORIES: Mapping[str, tuple[str, Story]] = {
    "model": (MODEL, model.play),
    "training": (FUNCTION, training.on_functions),
    "training-on-model": (MODEL, training.on_a_model),
}
LONG = ("training-on-model",)
"""Told only when they are asked for by name."""
REPORT = "autoscaling.json"
FAILURE = "autoscaling-failure.txt"
COUNTED = ("samples", "failed", "wrong")


def play_all(
    cluster: Cluster, installation: Installation, *, folder: Path, say: Say, only: str | None = None
) -> dict[str, Any]:
    """Tell them on a cluster that has the images and three GPUs; write `REPORT` and, when one fails, `FAILURE`.

    Raises:
        StoryError: something did not come true before its deadline.
        ClusterError: kubectl or helm failed.
    """
    for earlier in (REPORT, FAILURE):
        (folder / earlier).unlink(missing_ok=True)
    scratch = folder / "autoscaling"
    scratch.mkdir(parents=True, exist_ok=True)
    scenes = {name: Scene(cluster, namespace=NAMESPACE, name=pool, say=say) for name, (pool, _) in STORIES.items()}
    scene = scenes["model"]
    figures: dict[str, dict[str, Any]] = {}
    try:
        # The namespace first: the chart makes a Role in it.
        scene.apply(*manifests.namespace())
        installation.install(manifests.chart_values())
        installation.wait()
        for name in STORIES:
            if only == name or (only is None and name not in LONG):
                figures[name] = _play(name, scenes[name], scratch)
    except Exception:
        (folder / FAILURE).write_text(evidence(cluster, namespace=NAMESPACE))
        raise
    finally:
        scene.attempt("delete", "rewardpools", "--all", "--timeout=60s")
        scene.attempt("delete", "namespace", NAMESPACE, "--ignore-not-found", "--wait=false")
        report = {**figures, **{count: sum(story[count] for story in figures.values()) for count in COUNTED}}
        (folder / REPORT).write_text(json.dumps(report, indent=2) + "\n")
    return report


def totals(report: Mapping[str, Any]) -> dict[str, int]:
    """What became of all samples, of a report."""
    return {count: report[count] for count in COUNTED}


def _play(name: str, scene: Scene, folder: Path) -> dict[str, Any]:
    scene.say(f"autoscaling: {name}")
    began = time.monotonic()
    _, story = STORIES[name]
    figures = story(scene, folder=folder)
    figures["seconds"] = round(time.monotonic() - began, 1)
    figures["history"] = scene.pool()["status"]["scaling"]["history"]
    scene.kubectl("delete", "rewardpool", scene.name, "--timeout=60s", deadline_seconds=70)
    return figures
