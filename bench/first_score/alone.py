"""A function worker's own start without a pool: from its process to the first time that it scores."""

import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from first_score.asking import until
from rewardpool_api import names
from rewardpool_runtime.listeners import HOST, HeldPort

FUNCTION: Final = "first_score.reward:compute_score"
POLL_SECONDS: Final = 0.02


def function_start() -> float:
    """Seconds of one start.

    Raises:
        TooLateError: it does not score in time.
    """
    held = HeldPort()
    port = held.number
    command = [sys.executable, "-m", "rewardpool_worker.function_server", "--function", FUNCTION, "--port", str(port)]
    command += ["--shared-port"]
    began = time.monotonic()
    process = subprocess.Popen(command, env=_environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        url = f"http://{HOST}:{port}{names.READY_PATH}"
        until(lambda: _answers(url), what="the function worker alone scores", pause=POLL_SECONDS)
        return time.monotonic() - began
    finally:
        process.kill()
        process.wait()
        held.release()


def _environment() -> Mapping[str, str]:
    return {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=1) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
