"""What the figures shall be, and whether they are. Pure."""

from collections.abc import Mapping
from typing import Any, Final

LEAST_RATIOS: Final[Mapping[str, float]] = {
    "client/direct": 0.95,
    "engine/uvicorn": 0.9,
    "engine/uvicorn_standard": 0.9,
}
"""By name of a ratio: what its median shall be at least."""
PARTS: Final = ("functions", "vllm", "sglang")
"""Of the result's file, each with a list of settings."""


def title(setting: Mapping[str, Any]) -> str:
    """A setting for people."""
    if "function" in setting:
        return str(setting["function"])
    return f"{setting['model']}, {setting['replicas']} replica{'s' * (setting['replicas'] > 1)}"


def aims(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """All aims that the result has figures for, as its file tells them."""
    return [
        _aim(name, f"{part}, {title(setting)}", setting["ratios"][name]["median"])
        for part in PARTS
        for setting in result.get(part, ())
        for name in LEAST_RATIOS
        if name in setting["ratios"]
    ]


def _aim(name: str, where: str, median: float) -> dict[str, Any]:
    least = LEAST_RATIOS[name]
    return {"what": name, "where": where, "measured": median, "aim": f">= {least:g}", "met": median >= least}
