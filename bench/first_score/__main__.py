"""Runs the parts and writes the figures to one file, part by part.

python -m first_score --only function_local --rounds 5
"""

import argparse
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from cluster.node import NodeCluster
from cluster.processes import ClusterError
from cluster.progress import Say, timed_lines
from first_score import cluster as on_cluster
from first_score import local, vllm, warm
from first_score.aims import LOCAL, PARTS, VLLM, WARM, aims
from installation import IMAGE, Installation, evidence
from machine import ENGINE_CONTAINER_FILE, ENGINE_IMAGE, make_models
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
        if VLLM in parts:
            make_models(say)
            installation.load_image(ENGINE_IMAGE, container_file=ENGINE_CONTAINER_FILE)
            cluster.fake_gpus(1)
        # The namespace first: the chart makes a Role in it.
        cluster.kubectl(
            "apply", "-f", "-", input=json.dumps({"apiVersion": "v1", "kind": "List", "items": on_cluster.namespace()})
        )
        installation.install({"image": chart_image(IMAGE), "trainers": warm.trainers()})
        installation.wait()
        measured: Mapping[str, Callable[[], dict[str, Any]]] = {
            "function_cluster": lambda: on_cluster.measure_functions(cluster, rounds=rounds, parked=0, say=say),
            "parked_cluster": lambda: on_cluster.measure_functions(cluster, rounds=rounds, parked=1, say=say),
            VLLM: lambda: vllm.measure(cluster, rounds=rounds, folder=folder, say=say),
            WARM: lambda: warm.measure(cluster, say=say),
        }
        try:
            for part, figures in measured.items():
                if part in parts:
                    keep(part, figures())
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
    if table.row_count:
        Console().print(table)
    if WARM in result:
        found, first = result[WARM], result[WARM]["first_seconds"]
        Console().print(
            f"{found['warm']} of {found['of']} announced bursts found their pool warm, {found['from_zero']} of all"
            f" after a gap at zero; first score {first['median']:g} s, at most {first['max']:g} s"
        )
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
    parser.add_argument("--rounds", type=int, default=7, help="of each part (default 7; at most 3 of vLLM)")
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
