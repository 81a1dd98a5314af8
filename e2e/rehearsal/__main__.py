"""`make rehearsal`; see the package."""

import argparse
import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import Any, Final

from cluster.folders import REPOSITORY
from cluster.progress import timed_lines
from exit_status import exit_status
from first_minute import Steps
from rehearsal import in_cluster, one_machine
from rehearsal.first_scores import PYTHONS, first_scores, this_python
from rehearsal.packages import Index, build, served
from rehearsal.streams import Row, lines
from tutorials import ON_CLUSTER, PAGES, fresh_cluster, run_page

FOLDER: Final = REPOSITORY / ".rewardpool" / "rehearsal"
SHORT_PARTS: Final = ("pythons", "machine")
PARTS: Final = (*SHORT_PARTS, "tutorials", "cluster")
TUTORIALS: Final = ("code-checker", "one-machine", "own-loop")
"""Those that download no framework and no engine."""


def rehearse(parts: Collection[str], *, short: bool) -> int:
    """Do these parts, write the report and print the matrix; returns 1 where something was not as it should be."""
    began, steps = time.monotonic(), Steps()
    rows: list[Row] = []
    pythons: list[dict[str, Any]] = []
    report: dict[str, Any] = {"short": short}
    with tempfile.TemporaryDirectory(prefix="rewardpool-rehearsal-") as made:
        scratch = Path(made)
        packages = build(steps, scratch)
        report |= {"version": packages.now, "later_version": packages.later, "megabytes": packages.megabytes}
        with served(steps, packages.folder, scratch) as url:
            index, versions = Index(url, steps), (packages.now, packages.later)
            if "pythons" in parts:
                pythons = first_scores(url, packages.now, scratch, [this_python()] if short else PYTHONS)
            jobs = {one: index.make(scratch / f"job-{one}", sys.executable, f"rewardpool=={one}") for one in versions}
            if "machine" in parts:
                found, report["machine"] = one_machine.rows(index, packages, jobs, scratch, short=short)
                rows += found
            if "tutorials" in parts:
                report["tutorials"] = type_tutorials(url, packages.now, scratch / "tutorials")
        if "cluster" in parts:
            found, report["cluster"] = in_cluster.rows(packages, jobs, scratch, say=timed_lines())
            rows += found
    results = Counter(python["result"] for python in pythons)
    report |= {"pythons": pythons, "python_results": results, "matrix": [row.report() for row in rows]}
    report |= {"seconds": round(time.monotonic() - began, 1)}
    FOLDER.mkdir(parents=True, exist_ok=True)
    path = FOLDER / ("short.json" if short else "report.json")
    path.write_text(json.dumps(report, indent=2) + "\n")
    for python in pythons:
        print(f"Python {python['python']}: {': '.join(filter(None, (python['result'], python.get('why'))))}")
    print(f"{lines(rows)}\nfigures: {path.relative_to(REPOSITORY)}; {report['seconds']} s")
    return 0 if all(row.passed for row in rows) and not results["failed"] else 1


def type_tutorials(url: str, version: str, folder: Path) -> dict[str, dict[str, float]]:
    """Type the tutorials, with the package from the index and the image from a registry.

    Returns:
        Seconds of each command, by page.
    """
    variables = {"PIP_EXTRA_INDEX_URL": f"{os.environ.get('PIP_EXTRA_INDEX_URL', '')} {url}".strip()}
    seconds = {page: run_page(PAGES[page], folder, variables, version=version) for page in TUTORIALS}
    with fresh_cluster() as cluster:
        return seconds | {page: run_page(PAGES[page], folder, cluster) for page in ON_CLUSTER}


def main() -> int:
    """Read the arguments and rehearse."""
    parser = argparse.ArgumentParser(prog="python -m rehearsal", description="Rehearse a release and the one after it.")
    parser.add_argument("--short", action="store_true", help="this Python and this machine alone, there and not back")
    parser.add_argument("--only", action="append", choices=PARTS, help="this part; may be repeated")
    arguments = parser.parse_args()
    chosen = arguments.only or (SHORT_PARTS if arguments.short else PARTS)
    return rehearse(chosen, short=arguments.short)


if __name__ == "__main__":
    sys.exit(exit_status(main))
