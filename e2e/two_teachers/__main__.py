"""The story on a cluster of its own: `make e2e-teachers`."""

import sys
from pathlib import Path
from typing import Any

from cluster.folders import REPOSITORY, STATE
from cluster.progress import Say
from machine import environment, run_in_trainer
from scene import Scene
from story_cluster import Stage, report_story, story_cluster
from two_teachers import story
from two_teachers.job import JOB
from two_teachers.manifests import NAMESPACE, POOLS, TEACHERS, chart_values, namespace


def run(say: Say, failure: Path) -> dict[str, Any]:
    """Bring up a cluster with the operator, play the story on it, and return its report."""
    folder = STATE / "two-teachers"
    models, out = folder / "models", folder / "answers"
    for one in (models, out):
        one.mkdir(parents=True, exist_ok=True)
    say("making two teachers")
    run_in_trainer(Path(__file__).parent / "checkpoints.py", models)
    stage = Stage(
        namespace=NAMESPACE,
        manifests=namespace(),
        chart_values=chart_values(),
        gpus=len(TEACHERS),
        mounts=[REPOSITORY, *environment("server").folders],
        pod=JOB,
    )
    with story_cluster(stage, failure=failure, say=say) as cluster:
        scenes = [Scene(cluster, namespace=NAMESPACE, name=name, say=say) for name in POOLS]
        return story.play(scenes, models=models, folder=out)


def holds(report: dict[str, Any]) -> bool:
    """Return whether nothing was lost and every answer was its model's."""
    return not (report["lost"] or report["wrong"] or report["problems"])


if __name__ == "__main__":
    sys.exit(report_story("teachers", run, holds=holds))
