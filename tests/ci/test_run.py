"""The order in which continuous integration runs its suites."""

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_suites_that_start_engines_run_after_the_cluster(tmp_path: Path) -> None:
    environ = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL")}
    # Lines that call make again are run by a dry run as well, and may touch this file.
    command = ["make", "--dry-run", "test", "WITH_CLUSTER=yes", f"FAILED={tmp_path / 'failed'}"]
    planned = subprocess.run(command, cwd=ROOT, env=environ, check=True, capture_output=True, text=True).stdout
    steps = (
        "python e2e/run.py",
        "-m tutorials",
        "python e2e/first_minute.py",
        'pytest -m "not long" tests/frameworks\n',
    )
    places = [planned.index(step) for step in steps]
    assert places == sorted(places)
