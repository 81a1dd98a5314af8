"""Where a worker of the tests runs."""

from pathlib import Path

from support.fleet import server_python
from support.ports import free_port

from rewardpool_api import names
from rewardpool_worker.engines import LaunchTarget
from rewardpool_worker.mounted import write_mounted_files

KEY = "the-key-of-the-tests"


def target_in(folder: Path, *, served_name: str = "rm", sleeps: bool = False) -> LaunchTarget:
    """On a free port of this machine, with `KEY` and the mounted files in a folder, which gets them."""
    key_file, files = folder / names.KEY_FILE, folder / "files"
    key_file.write_text(KEY)
    write_mounted_files(files)
    return LaunchTarget(
        python=(server_python(),),
        served_name=served_name,
        host="127.0.0.1",
        port=free_port(),
        files_dir=str(files),
        key_file=str(key_file),
        sleeps=sleeps,
    )
