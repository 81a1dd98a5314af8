"""The files that are mounted into stock images, where nothing of RewardPool is installed.

Workers get one zip, from which Python imports: `engine_side` and what it needs of `rewardpool_api`, under their own
names. Its bytes depend on the content and on the zlib of the operator's image, and on no time: other bytes are another
ConfigMap, which new workers mount. Routers get one file that stands alone.
"""

import io
from base64 import b64encode
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Final
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

WORKER_ZIP: Final = "rewardpool_worker.zip"
ROUTER_LAUNCHER: Final = "router_launcher.py"
API_MODULES: Final = (
    "__init__.py",
    "certificate.py",
    "contract.py",
    "engines.py",
    "names.py",
    "teacher_wire.py",
    "tokenizer_files.py",
)


def worker_files() -> dict[str, str]:
    """Return what workers need, as a ConfigMap's `binaryData`."""
    return {WORKER_ZIP: _encoded(_zip())}


def router_files() -> dict[str, str]:
    """Return what routers need, as a ConfigMap's `binaryData`."""
    return {ROUTER_LAUNCHER: _encoded(_launcher())}


def write_mounted_files(folder: Path) -> None:
    """Write the files where processes of this machine find them; the folder is made if it is missing."""
    folder.mkdir(parents=True, exist_ok=True)
    write_worker_zip(folder)
    (folder / ROUTER_LAUNCHER).write_bytes(_launcher())


def write_worker_zip(folder: Path) -> Path:
    """Write the zip into a folder that is there, and return its path."""
    path = folder / WORKER_ZIP
    path.write_bytes(_zip())
    return path


def zipped_modules() -> dict[str, bytes]:
    """Return paths in the zip and contents."""
    api, worker = resources.files("rewardpool_api"), resources.files("rewardpool_worker")
    return {
        **{f"rewardpool_api/{name}": (api / name).read_bytes() for name in API_MODULES},
        "rewardpool_worker/__init__.py": (worker / "__init__.py").read_bytes(),
        **_modules(worker / "engine_side", "rewardpool_worker/engine_side"),
        # Python runs the one at the top.
        "__main__.py": (worker / "engine_side" / "__main__.py").read_bytes(),
    }


def _modules(folder: Traversable, path: str) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for entry in folder.iterdir():
        if entry.name.endswith(".py"):
            found[f"{path}/{entry.name}"] = entry.read_bytes()
        elif entry.is_dir() and entry.name != "__pycache__":
            found |= _modules(entry, f"{path}/{entry.name}")
    return found


@cache
def _zip() -> bytes:
    # Made once: an operator needs it at every pass over every pool.
    made = io.BytesIO()
    with ZipFile(made, "w") as archive:
        for path, content in sorted(zipped_modules().items()):
            # Always of 1980 and as if made on Unix.
            entry = ZipInfo(path)
            entry.create_system, entry.external_attr = 3, 0o100644 << 16
            archive.writestr(entry, content, ZIP_DEFLATED, 9)
    return made.getvalue()


@cache
def _encoded(data: bytes) -> str:
    # The same text each time: an operator asks for it at every pass, and names the ConfigMap by its hash.
    return b64encode(data).decode()


@cache
def _launcher() -> bytes:
    return (resources.files("rewardpool_worker") / ROUTER_LAUNCHER).read_bytes()
