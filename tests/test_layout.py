"""What a newcomer adds has few files to touch: docs/architecture.md lists them, and the code is held to the list.

A task of the table there is shown by one that was done: the files of the product whose code names it, comments and
docstrings aside, are those that the table lists. And it is done once more, by a patch with a test of its own, which is
applied to a copy of the rooms that it touches and run.
"""

import ast
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from support.rooms import ROOMS as ALL_ROOMS

ROOT = Path(__file__).parents[1]
ROOMS = ("crds", "runtime", "page", "workers", "control", "kube", "operator", "local", "trainer_plugin", "trainer")
"""Without those that only show or simulate: what they say of one policy is their own choice."""
SERVING_ROOMS = ("crds", "runtime", "page", "workers", "control", "kube", "operator", "local")
MOST_FILES, MOST_ROOMS = 4, 2
PAGE = ROOT / "docs" / "architecture.md"
ROW = re.compile(
    r"^\| (?P<task>an? [^|]*) \| (?:`(?P<shown_by>[^`]+)`)? ?\| (?P<files>`[^|]*`) \| \[\w+\]\((?P<patch>[^)]+)\) \|$",
    re.MULTILINE,
)


@dataclass(frozen=True)
class Task:
    """A row of the table."""

    shown_by: str
    """A regular expression for the names of the one that was done, "" where it has too many; texts and names of modules
    are in quotes."""
    files: tuple[str, ...]
    patch: Path
    """One more, with `tests/test_added.py`."""

    @property
    def patched(self) -> set[str]:
        """Files of the product that the patch touches."""
        found = re.findall(r"^\+\+\+ b/(.+)$", self.patch.read_text(), re.MULTILINE)
        return {path for path in found if not path.startswith("tests/")}


def table() -> dict[str, Task]:
    rows = ROW.finditer(PAGE.read_text().replace("\\|", "\0"))
    return {
        row["task"]: Task(
            (row["shown_by"] or "").replace("\0", "|"),
            tuple(re.findall("`([^`]+)`", row["files"])),
            (PAGE.parent / row["patch"]).resolve(),
        )
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


def applied(patch: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Apply a patch to files in a folder, which may be in another repository's working tree."""
    command = ["git", "apply", "-C1", str(patch)]
    environ = {**os.environ, "GIT_CEILING_DIRECTORIES": str(folder.parent)}
    return subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True)


def test_the_table_has_each_kind_of_task() -> None:
    assert list(table()) == [
        "an autoscaling policy",
        "an engine with a launcher",
        "a router",
        "a condition",
        "a field of `spec.worker`",
        "a retry rule",
        "an adapter of a training framework",
    ]


@pytest.mark.parametrize("task", [task for task, row in table().items() if row.shown_by])
def test_a_task_touches_the_files_that_the_page_lists(task: str) -> None:
    listed = table()[task]
    # The trainer's own rollouts have an engine that is called like one of reward models.
    rooms = SERVING_ROOMS if "engine" in task else ROOMS
    modules = [module for room in rooms for module in sorted((ROOT / room).rglob("*.py"))]
    named = re.compile(listed.shown_by)
    found = {str(module.relative_to(ROOT)) for module in modules if any(map(named.search, names_in(module)))}
    assert found == set(listed.files)


@pytest.mark.parametrize("task", table())
def test_a_task_touches_few_files_in_few_rooms(task: str) -> None:
    files = table()[task].files
    assert 0 < len(files) <= MOST_FILES
    assert len({file.partition("/")[0] for file in files}) <= MOST_ROOMS


@pytest.mark.parametrize("task", table())
def test_a_patch_touches_what_the_page_lists(task: str) -> None:
    row = table()[task]
    assert {path for path in row.patched if (ROOT / path).exists()} <= set(row.files)
    folders = [sorted(str(Path(path).parent) for path in files) for files in (row.patched, row.files)]
    assert folders[0] == folders[1]


@pytest.mark.parametrize("task", table())
def test_a_patch_does_its_task(task: str, tmp_path: Path) -> None:
    patch, rooms = table()[task].patch, {path.partition("/")[0] for path in table()[task].patched}
    for room in rooms:
        shutil.copytree(ROOT / room, tmp_path / room, ignore=shutil.ignore_patterns("__pycache__"))
    done = applied(patch, tmp_path)
    assert done.returncode == 0, (
        f"{patch.relative_to(ROOT)} does not apply any more: {done.stderr}Make its changes by hand, write"
        " `git diff -U1` into it, and undo them"
    )
    paths = [tmp_path / room if room in rooms else ROOT / room for room in ALL_ROOMS]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, [*paths, ROOT / "tests"]))}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-c",
        os.devnull,
        "--rootdir",
        str(tmp_path),
        "-p",
        "no:cacheprovider",
    ]
    ran = subprocess.run(
        [*command, "tests/test_added.py"],
        cwd=tmp_path,
        env={**environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode == 0, f"{patch.relative_to(ROOT)} does not do what its test says any more:\n{ran.stdout}"


def test_a_patch_that_does_not_apply_is_found(tmp_path: Path) -> None:
    (tmp_path / "crds/rewardpool_api").mkdir(parents=True)
    (tmp_path / "crds/rewardpool_api/worker.py").write_text("gpus = 1\n")
    done = applied(table()["a field of `spec.worker`"].patch, tmp_path)
    assert done.returncode != 0
    assert "crds/rewardpool_api/worker.py" in done.stderr
