"""The order in which continuous integration runs its suites."""

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_suites_that_start_engines_run_after_the_cluster() -> None:
    environ = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL")}
    command = ["make", "--dry-run", "test", "WITH_CLUSTER=yes"]
    planned = subprocess.run(command, cwd=ROOT, env=environ, check=True, capture_output=True, text=True).stdout
    steps = (
        "python e2e/run.py",
        "-m tutorials",
        "python e2e/first_minute.py",
        'pytest -m "not long" tests/frameworks\n',
    )
    places = [planned.index(step) for step in steps]
    assert places == sorted(places)
