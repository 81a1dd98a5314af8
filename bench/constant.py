"""A reward function that takes no time: a stand-in for a model, for benches of everything around it."""


async def compute_score(data_source: str, solution_str: str, ground_truth: str, extra_info: object) -> float:
    """Return the length of the solution in characters."""
    return float(len(solution_str))
