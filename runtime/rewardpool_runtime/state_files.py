"""State of a pool on one machine: the folder that `rewardpool up` writes and discovery reads.

$REWARDPOOL_STATE_DIR/NAMESPACE/NAME/pool.json    the RewardPool object, with its status, as in a cluster
                                     key          the router's key, mode 0600
                                     lock         held by the pool's supervisor for as long as it lives
                                     demands/     what training jobs announce: JOB.json, renewed by writing it anew
                                     awake/       a file for each process that holds the pool awake, locked by it
                                     gpu          locked by whoever has GPUs that the pool shares with trainers: by
                                                  its supervisor alone, or by ranks that compute, together
                                     logs/        what the processes print
"""

from collections.abc import Mapping
from pathlib import Path

from rewardpool_api import names
from rewardpool_runtime.file_lock import try_lock

LOCK_FILE = "lock"
DEMANDS_DIR = "demands"
AWAKE_DIR = "awake"
GPU_FILE = "gpu"


def state_dir(environ: Mapping[str, str]) -> Path:
    """The folder of all pools on this machine: $REWARDPOOL_STATE_DIR, by default `~/.local/state/rewardpool`."""
    given = environ.get(names.ENV_STATE_DIR)
    return Path(given) if given else Path.home() / ".local" / "state" / "rewardpool"


def pool_dir(environ: Mapping[str, str], namespace: str, name: str) -> Path:
    """The folder of one pool; it need not exist."""
    return state_dir(environ) / namespace / name


def pools_here(environ: Mapping[str, str]) -> list[str]:
    """Return `namespace/name` of each pool that is running on this machine, in order."""
    files = state_dir(environ).glob(f"*/*/{names.STATE_FILE}")
    found = (file.parent for file in files)
    return sorted(f"{folder.parent.name}/{folder.name}" for folder in found if is_supervised(folder))


def is_supervised(folder: Path) -> bool:
    """Return whether the pool of this folder has a supervisor, without which its status is only a memory."""
    try:
        # The kernel drops the lock with the process, however it ended.
        with (folder / LOCK_FILE).open("rb") as lock:
            return not try_lock(lock, shared=True)
    except FileNotFoundError:
        # A state file without a lock was written by something else and is taken at its word.
        return (folder / names.STATE_FILE).exists()
