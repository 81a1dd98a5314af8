"""The story on a cluster of its own: `make e2e-teachers`."""

import json
import sys
from pathlib import Path
from typing import Any

from cluster.choose import open_cluster
from cluster.folders import REPOSITORY, STATE
from cluster.progress import Say, timed_lines
from exit_status import exit_status
from installation import Installation, evidence, refuse_used_cluster
from machine import ENGINE_CONTAINER_FILE, ENGINE_IMAGE, environment, run_in_trainer
from scene import Scene
from two_teachers import story
from two_teachers.job import JOB
from two_teachers.manifests import NAMESPACE, POOLS, TEACHERS, chart_values, namespace

REPORT = "teachers.json"
FAILURE = "teachers-failure.txt"


def run(say: Say) -> dict[str, Any]:
    """Bring up a cluster with the operator and tell the story on it."""
    folder = STATE / "two-teachers"
    models, out = folder / "models", folder / "answers"
    for one in (models, out):
        one.mkdir(parents=True, exist_ok=True)
    say("making two teachers")
    run_in_trainer(Path(__file__).parent / "checkpoints.py", models)
    mounts = list(dict.fromkeys([REPOSITORY, *environment("server").folders]))
    with open_cluster(mounts=mounts, nodes=1, say=say) as cluster:
        refuse_used_cluster(cluster)
        installation = Installation(cluster, folder=STATE, say=say)
        scenes = [Scene(cluster, namespace=NAMESPACE, name=name, say=say) for name in POOLS]
        scene = scenes[0]
        try:
            installation.load_image()
            installation.load_image(ENGINE_IMAGE, container_file=ENGINE_CONTAINER_FILE)
            cluster.fake_gpus(len(TEACHERS))
            # The namespace first: the chart makes a Role in it.
            scene.apply(*namespace())
            installation.install(chart_values())
            installation.wait()
            return story.play(scenes, models=models, folder=out)
        except Exception:
            job = {"job": ["logs", JOB, f"--namespace={NAMESPACE}"]}
            (STATE / FAILURE).write_text(evidence(cluster, namespace=NAMESPACE, further=job))
            raise
        finally:
            say("cleaning up")
            scene.attempt("delete", "pod", JOB, "--ignore-not-found", "--wait=false")
            scene.attempt("delete", "rewardpools", "--all", "--timeout=60s")
            scene.attempt("delete", "namespace", NAMESPACE, "--ignore-not-found", "--wait=false")
            installation.remove()


def tell() -> int:
    """Tell the story; return 0 only when nothing was lost and every answer was its model's."""
    report = run(say=timed_lines())
    (STATE / REPORT).write_text(json.dumps(report, indent=2) + "\n")
    print(json.dumps(report, indent=2))
    print(f"numbers: {STATE / REPORT}")
    return 1 if report["lost"] or report["wrong"] or report["problems"] else 0


if __name__ == "__main__":
    sys.exit(exit_status(tell, evidence=STATE / FAILURE))
