"""The function of the bench's pool."""

import hashlib
from typing import Any


def expected(response: str) -> float:
    """Return a number between -1 and 1 that stands for the text."""
    return int.from_bytes(hashlib.sha256(response.encode()).digest()[:6], "big") / 2**47 - 1.0


async def score(data_source: str, solution_str: str, ground_truth: Any, extra_info: Any) -> float:
    """Return the text's number."""
    return expected(solution_str)
