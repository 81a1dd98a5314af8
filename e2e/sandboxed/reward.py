"""A reward for code: the share of the sample's calls and assertions that pass in the sandbox.

`extra_info` has what `rewardpool.sandbox.run` takes. With `unguarded` in it the code's `attempt` is called in the
function's own process, without a sandbox: what a function of this pod can reach.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rewardpool.sandbox import Call, run

VERSION = 1
ANSWER = "the answer"

_SECRET = Path(os.environ["SECRET"]) if "SECRET" in os.environ else None
"""A file that the function may read and write, and code in its sandbox may not."""

if _SECRET is not None:
    _SECRET.write_text(ANSWER)


def compute_score(
    data_source: str, solution_str: str, ground_truth: object, extra_info: Mapping[str, Any]
) -> dict[str, Any]:
    """The share of what passes, with how it ended."""
    if "unguarded" in extra_info:
        return {"score": 0.0, "version": VERSION, "outcome": unguarded(solution_str), "message": ""}
    further = {**extra_info, "calls": [Call(**call) for call in extra_info.get("calls", ())]}
    verdict = run(solution_str, **further)
    return {
        "score": verdict.score,
        "version": VERSION,
        "outcome": verdict.outcome,
        "message": verdict.message,
        "secret_kept": _SECRET is None or _SECRET.read_text() == ANSWER,
    }


def unguarded(code: str) -> str:
    """What comes of an attempt without a sandbox."""
    names: dict[str, Any] = {}
    try:
        exec(code, names)
        names["attempt"]()
    except Exception:
        return "raised"
    return "reached"
