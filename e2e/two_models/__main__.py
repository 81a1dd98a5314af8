"""The story on a cluster of its own: `make e2e-models`."""

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
from two_models import story
from two_models.manifests import NAMESPACE, POOL, RATER, chart_values, namespace

GPUS = 4
"""Faked ones: two replicas, and one or two of another revision."""
REPORT = "models.json"
FAILURE = "models-failure.txt"


def run(say: Say) -> dict[str, Any]:
    """Bring up a cluster with the operator and tell the story on it."""
    folder = STATE / "two-models"
    models, out = folder / "models", folder / "ratings"
    for one in (models, out):
        one.mkdir(parents=True, exist_ok=True)
    say("making two models")
    run_in_trainer(Path(__file__).parent / "checkpoints.py", models)
    mounts = [REPOSITORY, *environment("server").folders, *environment("trainer").folders]
    with open_cluster(mounts=list(dict.fromkeys(mounts)), nodes=1, say=say) as cluster:
        refuse_used_cluster(cluster)
        installation = Installation(cluster, folder=STATE, say=say)
        scene = Scene(cluster, namespace=NAMESPACE, name=POOL, say=say)
        try:
            installation.load_image()
            installation.load_image(ENGINE_IMAGE, container_file=ENGINE_CONTAINER_FILE)
            cluster.fake_gpus(GPUS)
            # The namespace first: the chart makes a Role in it.
            scene.apply(*namespace())
            installation.install(chart_values())
            installation.wait()
            return story.play(scene, models=models, out=out)
        except Exception:
            rater = {"rater": ["logs", RATER, f"--namespace={NAMESPACE}"]}
            (STATE / FAILURE).write_text(evidence(cluster, namespace=NAMESPACE, further=rater))
            raise
        finally:
            say("cleaning up")
            scene.attempt("delete", "pod", RATER, "--ignore-not-found", "--wait=false")
            scene.attempt("delete", "rewardpools", "--all", "--timeout=60s")
            scene.attempt("delete", "namespace", NAMESPACE, "--ignore-not-found", "--wait=false")
            installation.remove()


def tell() -> int:
    """Tell the story; return 0 only when every score was its model's and no group was split or left unscored."""
    report = run(say=timed_lines())
    (STATE / REPORT).write_text(json.dumps(report, indent=2) + "\n")
    print(json.dumps(report, indent=2))
    print(f"numbers: {STATE / REPORT}")
    both = all(report["of_model"].values())
    return 0 if both and not (report["split"] or report["wrong"] or report["unscored"]) else 1


if __name__ == "__main__":
    sys.exit(exit_status(tell, evidence=STATE / FAILURE))
