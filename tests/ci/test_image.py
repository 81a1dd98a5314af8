"""The project's image is built from every room: what the wheel has is copied, and passes the ignore file."""

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
CONTAINER_FILE = ROOT / "workers" / "Containerfile"
IGNORE_FILE = ROOT / "workers" / "Containerfile.dockerignore"


def test_the_image_gets_the_folder_of_every_room() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    folders = {path.partition("/")[0] for path in project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]}
    lines = CONTAINER_FILE.read_text().splitlines()
    copied = {words[1] for words in map(str.split, lines) if words[:1] == ["COPY"]}
    let_through = {line.removeprefix("!") for line in IGNORE_FILE.read_text().splitlines() if line.startswith("!")}
    assert (folders - copied, folders - let_through) == (set(), set())
