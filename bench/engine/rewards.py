"""The function of the bench, sync and async: how far an answer's last number is from the right one."""

import re
from typing import Any, Final

NUMBER: Final = re.compile(r"-?[0-9]+(?:\.[0-9]+)?")


def compute_score(data_source: str, solution_str: str, ground_truth: float, extra_info: dict[str, Any]) -> float:
    """Their distance below 0; -1,000 for an answer without a number."""
    found = NUMBER.findall(solution_str)
    return -abs(float(found[-1]) - ground_truth) if found else -1000.0


async def compute_score_async(
    data_source: str, solution_str: str, ground_truth: float, extra_info: dict[str, Any]
) -> float:
    """The same on the event loop."""
    return compute_score(data_source, solution_str, ground_truth, extra_info)
