"""The story on a cluster of its own: `make e2e-models`."""

import sys
from pathlib import Path
from typing import Any

from cluster.folders import REPOSITORY, STATE
from cluster.progress import Say
from machine import environment, run_in_trainer
from scene import Scene
from story_cluster import Stage, report_story, story_cluster
from two_models import story
from two_models.manifests import NAMESPACE, POOL, RATER, chart_values, namespace

GPUS = 4
"""Faked ones: two replicas, and one or two of another revision."""


def run(say: Say, failure: Path) -> dict[str, Any]:
    """Bring up a cluster with the operator, play the story on it, and return its report."""
    folder = STATE / "two-models"
    models, out = folder / "models", folder / "ratings"
    for one in (models, out):
        one.mkdir(parents=True, exist_ok=True)
    say("making two models")
    run_in_trainer(Path(__file__).parent / "checkpoints.py", models)
    stage = Stage(
        namespace=NAMESPACE,
        manifests=namespace(),
        chart_values=chart_values(),
        gpus=GPUS,
        mounts=[REPOSITORY, *environment("server").folders, *environment("trainer").folders],
        pod=RATER,
    )
    with story_cluster(stage, failure=failure, say=say) as cluster:
        return story.play(Scene(cluster, namespace=NAMESPACE, name=POOL, say=say), models=models, out=out)


def holds(report: dict[str, Any]) -> bool:
    """Return whether every score was its model's, and no group was split or left unscored."""
    return all(report["of_model"].values()) and not (report["split"] or report["wrong"] or report["unscored"])


if __name__ == "__main__":
    sys.exit(report_story("models", run, holds=holds))
