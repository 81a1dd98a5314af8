"""A reward function that takes as long as its sample says: a stand-in for a judge, imported by the pool's workers."""

import asyncio
from typing import Any


async def compute_score(data_source: str, solution_str: str, ground_truth: float, extra_info: dict[str, Any]) -> float:
    """Sleep `extra_info["seconds"]`, then return `ground_truth`."""
    await asyncio.sleep(extra_info["seconds"])
    return ground_truth
