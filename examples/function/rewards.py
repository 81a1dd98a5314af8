"""Rewards a response that has the right answer in it, and is short."""


def compute_score(data_source: str, solution_str: str, ground_truth: str, extra_info: dict[str, str] | None) -> float:
    """The score of one response, with verl's four arguments."""
    return float(ground_truth in solution_str) - 0.001 * len(solution_str)
