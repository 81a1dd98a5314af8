"""The model of these tests: a function with a fixed service time, whose every score is known beforehand.

Where JOURNAL names a folder, every process writes the texts that it scored into it: a line with the SHA-256 each.
"""

import asyncio
import hashlib
import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

SERVICE_SECONDS = float(os.environ.get("SERVICE_SECONDS", "0.05"))

_FOLDER = os.environ.get("JOURNAL")
_journal = (Path(_FOLDER) / f"{socket.gethostname()}.{os.getpid()}").open("a", buffering=1) if _FOLDER else None

# A slow start, as of a model that is loaded, for faults that need one.
time.sleep(float(os.environ.get("START_SECONDS", "0")))


def expected_score(text: str) -> float:
    """A number from -1 to 1 that stands for the text, the same in every process."""
    return int(text_hash(text)[:12], 16) / 2**47 - 1.0


def text_hash(text: str) -> str:
    """SHA-256 of a text, in hexadecimal digits."""
    return hashlib.sha256(text.encode()).hexdigest()


async def compute_score(data_source: str, solution_str: str, ground_truth: Any, extra_info: Mapping[str, Any]) -> float:
    """The text's number after the service time, however many are at work."""
    await asyncio.sleep(SERVICE_SECONDS)
    if _journal is not None:
        _journal.write(text_hash(solution_str) + "\n")
    return expected_score(solution_str)
