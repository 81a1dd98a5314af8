"""The files that are mounted into stock images: each stands alone, none is installed there.

A ConfigMap has no folders, so the modules of the download's package are entries of their own there, and are put into a
folder where they are mounted (`download_paths`).
"""

from functools import cache
from importlib import resources
from pathlib import Path
from typing import Final

SCORE_MIDDLEWARE = "score_middleware.py"
SLEEP_MIDDLEWARE = "sleep_middleware.py"
SGLANG_LAUNCHER = "sglang_launcher.py"
SGLANG_ADAPTERS = "sglang_adapters.py"
TRANSFORMERS_MODEL = "transformers_model.py"
TRANSFORMERS_SERVER = "transformers_server.py"
WORKER_METRICS = "worker_metrics.py"
VLLM_LAUNCHER = "vllm_launcher.py"
HEAD_TOKENS = "head_tokens.py"
LORA_ADAPTERS = "lora_adapters.py"
WHOLE_CHECKPOINT = "whole_checkpoint.py"
TEACHER_ENGINES = "teacher_engines.py"
TEACHER_WIRE = "teacher_wire.py"
"""Of `rewardpool_api`: the client reads and writes by the same file."""
WRITABLE_HOME = "writable_home.py"
TRANSFORMERS_REFERENCE = "transformers_reference.py"
"""Not mounted: run on the machine of whoever verifies a pool."""
ROUTER_LAUNCHER = "router_launcher.py"
MOUNTED_FILES = (
    SCORE_MIDDLEWARE,
    SLEEP_MIDDLEWARE,
    SGLANG_LAUNCHER,
    SGLANG_ADAPTERS,
    VLLM_LAUNCHER,
    HEAD_TOKENS,
    LORA_ADAPTERS,
    WHOLE_CHECKPOINT,
    TEACHER_ENGINES,
    TEACHER_WIRE,
    WRITABLE_HOME,
    TRANSFORMERS_MODEL,
    TRANSFORMERS_SERVER,
    WORKER_METRICS,
    ROUTER_LAUNCHER,
)
DOWNLOAD_PACKAGE: Final = "rewardpool_download"
"""What the package `rewardpool_worker.download` is called where it is mounted, for `python3 -m` from above it."""


def mounted_files() -> dict[str, str]:
    """File names and texts of all files."""
    return dict(_texts())


def worker_files() -> dict[str, str]:
    """File names and texts of what workers need, as a ConfigMap's data."""
    return {name: text for name, text in _texts().items() if name != ROUTER_LAUNCHER}


def router_files() -> dict[str, str]:
    """File names and texts of what routers need, as a ConfigMap's data."""
    return {ROUTER_LAUNCHER: _texts()[ROUTER_LAUNCHER]}


@cache
def _texts() -> dict[str, str]:
    """Read once: an operator asks for them at every pass over every pool."""
    package = resources.files("rewardpool_worker")
    files = {name: (package / name).read_text() for name in MOUNTED_FILES if name != TEACHER_WIRE}
    files[TEACHER_WIRE] = (resources.files("rewardpool_api") / TEACHER_WIRE).read_text()
    modules = {f"{DOWNLOAD_PACKAGE}.{name}": (package / "download" / name).read_text() for name in _download_modules()}
    return files | modules


def download_paths() -> dict[str, str]:
    """Names of the download's modules in `mounted_files`, and their paths below a folder."""
    return {f"{DOWNLOAD_PACKAGE}.{name}": f"{DOWNLOAD_PACKAGE}/{name}" for name in _download_modules()}


def write_mounted_files(folder: Path) -> None:
    """Put the files where processes of this machine find them; the folder is made if it is missing.

    Not the package's own folder: on an engine's PYTHONPATH it would shadow modules of the same names.
    """
    paths = download_paths()
    for name, text in mounted_files().items():
        path = folder / paths.get(name, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def write_reference(folder: Path) -> Path:
    """Put what scores texts by transformers into a folder that is there; returns the program."""
    package = resources.files("rewardpool_worker")
    for name in (TRANSFORMERS_MODEL, TRANSFORMERS_REFERENCE):
        (folder / name).write_text((package / name).read_text())
    return folder / TRANSFORMERS_REFERENCE


def _download_modules() -> list[str]:
    package = resources.files("rewardpool_worker") / "download"
    return sorted(entry.name for entry in package.iterdir() if entry.name.endswith(".py"))
