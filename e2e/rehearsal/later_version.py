"""A made-up later release: this tree under the next version, with one field of the API under another name.

`v1alpha1` is an alpha, so a field may be renamed without an alias: what then happens to pools that use the old name is
part of what is rehearsed.
"""

import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from cluster.processes import output_of
from release import versions
from scene import StoryError

RENAMED: Final = "requestTimeoutSeconds"
RENAMED_TO: Final = "attemptTimeoutSeconds"
CRD: Final = "charts/rewardpool/files/rewardpool.dev_rewardpools.yaml"
_FIELD: Final = "request_timeout_seconds: Annotated[int, Field(ge=1, le=86_400"


def later(version: str) -> str:
    """The next minor version: 0.3.0 of 0.2.0."""
    major, minor, _ = version.split(".")
    return f"{major}.{int(minor) + 1}.0"


def changes(version: str) -> Mapping[str, Callable[[str], str]]:
    """What becomes of each file's text, by its path; `version` is that of this tree."""
    new = later(version)

    def stated(text: str) -> str:
        return re.sub(rf'^((?:app)?[vV]ersion\s*[:=]\s*"?){re.escape(version)}', rf"\g<1>{new}", text, flags=re.M)

    return {
        "pyproject.toml": stated,
        "charts/rewardpool/Chart.yaml": stated,
        "CHANGELOG.md": lambda text: text.replace(f"## {version}", f"## {new}\n\n## {version}", 1),
        "crds/rewardpool_api/pool.py": lambda text: text.replace(_FIELD, f'{_FIELD}, alias="{RENAMED_TO}"'),
        "crds/rewardpool_api/names.py": lambda text: text.replace(RENAMED, RENAMED_TO),
    }


def make_later(tree: Path, version: str) -> str:
    """Change an unpacked source archive into the later release's; returns its version.

    Raises:
        StoryError: A change finds nothing to change any more.
    """
    for path, change in changes(version).items():
        text = (tree / path).read_text()
        if (changed := change(text)) == text:
            raise StoryError(f"{path}: the later version changes nothing in it; see e2e/rehearsal/later_version.py")
        (tree / path).write_text(changed)
    output_of(sys.executable, "-m", "rewardpool_api.crd", tree / CRD, environment={"PYTHONPATH": str(tree / "crds")})
    if f" {RENAMED_TO}:" not in (tree / CRD).read_text():
        raise StoryError(f"{CRD} of the later version has no {RENAMED_TO}")
    stated = versions.stated_versions(lambda path: (tree / path).read_text())
    if differing := versions.disagreement(stated):
        raise StoryError(differing)
    return next(iter(stated.values()))
