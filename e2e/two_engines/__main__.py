"""The story on a cluster of its own: `make e2e-engines`."""

import sys
from pathlib import Path
from typing import Any

from autoscaling.manifests import MODEL, NAMESPACE, chart_values, namespace
from cluster.folders import STATE
from cluster.progress import Say
from machine import environment, make_models, mounts
from scene import Scene
from story_cluster import Stage, report_story, story_cluster
from two_engines import story

GPUS = 3
"""Faked ones: two replicas, and one that comes before another goes."""


def run(say: Say, failure: Path) -> dict[str, Any]:
    """Bring up a cluster with the operator, play the story on it, and return its report."""
    make_models(say)
    folder = STATE / "two-engines"
    folder.mkdir(parents=True, exist_ok=True)
    stage = Stage(
        namespace=NAMESPACE,
        manifests=namespace(),
        chart_values=chart_values(),
        gpus=GPUS,
        mounts=[*mounts(), *environment("sglang").folders],
    )
    with story_cluster(stage, failure=failure, say=say) as cluster:
        return story.play(Scene(cluster, namespace=NAMESPACE, name=MODEL, say=say), folder=folder)


def holds(report: dict[str, Any]) -> bool:
    """Return whether no sample failed or was wrong."""
    return not (report["failed"] or report["wrong"])


if __name__ == "__main__":
    sys.exit(report_story("engines", run, holds=holds))
