"""Holders that keep a pool of this machine awake: the files in `awake/` that a living process has locked.

The kernel drops a lock with its process, however that ended, so a trainer that was killed keeps no engine awake. The
files of dead processes are removed.
"""

from pathlib import Path

from rewardpool_runtime.file_lock import try_lock


def names(folder: Path) -> tuple[str, ...]:
    """Names of the files that are held, in order; none where the folder cannot be read.

    Raises:
        OSError: a file cannot be opened for another reason than that it is gone.
    """
    if not folder.is_dir():
        return ()
    # A file gets its name once it is locked; before that its name begins with a dot.
    files = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    return tuple(path.name for path in files if _is_held(path))


def _is_held(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            if not try_lock(file):
                return True
            # Nobody holds it, and nobody comes back to it: names are used once.
            path.unlink(missing_ok=True)
    except FileNotFoundError:
        pass  # whoever held it has removed it
    return False
