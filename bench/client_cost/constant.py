"""A reward function that returns a constant: what verl and Ray cost alone, the ceiling of their path."""

import asyncio
from collections.abc import Mapping
from typing import Any


async def compute_score(
    data_source: str, solution_str: str, ground_truth: Any, extra_info: Mapping[str, Any], **_of_verl: Any
) -> float:
    """Wait for as long as a worker would, and return 1."""
    if extra_info["service_ms"]:
        await asyncio.sleep(extra_info["service_ms"] / 1000)
    return 1.0
