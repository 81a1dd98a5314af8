"""The stories alone, on a cluster of their own: `make e2e-autoscaling`, or `python -m autoscaling [--only NAME]`."""

import argparse
import json
import signal
import subprocess
import sys
from typing import Any

from autoscaling.manifests import LARGEST
from autoscaling.play import FAILURE, REPORT, STORIES, play_all
from cluster import binaries
from cluster.choose import open_cluster
from cluster.folders import STATE
from cluster.processes import ClusterError
from cluster.progress import Say, timed_lines
from installation import Installation, refuse_used_cluster
from machine import ENGINE_CONTAINER_FILE, ENGINE_IMAGE, make_models, mounts
from scene import StoryError


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


def main() -> int:
    """Entry point; the exit status is 0 only when all came true and no sample was lost."""
    parser = argparse.ArgumentParser(prog="python -m autoscaling", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", choices=sorted(STORIES), help="tell this one alone")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that `finally` runs, as it does at Ctrl-C
    try:
        report = run(only=given.only, say=timed_lines())
    except (StoryError, ClusterError, binaries.BuildError, TimeoutError, subprocess.SubprocessError) as error:
        print(f"error: {error}; see {STATE / FAILURE}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; everything is cleaned up", file=sys.stderr)
        return 130
    print(json.dumps(report, indent=2))
    print(f"numbers: {STATE / REPORT}")
    return 1 if report["failed"] or report["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
