"""The reward function: the share of three values at which the response, run in the sandbox, is right."""

from typing import Any

from rewardpool.sandbox import Call, run


def compute_score(data_source: str, solution_str: str, ground_truth: int, extra_info: dict[str, Any]) -> dict[str, Any]:
    """Return the score of an expression of x that should be `ground_truth` times x, and how its run ended."""
    code = f"def f(x):\n    return {solution_str}"
    calls = [Call(function="f", args=(x,), expected=ground_truth * x) for x in (11, 13, 17)]
    verdict = run(code, calls=calls, cpu_seconds=0.2, idle_seconds=0.5)
    return {"score": verdict.score, "outcome": verdict.outcome}
