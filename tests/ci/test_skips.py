"""What continuous integration makes of a skipped test."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
SKIPPED = """
import pytest

@pytest.fixture
def wire():
    pytest.skip("needs iptables")

def test_by_itself():
    pytest.skip("needs iptables")

def test_by_its_fixture(wire): ...

@pytest.mark.skip("needs iptables")
def test_by_its_mark(): ...

def test_allowed():
    pytest.skip("slime is on no package index; set A to B")
"""


def run(folder: Path, *, ci: str) -> tuple[int, str]:
    """pytest's exit status and output for the tests above, and for a module that skips all of its own."""
    (folder / "test_one.py").write_text(SKIPPED)
    (folder / "test_two.py").write_text('import pytest\n\npytest.skip("needs iptables", allow_module_level=True)\n')
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rA", "--continue-on-collection-errors", "-p", "support.skips"],
        cwd=folder,
        env={**os.environ, "CI": ci, "PYTHONPATH": str(TESTS)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.returncode, done.stdout


def test_only_what_the_list_allows_is_skipped_in_ci(tmp_path: Path) -> None:
    status, output = run(tmp_path, ci="true")

    assert status != 0
    refused = re.findall(r"^(?:FAILED|ERROR) (\S+)", output, re.MULTILINE)
    assert sorted(refused) == [
        "test_one.py::test_by_its_fixture",
        "test_one.py::test_by_its_mark",
        "test_one.py::test_by_itself",
        "test_two.py",
    ], output
    assert output.count("skipped in continuous integration: needs iptables") >= len(refused)
    assert "1 skipped" in output


def test_elsewhere_a_test_is_skipped_for_any_reason(tmp_path: Path) -> None:
    status, output = run(tmp_path, ci="")

    assert status in (0, pytest.ExitCode.NO_TESTS_COLLECTED)
    assert "5 skipped" in output
