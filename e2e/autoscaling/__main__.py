"""The stories alone, on a cluster of their own: `make e2e-autoscaling`, or `python -m autoscaling [--only NAME]`."""

import argparse
import json
import sys
from typing import Any

from autoscaling.manifests import LARGEST
from autoscaling.play import FAILURE, REPORT, STORIES, play_all
from cluster.choose import open_cluster
from cluster.folders import STATE
from cluster.progress import Say, timed_lines
from exit_status import exit_status
from installation import Installation, refuse_used_cluster
from machine import ENGINE_CONTAINER_FILE, ENGINE_IMAGE, make_models, mounts


def run(*, only: str | None, say: Say) -> dict[str, Any]:
    """Bring up a cluster with the operator and tell the stories on it."""
    make_models(say)
    STATE.mkdir(parents=True, exist_ok=True)
    with open_cluster(mounts=mounts(), nodes=1, say=say) as cluster:
        refuse_used_cluster(cluster)
        installation = Installation(cluster, folder=STATE, say=say)
        try:
            installation.load_image()
            installation.load_image(ENGINE_IMAGE, container_file=ENGINE_CONTAINER_FILE)
            cluster.fake_gpus(LARGEST)
            return play_all(cluster, installation, folder=STATE, say=say, only=only)
        finally:
            say("cleaning up")
            installation.remove()


def play(*, only: str | None) -> int:
    """Tell the stories, and print what was measured."""
    report = run(only=only, say=timed_lines())
    print(json.dumps(report, indent=2))
    print(f"numbers: {STATE / REPORT}")
    return 1 if report["failed"] or report["wrong"] else 0


def main() -> int:
    """Entry point; the exit status is 0 only when all came true and no sample was lost."""
    parser = argparse.ArgumentParser(prog="python -m autoscaling", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", choices=sorted(STORIES), help="tell this one alone")
    given = parser.parse_args()
    return exit_status(lambda: play(only=given.only), evidence=STATE / FAILURE)


if __name__ == "__main__":
    sys.exit(main())
