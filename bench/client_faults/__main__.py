"""Plays the faults in a network of its own: its wires can be cut, and nothing of it outlives the run.

python -m client_faults --only invalid --samples 500
python -m client_faults --router smg
"""

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Final

from rich.console import Console
from support.fleet import FLAVORS

from client_faults.faults import FAULTS
from client_faults.play import Result, play, summary, table
from client_faults.wires import into_own_network, make_network
from cluster.progress import timed_lines

ROOT: Final = Path(__file__).resolve().parents[2]
RESULT: Final = ROOT / ".rewardpool" / "bench" / "client_faults.json"


def main() -> int:
    """Entry point; 1 when a sample was lost, or its score is wrong or invented."""
    parser = argparse.ArgumentParser(
        prog="client_faults", description="What the trainer's client makes of faults, with every score checked."
    )
    parser.add_argument("--samples", type=int, default=5000, help="of each fault")
    parser.add_argument("--outage-seconds", type=float, default=20.0, help="without any worker")
    parser.add_argument("--only", default="", help="play those faults whose names contain this")
    parser.add_argument("--router", choices=FLAVORS, default=FLAVORS[0], help=f"default {FLAVORS[0]}")
    parser.add_argument("--out", type=Path, default=RESULT)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    chosen = [fault for fault in FAULTS if given.only.lower() in fault.name.lower()]
    if not chosen:
        parser.error(f"no fault has {given.only!r} in its name; there are: {', '.join(fault.name for fault in FAULTS)}")
    if not given.inside:
        into_own_network("client_faults", sys.argv[1:])
    make_network()
    say = timed_lines()
    results: list[Result] = []
    with tempfile.TemporaryDirectory(prefix="rewardpool-faults-") as folder:
        for number, fault in enumerate(chosen, start=1):
            say(f"fault {number} of {len(chosen)}: {fault.name}")
            place = Path(folder, fault.key)
            results.append(
                play(fault, place, flavor=given.router, samples=given.samples, outage_seconds=given.outage_seconds)
            )
            say(f"  {summary(results[-1])}")
    faults = {result.fault.key: result.report() for result in results}
    report = {"cores": os.cpu_count(), "router": given.router, "faults": faults}
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps(report, indent=2) + "\n")
    # A file or a pipe has no width, and rich would take 80 columns for it.
    Console(width=None if sys.stdout.isatty() else 160).print(table(results))
    return 0 if all(result.tally.kept for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
