"""The model of these tests: a function with a fixed service time, whose every score is known beforehand."""

import asyncio
import hashlib
import os
import time
from collections.abc import Mapping
from typing import Any

SERVICE_SECONDS = float(os.environ.get("SERVICE_SECONDS", "0.05"))

# A slow start, as of a model that is loaded, for faults that need one.
time.sleep(float(os.environ.get("START_SECONDS", "0")))


def expected_score(text: str) -> float:
    """A number from -1 to 1 that stands for the text, the same in every process."""
    digest = hashlib.sha256(text.encode()).digest()
    return int.from_bytes(digest[:6], "big") / 2**47 - 1.0


async def compute_score(data_source: str, solution_str: str, ground_truth: Any, extra_info: Mapping[str, Any]) -> float:
    """The text's number after the service time, however many are at work."""
    await asyncio.sleep(SERVICE_SECONDS)
    return expected_score(solution_str)
