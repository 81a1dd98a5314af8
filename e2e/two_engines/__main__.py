"""The story on a cluster of its own: `make e2e-engines`."""

import json
import sys
from typing import Any

from autoscaling.manifests import MODEL, NAMESPACE, chart_values, namespace
from cluster.choose import open_cluster
from cluster.folders import STATE
from cluster.progress import Say, timed_lines
from exit_status import exit_status
from installation import Installation, evidence, refuse_used_cluster
from machine import ENGINE_CONTAINER_FILE, ENGINE_IMAGE, environment, make_models, mounts
from scene import Scene
from two_engines import story

GPUS = 3
"""Faked ones: two replicas, and one that comes before another goes."""
REPORT = "engines.json"
FAILURE = "engines-failure.txt"


def run(say: Say) -> dict[str, Any]:
    """Bring up a cluster with the operator and tell the story on it."""
    make_models(say)
    folder = STATE / "two-engines"
    folder.mkdir(parents=True, exist_ok=True)
    folders = list(dict.fromkeys([*mounts(), *environment("sglang").folders]))
    with open_cluster(mounts=folders, nodes=1, say=say) as cluster:
        refuse_used_cluster(cluster)
        installation = Installation(cluster, folder=STATE, say=say)
        scene = Scene(cluster, namespace=NAMESPACE, name=MODEL, say=say)
        try:
            installation.load_image()
            installation.load_image(ENGINE_IMAGE, container_file=ENGINE_CONTAINER_FILE)
            cluster.fake_gpus(GPUS)
            # The namespace first: the chart makes a Role in it.
            scene.apply(*namespace())
            installation.install(chart_values())
            installation.wait()
            return story.play(scene, folder=folder)
        except Exception:
            (STATE / FAILURE).write_text(evidence(cluster, namespace=NAMESPACE))
            raise
        finally:
            say("cleaning up")
            scene.attempt("delete", "rewardpools", "--all", "--timeout=60s")
            scene.attempt("delete", "namespace", NAMESPACE, "--ignore-not-found", "--wait=false")
            installation.remove()


def tell() -> int:
    """Tell the story; the exit status is 0 only when all came true and no sample failed or was wrong."""
    report = run(say=timed_lines())
    (STATE / REPORT).write_text(json.dumps(report, indent=2) + "\n")
    print(json.dumps(report, indent=2))
    print(f"numbers: {STATE / REPORT}")
    return 1 if report["failed"] or report["wrong"] else 0


if __name__ == "__main__":
    sys.exit(exit_status(tell, evidence=STATE / FAILURE))
