"""The tables of docs/results/faults.md: every test it names exists, and every fault of `faults` is in it."""

import ast
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from control_loop.__main__ import PLAYS
from faults.play import FAULTS, Fault

REPOSITORY = Path(__file__).parents[2]
PAGE = (REPOSITORY / "docs" / "results" / "faults.md").read_text()
NAMED = re.findall(r"`((?:bench|tests|e2e)/[\w/]+\.py)::(\w+)`", PAGE)


@pytest.mark.parametrize(("path", "name"), NAMED)
def test_a_named_test_exists(path: str, name: str) -> None:
    tree = ast.parse((REPOSITORY / path).read_text())
    functions = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    assert name in functions


@pytest.mark.parametrize(("folder", "faults"), [("faults", FAULTS), ("control_loop", PLAYS)])
def test_every_fault_is_in_the_table(folder: str, faults: Sequence[Fault]) -> None:
    played = {(f"e2e/{fault.__module__.replace('.', '/')}.py", fault.__name__) for fault in faults}
    assert played == {(path, name) for path, name in NAMED if path.startswith(f"e2e/{folder}/")}


def test_every_row_names_its_proof() -> None:
    rows = [line for line in PAGE.splitlines() if re.match(r"\| (?!fault|what happens|-)", line)]
    assert rows
    assert not [row for row in rows if not re.search(r"\.py::\w+`", row)]
