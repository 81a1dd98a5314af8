"""What the figures shall be, and whether they are. Pure."""

from collections.abc import Mapping
from typing import Any, Final

LONGEST_SECONDS: Final[Mapping[str, float]] = {
    "function_local": 1.5,
    "parked_local": 0.2,
    "function_cluster": 4.0,
    "parked_cluster": 0.2,
}
"""By part: what the median of a first score shall be at most."""
LEAST_WARM: Final = 0.99
"""Of announced bursts."""
LOCAL: Final = ("function_local", "parked_local")
VLLM: Final = "vllm_cluster"
WARM: Final = "warm_bursts"
PARTS: Final = (*LOCAL, "function_cluster", "parked_cluster", VLLM, WARM)
"""Of the result's file."""


def aims(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """All aims that the result has figures for."""
    found = [_at_most(part, result[part]["seconds"]["median"]) for part in LONGEST_SECONDS if part in result]
    if WARM in result:
        share = result[WARM]["warm"] / result[WARM]["of"]
        found.append({"what": WARM, "measured": share, "aim": f">= {LEAST_WARM:g}", "met": share >= LEAST_WARM})
    return found


def _at_most(part: str, median: float) -> dict[str, Any]:
    most = LONGEST_SECONDS[part]
    return {"what": part, "measured": median, "aim": f"<= {most:g} s", "met": median <= most}
