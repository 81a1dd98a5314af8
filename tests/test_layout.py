"""What a newcomer adds has few files to touch: docs/architecture.md lists them, and the code is held to the list.

Each task of the table there is shown by one that was done. The files of the product whose code names that one, comments
and docstrings aside, are those that the table lists.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROOMS = ("crds", "runtime", "page", "workers", "control", "kube", "operator", "local", "trainer_plugin", "trainer")
"""Without those that only show or simulate: what they say of one policy is their own choice."""
SERVING_ROOMS = ("crds", "runtime", "page", "workers", "control", "kube", "operator", "local")
MOST_FILES, MOST_ROOMS = 4, 2
PAGE = ROOT / "docs" / "architecture.md"
ROW = re.compile(r"^\| (?P<task>an?(?:other)? [^|]*) \| `(?P<shown_by>[^`]+)` \| (?P<files>`[^|]*`) \|$", re.MULTILINE)


@dataclass(frozen=True)
class Task:
    """A row of the table."""

    shown_by: str
    """A regular expression for the names of the one that was done; texts and names of modules are in quotes."""
    files: tuple[str, ...]


def table() -> dict[str, Task]:
    rows = ROW.finditer(PAGE.read_text().replace("\\|", "\0"))
    return {
        row["task"]: Task(row["shown_by"].replace("\0", "|"), tuple(re.findall("`([^`]+)`", row["files"])))
        for row in rows
    }


@cache
def names_in(module: Path) -> frozenset[str]:
    """The names and texts of a module's code, with its own name."""
    return frozenset(_names(module))


def _names(module: Path) -> Iterator[str]:
    yield repr(module.stem)
    tree = ast.parse(module.read_text())
    bare = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text)) if id(node) not in bare:
                yield repr(text)
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                yield name
            case ast.ImportFrom(module=origin, names=aliases):
                yield from (origin or "", *(alias.name for alias in aliases))


def test_the_table_has_each_kind_of_task() -> None:
    assert list(table()) == [
        "an autoscaling policy",
        "another engine",
        "another router",
        "an adapter of a training framework",
        "a condition",
    ]


@pytest.mark.parametrize("task", table())
def test_a_task_touches_the_files_that_the_page_lists(task: str) -> None:
    listed = table()[task]
    # The trainer's own rollouts have an engine that is called like one of reward models.
    rooms = SERVING_ROOMS if task == "another engine" else ROOMS
    modules = [module for room in rooms for module in sorted((ROOT / room).rglob("*.py"))]
    named = re.compile(listed.shown_by)
    found = {str(module.relative_to(ROOT)) for module in modules if any(map(named.search, names_in(module)))}
    assert found == set(listed.files)


@pytest.mark.parametrize("task", table())
def test_a_task_touches_few_files_in_few_rooms(task: str) -> None:
    files = table()[task].files
    assert 0 < len(files) <= MOST_FILES
    assert len({file.partition("/")[0] for file in files}) <= MOST_ROOMS
