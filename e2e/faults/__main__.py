"""The faults alone, on a cluster of their own: `make e2e-faults`, or `python -m faults [--only NAME]… [--list]`."""

import argparse
import sys
from collections.abc import Sequence

from cluster.choose import open_cluster
from cluster.folders import STATE
from cluster.progress import Say, timed_lines
from exit_status import exit_status
from faults.play import FAULTS, NAME, RATE, TITLE, Fault, Result, failure_of, play_all, promise, report_of, show
from installation import Installation, refuse_used_cluster

NODES = 2
"""One of them is drained."""


def run(faults: Sequence[Fault], *, name: str, rate: float, say: Say) -> list[Result]:
    """Bring up a cluster with the operator and play the faults on it."""
    STATE.mkdir(parents=True, exist_ok=True)
    with open_cluster(mounts=[STATE], nodes=NODES, say=say) as cluster:
        refuse_used_cluster(cluster)
        installation = Installation(cluster, folder=STATE, say=say)
        try:
            installation.load_image()
            return play_all(cluster, installation, folder=STATE, faults=faults, rate=rate, name=name, say=say)
        finally:
            say("cleaning up")
            installation.remove()


def play(chosen: Sequence[Fault], *, name: str, title: str, rate: float) -> int:
    """Play the faults, and show what became of them."""
    results = run(chosen, name=name, rate=rate, say=timed_lines())
    show(results, title=title)
    print(f"numbers: {STATE / report_of(name)}")
    return 0 if all(result.passed for result in results) else 1


def main(
    faults: Sequence[Fault] = FAULTS, *, name: str = NAME, title: str = TITLE, program: str = "python -m faults"
) -> int:
    """Entry point; the exit status is 0 only when every promise was kept.

    Args:
        faults: That can be played.
        name: Of the files that are written.
        title: Of the table that is shown.
        program: As it was started, for its help.
    """
    parser = argparse.ArgumentParser(prog=program, description=title)
    by_name = {fault.__name__: fault for fault in faults}
    parser.add_argument("--only", action="append", choices=sorted(by_name), help="play this one; may be repeated")
    parser.add_argument("--list", action="store_true", help="print the faults and their promises")
    parser.add_argument("--rate", type=float, default=RATE, help=f"samples per second (default {RATE:g})")
    arguments = parser.parse_args()
    if arguments.list:
        print("\n".join(f"{one:30} {promise(fault)}" for one, fault in by_name.items()))
        return 0
    chosen = [by_name[one] for one in arguments.only] if arguments.only else faults
    return exit_status(
        lambda: play(chosen, name=name, title=title, rate=arguments.rate), evidence=STATE / failure_of(name)
    )


if __name__ == "__main__":
    sys.exit(main())
