"""The faults alone, on a cluster of their own: `make e2e-faults`, or `python -m faults [--only NAME]… [--list]`."""

import argparse
import sys
from collections.abc import Sequence

from cluster.choose import open_cluster
from cluster.folders import STATE
from cluster.progress import Say, timed_lines
from exit_status import exit_status
from faults.play import FAILURE, FAULTS, RATE, REPORT, Fault, Result, play_all, promise, show
from installation import Installation, refuse_used_cluster

NODES = 2
"""One of them is drained."""


def run(faults: Sequence[Fault], *, rate: float, say: Say) -> list[Result]:
    """Bring up a cluster with the operator and play the faults on it."""
    STATE.mkdir(parents=True, exist_ok=True)
    with open_cluster(mounts=[STATE], nodes=NODES, say=say) as cluster:
        refuse_used_cluster(cluster)
        installation = Installation(cluster, folder=STATE, say=say)
        try:
            installation.load_image()
            return play_all(cluster, installation, folder=STATE, faults=faults, rate=rate, say=say)
        finally:
            say("cleaning up")
            installation.remove()


def tell(chosen: Sequence[Fault], *, rate: float) -> int:
    """Play the faults, and show what became of them."""
    results = run(chosen, rate=rate, say=timed_lines())
    show(results)
    print(f"numbers: {STATE / REPORT}")
    return 0 if all(result.passed for result in results) else 1


def main() -> int:
    """Entry point; the exit status is 0 only when every promise was kept."""
    parser = argparse.ArgumentParser(prog="python -m faults", description=(__doc__ or "").splitlines()[0])
    by_name = {fault.__name__: fault for fault in FAULTS}
    parser.add_argument("--only", action="append", choices=sorted(by_name), help="play this one; may be repeated")
    parser.add_argument("--list", action="store_true", help="print the faults and their promises")
    parser.add_argument("--rate", type=float, default=RATE, help=f"samples per second (default {RATE:g})")
    arguments = parser.parse_args()
    if arguments.list:
        print("\n".join(f"{name:30} {promise(fault)}" for name, fault in by_name.items()))
        return 0
    chosen = [by_name[name] for name in arguments.only] if arguments.only else FAULTS
    return exit_status(lambda: tell(chosen, rate=arguments.rate), evidence=STATE / FAILURE)


if __name__ == "__main__":
    sys.exit(main())
