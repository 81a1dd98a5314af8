"""A job of one rank or more on this machine: several over gloo, by the real torchrun, on a module of the tests."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

TESTS = Path(__file__).parents[1]


class RanksDid(NamedTuple):
    """What came of `rank_jobs`."""

    folder: Path
    """With the checkpoints."""
    results: dict[str, Any]


def command(module: str, *args: str | Path, ranks: int) -> list[str | Path]:
    """Return what runs `python -m module args` on so many ranks; one takes no torchrun, which imports torch as well."""
    if ranks == 1:
        return [sys.executable, "-m", module, *args]
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    return [sys.executable, *torchrun, "-m", module, *args]


NATIVE_CRASHES = (signal.SIGABRT, signal.SIGSEGV)
"""A rank's end in native code, where Python raises nothing."""


def run_job(
    module: str, *args: str | Path, ranks: int, seconds: float, native_crashes: int = 1, **env: str
) -> subprocess.CompletedProcess[str]:
    """Run `python -m module args` on every rank, and wait until all of them have ended.

    TRAP: torch 2.13 over gloo was seen to abort on a busy machine ("double free detected in tcache 2" while a weight
    was gathered), where the same job ends well otherwise. Such a job is run again, and its first end printed.

    Args:
        module: Such as `support.update_job`.
        args: Of each rank.
        ranks: Processes.
        seconds: The most one run may take.
        native_crashes: How many runs may end that way and be repeated; 0 where a second run would not be the same.
        env: Variables beside this process's own.

    Raises:
        subprocess.TimeoutExpired: It took longer.
    """
    path = [str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]
    while True:
        ended = subprocess.run(
            command(module, *args, ranks=ranks),
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path), **env},
            capture_output=True,
            text=True,
            timeout=seconds,
        )
        # By torchrun's words, or by the one rank's own end.
        crashed = any(f"({one.name})" in ended.stderr or ended.returncode == -one for one in NATIVE_CRASHES)
        if not native_crashes or not crashed:
            return ended
        native_crashes -= 1
        print(f"{module} crashed in native code and is run again:\n{ended.stderr}")
