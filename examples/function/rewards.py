"""A reward function, as a pool serves it: what it rewards is an answer that has the right one in it, and is short."""

from typing import Any


def compute_score(data_source: str, solution_str: str, ground_truth: str, extra_info: dict[str, Any] | None) -> float:
    """The score of one response, with verl's four arguments."""
    del data_source, extra_info
    return float(ground_truth in solution_str) - 0.001 * len(solution_str)
