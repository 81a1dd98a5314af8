"""A job of several ranks on this machine, over gloo: real torchrun, on a module of the tests."""

import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]


def command(module: str, *args: str | Path, ranks: int) -> list[str | Path]:
    """Return what runs `python -m module args` on so many ranks."""
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    return [sys.executable, *torchrun, "-m", module, *args]


def run_job(module: str, *args: str | Path, ranks: int, seconds: float, **env: str) -> subprocess.CompletedProcess[str]:
    """Run `python -m module args` on every rank, and wait until all of them have ended.

    Args:
        module: Such as `support.update_job`.
        args: Of each rank.
        ranks: Processes.
        seconds: The most it may take.
        env: Variables beside this process's own.

    Raises:
        subprocess.TimeoutExpired: It took longer.
    """
    return subprocess.run(
        command(module, *args, ranks=ranks),
        env={**os.environ, "PYTHONPATH": str(TESTS), **env},
        capture_output=True,
        text=True,
        timeout=seconds,
    )
