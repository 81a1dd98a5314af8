"""`make simulate-peers`: RewardPool's policies and other projects' autoscalers on traces of training, simulated.

python -m autoscaler.traces --trace sync-grpo --policy demand hpa --plot stall.png
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rich.console import Console

from autoscaler.policies import NAMES, factories_for
from autoscaler.simulated import first_of_each
from cluster.progress import timed_lines
from rewardpool_cli.commands.simulate import table
from rewardpool_simulator import builtin
from rewardpool_simulator.compare import PolicyComparison, compare
from rewardpool_simulator.trace import TraceError

CHART_ENDINGS: Final = (".png", ".svg", ".pdf")


def comparison(name: str, policies: Sequence[str], *, seed: int) -> PolicyComparison:
    """Run each policy on one trace.

    Raises:
        TraceError: the trace does not exist or is not valid.
        OSError: its file cannot be read.
    """
    trace = builtin.load_trace(name)
    known = factories_for(trace)
    chosen = {policy: known[policy] for policy in policies}
    title = Path(name).stem
    return compare(trace, chosen, name=title, seed=seed, on_progress=first_of_each(title, say=timed_lines()))


def main(arguments: list[str] | None = None) -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="autoscaler.traces", description=__doc__)
    parser.add_argument(
        "--trace",
        nargs="+",
        default=builtin.NAMES,
        help=f"{', '.join(builtin.NAMES)}, or files (default: all of these)",
    )
    parser.add_argument("--policy", nargs="+", choices=NAMES, default=NAMES, help="(default: all of them)")
    parser.add_argument("--seed", type=int, default=0, help="random seed; the same seed gives the same figures")
    parser.add_argument("--plot", type=Path, help="draw stall against cost into this file (.png, .svg, .pdf)")
    parser.add_argument("--json", action="store_true", help="output JSON")
    given = parser.parse_args(arguments)
    if given.plot is not None and (given.plot.suffix not in CHART_ENDINGS or not given.plot.parent.is_dir()):
        parser.error(f"--plot {given.plot}: give a file in an existing folder, ending in {', '.join(CHART_ENDINGS)}")
    try:
        found = [comparison(name, given.policy, seed=given.seed) for name in given.trace]
    except (TraceError, OSError) as error:
        parser.error(str(error))
    if given.plot is not None:
        from autoscaler import chart  # slow to import

        chart.draw(found, given.plot)
    if given.json:
        print(json.dumps({"seed": given.seed, "traces": {one.trace: one.as_json() for one in found}}, indent=2))
    else:
        Console().print(*map(table, found), sep="\n\n")


if __name__ == "__main__":
    main()
