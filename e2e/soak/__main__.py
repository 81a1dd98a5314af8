"""The soak alone, on a cluster of its own: `make soak`, or `python -m soak [--minutes 10] [--seed NUMBER]`."""

import argparse
import json
import secrets
import sys
from typing import Any

from cluster.choose import open_cluster
from cluster.contract import NotPossibleError
from cluster.folders import STATE
from cluster.progress import Say, timed_lines
from exit_status import exit_status
from installation import Installation, refuse_used_cluster
from machine import ENGINE_CONTAINER_FILE, ENGINE_IMAGE, make_models, mounts
from soak.plan import LARGEST_SEED
from soak.play import FAILURE, PICTURE, REPORT, play
from soak.report import shortcomings

NODES = 2


def run(*, minutes: float, seed: int, say: Say) -> dict[str, Any]:
    """Bring up a cluster and soak it."""
    make_models(say)
    STATE.mkdir(parents=True, exist_ok=True)
    with open_cluster(mounts=mounts(), nodes=NODES, say=say) as cluster:
        refuse_used_cluster(cluster)
        installation = Installation(cluster, folder=STATE, say=say)
        try:
            installation.load_image()
            installation.load_image(ENGINE_IMAGE, container_file=ENGINE_CONTAINER_FILE)
            return play(cluster, installation, minutes=minutes, seed=seed, say=say)
        finally:
            say("cleaning up")
            installation.remove()


def run_soak(*, minutes: float, seed: int) -> int:
    """Soak, and show what became of it."""
    try:
        made = run(minutes=minutes, seed=seed, say=timed_lines())
    except NotPossibleError as error:
        print(f"error: {error}; unset KUBECONFIG to have a cluster built here", file=sys.stderr)
        return 1
    print(json.dumps(made, indent=2))
    print(f"figures: {REPORT}, picture: {PICTURE}; the same plan again: SOAK_SEED={seed}")
    for shortcoming in (short := shortcomings(made)):
        print(f"error: {shortcoming}", file=sys.stderr)
    return 1 if short else 0


def main() -> int:
    """Entry point; the exit status is 0 only when no sample was lost, wrong, duplicated or invented."""
    parser = argparse.ArgumentParser(prog="python -m soak", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0, help="how long things break (default 10)")
    parser.add_argument("--seed", type=int, help="of the plan (default: a random one)")
    given = parser.parse_args()
    seed = secrets.randbelow(LARGEST_SEED) if given.seed is None else given.seed
    print(f"seed {seed}", file=sys.stderr, flush=True)
    return exit_status(lambda: run_soak(minutes=given.minutes, seed=seed), evidence=FAILURE)


if __name__ == "__main__":
    sys.exit(main())
