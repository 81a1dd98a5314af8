"""Rewards a response whose answer is mathematically equal to the right one, by math-verify."""

from math_verify import parse, verify


def compute_score(data_source: str, solution_str: str, ground_truth: str, extra_info: dict[str, str]) -> float:
    """The score of one response, 1.0 or 0.0; `ground_truth` is LaTeX."""
    # Without alarms: they go by elapsed time, so that a busy machine makes right answers wrong, and raise in threads.
    right = parse(f"${ground_truth}$", parsing_timeout=None)
    if not right:
        raise ValueError(f"math-verify cannot read the right answer, {ground_truth!r}")
    return float(verify(right, parse(solution_str, parsing_timeout=None), timeout_seconds=None))


# sympy loads most of itself when it is first needed: here, so that no call has to.
compute_score("", "$(x + 1)^2$", "x^2 + 2x + 1", {})
