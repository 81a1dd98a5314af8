"""The function of the pools that are measured; its score is the text's length."""

from collections.abc import Mapping
from typing import Any


def compute_score(data_source: str, solution_str: str, ground_truth: Any, extra_info: Mapping[str, Any]) -> float:
    """The number of characters."""
    return float(len(solution_str))
