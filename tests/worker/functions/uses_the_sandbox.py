"""A function that uses the sandbox."""

import os
from typing import Any

import rewardpool.sandbox


def compute_score(solution_str: str, **_: Any) -> dict[str, Any]:
    return {"score": float(rewardpool.sandbox.__name__ == solution_str), "process": os.getpid()}
