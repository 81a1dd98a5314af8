"""Reward functions that the real function server serves in tests."""

import asyncio
import hashlib
from collections.abc import Mapping
from typing import Any


def expected_score(solution_str: str) -> float:
    """A number between -1 and 1 that stands for the text, the same in every process."""
    digest = hashlib.sha256(solution_str.encode()).digest()
    return int.from_bytes(digest[:6], "big") / 2**47 - 1.0


async def compute_score(data_source: str, solution_str: str, ground_truth: str, extra_info: Mapping[str, Any]) -> float:
    """The text's number, after as many seconds as the sample asks for; raises for an empty text."""
    await asyncio.sleep(extra_info.get("seconds", 0.0))
    if not solution_str:
        raise ValueError("there is no solution to score")
    return expected_score(solution_str)


async def compute_other_score(
    data_source: str, solution_str: str, ground_truth: str, extra_info: Mapping[str, Any]
) -> float:
    """Another judge: half a point more for every text."""
    return await compute_score(data_source, solution_str, ground_truth, extra_info) + 0.5
