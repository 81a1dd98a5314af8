"""The reward function of the pool `arithmetic`: whether the sum is right."""

import re
from typing import Any

NUMBER = re.compile(r"\d+")


async def compute_score(data_source: str, solution_str: str, ground_truth: int, extra_info: dict[str, Any]) -> float:
    """Return 1.0 where the last number of the answer is the sum, else 0.0."""
    numbers = NUMBER.findall(solution_str)
    return float(bool(numbers) and int(numbers[-1][:6]) == ground_truth)
