"""The files that are mounted into stock images: each stands alone, none is installed there."""

from importlib import resources
from pathlib import Path

SCORE_MIDDLEWARE = "score_middleware.py"
SGLANG_LAUNCHER = "sglang_launcher.py"
ROUTER_LAUNCHER = "router_launcher.py"
MOUNTED_FILES = (SCORE_MIDDLEWARE, SGLANG_LAUNCHER, ROUTER_LAUNCHER)


def mounted_files() -> dict[str, str]:
    """File names and texts, as a ConfigMap's data."""
    package = resources.files("rewardpool_worker")
    return {name: (package / name).read_text() for name in MOUNTED_FILES}


def write_mounted_files(folder: Path) -> None:
    """Put the files where processes of this machine find them; the folder is made if it is missing.

    Not the package's own folder: on an engine's PYTHONPATH it would shadow modules of the same names.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in mounted_files().items():
        (folder / name).write_text(text)
