"""What the figures shall be, and whether they are. Pure."""

from collections.abc import Mapping
from typing import Any, Final

LEAST_BYTES: Final = 6.0
"""Of nested JSON's bytes, over RewardPool's."""
LEAST_TIME: Final = 8.0
"""The same of either end's time, by the standard library's JSON, as engines and TRL have it, at the largest size."""
LEAST_CLIENT: Final = 0.95
"""Requests a second of the client, over those of a bare session."""
MOST_HEALTH: Final = 1.5
"""Seconds of the slowest answer of a teacher's `/health`."""


def aims(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """All aims that the result has figures for, as its file tells them."""
    found = []
    wires = result.get("wires", [])
    for size in wires[-1:]:  # the largest
        where = f"{size['positions']} positions, k {size['top_k']}"
        found.append(_aim("bytes", where, size["bytes"]["json"] / size["bytes"]["rewardpool"], LEAST_BYTES))
        for end in ("server", "client"):
            ratio = size["seconds"]["json"][end] / size["seconds"]["rewardpool"][end]
            found.append(_aim(f"{end} time", where, ratio, LEAST_TIME))
    for size in result.get("client", []):
        where = f"{size['positions']} positions, k {size['top_k']}, {size['at_once']} at once"
        found.append(_aim("client/bare session", where, size["ratio"], LEAST_CLIENT))
    if "health" in result:
        one = result["health"]
        slowest = one["health_seconds"]["slowest"]
        where = f"{one['positions']} positions, k {one['top_k']}, {one['at_once']} at once, vLLM"
        aim = {"what": "/health, slowest", "where": where, "measured": slowest, "aim": f"<= {MOST_HEALTH:g} s"}
        found.append({**aim, "met": slowest <= MOST_HEALTH})
    return found


def _aim(name: str, where: str, measured: float, least: float) -> dict[str, Any]:
    return {"what": name, "where": where, "measured": measured, "aim": f">= {least:g}", "met": measured >= least}
