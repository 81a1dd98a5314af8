"""The version, as every file states it that a user may read it in."""

import re
import tomllib
from collections.abc import Callable, Mapping
from typing import Final

import yaml

STATED_IN: Final[Mapping[str, tuple[str, Callable[[str], str]]]] = {
    "pyproject.toml, project.version": (
        "pyproject.toml",
        lambda text: str(tomllib.loads(text)["project"]["version"]),
    ),
    "charts/rewardpool/Chart.yaml, version": (
        "charts/rewardpool/Chart.yaml",
        lambda text: str(yaml.safe_load(text)["version"]),
    ),
    "charts/rewardpool/Chart.yaml, appVersion": (
        "charts/rewardpool/Chart.yaml",
        lambda text: str(yaml.safe_load(text)["appVersion"]),
    ),
    "CHANGELOG.md, the first heading": ("CHANGELOG.md", lambda text: _first_heading(text)),
}
"""Where a version is stated -> the file, and how it is read from its text."""


def stated_versions(read: Callable[[str], str], *, tag: str | None = None) -> dict[str, str]:
    """Every version that is stated, by where it is.

    Args:
        read: the text of a file by its path from the repository's root.
        tag: of the commit that is released, such as `v0.2.0`.
    """
    found = {where: version(read(path)) for where, (path, version) in STATED_IN.items()}
    return found if tag is None else {**found, f"the tag {tag}": tag.removeprefix("v")}


def disagreement(versions: Mapping[str, str]) -> str | None:
    """What to do where versions differ; None where all are one."""
    if len(set(versions.values())) == 1:
        return None
    lines = [f"  {version or '(none)':<10} {where}" for where, version in versions.items()]
    return "the versions differ; write one into all of these:\n" + "\n".join(lines)


def _first_heading(changelog: str) -> str:
    """`0.2.0` of `## 0.2.0 - 2026-12-01`; empty where there is no heading."""
    heading = re.search(r"^## \[?([^\s\]]+)", changelog, re.MULTILINE)
    return heading[1] if heading else ""
