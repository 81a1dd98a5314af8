"""Runs the parts and writes the figures to one file, part by part.

python -m first_score --only function_local --rounds 5
"""

import argparse
import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from cluster.node import NodeCluster
from cluster.processes import ClusterError
from cluster.progress import Say, timed_lines
from first_score import cluster as on_cluster
from first_score import local
from first_score.aims import LOCAL, PARTS, aims
from installation import Installation, evidence
from overlay import chart_image

RESULT: Final = Path(__file__).parents[2] / ".rewardpool" / "bench" / "first_score.json"

Keep = Callable[[str, dict[str, Any]], None]


def measure(parts: Sequence[str], *, rounds: int, folder: Path, keep: Keep, say: Say) -> None:
    """Each part, and a cluster for those that need one.

    Args:
        parts: names, of `PARTS`.
        rounds: of each.
        folder: for what helm and a failure leave.
        keep: takes what a part came to.
        say: hears how it goes.
    """
    for part in LOCAL:
        if part in parts:
            keep(part, local.measure(rounds=rounds, parked=int(part == "parked_local"), say=say))
    if not set(parts) - set(LOCAL):
        return
    with NodeCluster(nodes=1, say=say) as cluster:
        installation = Installation(cluster, folder=folder, say=say)
        installation.load_image()
        installation.install({"image": chart_image(on_cluster.IMAGE)})
        installation.wait()
        cluster.kubectl(
            "apply", "-f", "-", input=json.dumps({"apiVersion": "v1", "kind": "List", "items": on_cluster.namespace()})
        )
        try:
            if "function_cluster" in parts:
                found = on_cluster.measure_functions(cluster, rounds=rounds, parked=0, say=say)
                keep("function_cluster", found)
            if "parked_cluster" in parts:
                found = on_cluster.measure_functions(cluster, rounds=rounds, parked=1, say=say)
                keep("parked_cluster", found)
        except Exception:
            (folder / "first-score-failure.txt").write_text(evidence(cluster, namespace=on_cluster.NAMESPACE))
            raise


def show(result: dict[str, Any]) -> None:
    """Print the tables."""
    table = Table("part", "median", "longest", "parts of the median, seconds", title="seconds until the first score")
    for part in PARTS:
        if "seconds" in (found := result.get(part, {})):
            taken = ", ".join(f"{name} {seconds:g}" for name, seconds in found["parts"].items() if seconds)
            table.add_row(part, f"{found['seconds']['median']:g}", f"{found['seconds']['max']:g}", taken)
    Console().print(table)
    judged = Table("what", "measured", "aim", "met", title="aims")
    for aim in result["aims"]:
        judged.add_row(aim["what"], f"{aim['measured']:g}", aim["aim"], "yes" if aim["met"] else "no")
    Console().print(judged)


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(
        prog="first_score",
        description="What the first request at a pool at zero waits for, on this machine and on a cluster.",
        epilog='example: make bench-first-score BENCH_ARGS="--only function_local"',
    )
    parser.add_argument("--only", choices=PARTS, nargs="+", help="some parts; of the others the file keeps what it has")
    parser.add_argument("--rounds", type=int, default=7, help="of each part (default 7)")
    parser.add_argument("--out", type=Path, default=RESULT)
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that nothing is left, as at Ctrl-C
    result: dict[str, Any] = json.loads(given.out.read_text()) if given.only and given.out.exists() else {}
    result |= {"cores": os.cpu_count()}
    given.out.parent.mkdir(parents=True, exist_ok=True)

    def keep(part: str, found: dict[str, Any]) -> None:
        result[part] = found
        result["aims"] = aims(result)
        given.out.write_text(json.dumps(result, indent=2) + "\n")

    try:
        measure(given.only or PARTS, rounds=given.rounds, folder=given.out.parent, keep=keep, say=timed_lines())
    except ClusterError as error:
        sys.exit(f"error: {error}")
    show(result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
