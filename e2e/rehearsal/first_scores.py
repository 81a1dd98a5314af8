"""README's first sample on each Python, with the package from the index."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from first_minute import ROOT, UV, Steps, megabytes, score, shown_extras, typed_commands
from rehearsal.packages import Index
from scene import StoryError

PYTHONS: Final = ("3.11", "3.12", "3.13")


def interpreter(version: str) -> str:
    """The path of a Python of this version that is here; nothing is downloaded.

    Raises:
        LookupError: There is none, in uv's words.
    """
    # Behind pyenv's own programs a version is found only when it is switched to.
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")).glob("versions/*/bin")
    path = os.pathsep.join([*map(str, pyenv), os.environ.get("PATH", os.defpath)])
    command: list[str | Path] = [UV, "python", "find", "--no-python-downloads", version]
    variables = {**os.environ, "PATH": path}
    found = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=60, check=False)
    if found.returncode:
        raise LookupError(found.stderr.strip().splitlines()[-1])
    return found.stdout.strip()


def first_scores(url: str, version: str, folder: Path, pythons: Iterable[str]) -> list[dict[str, Any]]:
    """Install and score on each; a row's `result` is `scored`, `failed`, or `not had` where there is no such Python."""
    rows: list[dict[str, Any]] = []
    for python in pythons:
        steps = Steps()
        row: dict[str, Any] = {"python": python}
        try:
            row |= _first_score(Index(url, steps), version, folder / f"python-{python}", interpreter(python))
            row |= {"result": "scored"}
        except LookupError as error:
            row |= {"result": "not had", "why": str(error)}
        except StoryError as error:
            row |= {"result": "failed", "why": str(error)[-1000:]}
        row |= {"seconds": round(sum(steps.seconds.values()), 1)}
        rows.append(row)
    return rows


def _first_score(index: Index, version: str, folder: Path, python: str) -> dict[str, Any]:
    commands = typed_commands((ROOT / "README.md").read_text())
    environment = folder.with_name(f"{folder.name}-env")
    index.make(environment, python, f"rewardpool{shown_extras(commands)}=={version}", "--link-mode=copy")
    folder.mkdir()
    score(index.steps, commands, folder=folder, environment=environment)
    size = round(megabytes(environment))
    shutil.rmtree(environment)
    return {"interpreter": python, "version": version, "megabytes": size, "steps": _rounded(index.steps.seconds)}


def _rounded(seconds: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 1) for name, value in seconds.items()}


def this_python() -> str:
    """The version of this process's Python, such as 3.11."""
    return f"{sys.version_info.major}.{sys.version_info.minor}"
