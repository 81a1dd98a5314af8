"""`make rehearsal`; see the package."""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from cluster.folders import REPOSITORY
from exit_status import exit_status
from first_minute import Steps
from rehearsal import one_machine
from rehearsal.first_scores import PYTHONS, first_scores, this_python
from rehearsal.packages import Index, build, served
from rehearsal.streams import lines

REPORT: Final = REPOSITORY / ".rewardpool" / "rehearsal" / "report.json"


def rehearse(*, short: bool) -> int:
    """Do all of it, write the report and print the matrix; returns 1 where something was not as it should be."""
    began, steps = time.monotonic(), Steps()
    report: dict[str, Any] = {"short": short}
    with tempfile.TemporaryDirectory(prefix="rewardpool-rehearsal-") as made:
        scratch = Path(made)
        packages = build(steps, scratch)
        report |= {"version": packages.now, "later_version": packages.later, "megabytes": packages.megabytes}
        with served(steps, packages.folder, scratch) as url:
            pythons = first_scores(url, packages.now, scratch, [this_python()] if short else PYTHONS)
            rows, refused = one_machine.rows(Index(url, steps), packages, scratch, back=not short)
    report |= {"pythons": pythons, "matrix": [row.report() for row in rows], "renamed_field": refused}
    report |= {"seconds": round(time.monotonic() - began, 1)}
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    REPORT.write_text(json.dumps(report, indent=2) + "\n")
    for python in pythons:
        print(f"Python {python['python']}: {python.get('not_here') or python.get('failed') or 'scored'}")
    print(f"{lines(rows)}\nfigures: {REPORT.relative_to(REPOSITORY)}; {report['seconds']} s")
    passed = all(row.passed for row in rows) and not any("failed" in python for python in pythons)
    return 0 if passed and any("version" in python for python in pythons) else 1


def main() -> int:
    """Read the arguments and rehearse."""
    parser = argparse.ArgumentParser(prog="python -m rehearsal", description="Rehearse a release and the one after it.")
    parser.add_argument("--short", action="store_true", help="this Python and this machine alone, without a cluster")
    return rehearse(short=parser.parse_args().short)


if __name__ == "__main__":
    sys.exit(exit_status(main))
