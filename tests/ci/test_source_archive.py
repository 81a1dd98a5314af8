"""The source archive has what is installed from it, and what its pages send the reader to."""

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
TARGETS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]
ARCHIVE = set(TARGETS["sdist"]["only-include"])


def test_the_archive_has_the_folder_of_every_room() -> None:
    assert {path.partition("/")[0] for path in TARGETS["wheel"]["packages"]} <= ARCHIVE


def test_all_that_the_archive_lists_is_there() -> None:
    assert [path for path in ARCHIVE if not (ROOT / path).exists()] == []


def test_the_archive_has_the_folder_in_which_the_first_pool_is_tried() -> None:
    assert "cd examples/function" in (ROOT / "README.md").read_text()
    assert "examples" in ARCHIVE
