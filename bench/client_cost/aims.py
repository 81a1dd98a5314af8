"""What the figures shall be, and whether they are. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from client_cost.figures import Setting

LEAST_RATIOS: Final[Mapping[str, float]] = {
    "client/session": 0.95,
    "client_batched/session": 1.5,
    "client/verl_stock": 3.5,
    "plugin/constant streaming": 0.95,
    "plugin/constant batch": 0.95,
    "plugin_model/constant streaming": 0.95,
    "plugin_model/constant batch": 0.95,
    "inline/constant streaming": 1.0,
    "inline_model/constant streaming": 1.0,
}
"""By name of a ratio: what its median shall be at least."""
SLOWEST_SECONDS: Final = 1.0
"""Of the client's samples while a worker dies."""


@dataclass(frozen=True, kw_only=True)
class Aim:
    """One figure beside what it shall be."""

    what: str
    where: str
    measured: float
    aim: str
    met: bool


def aims(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """All aims that the result has figures for, as its file tells them."""
    found = [*_ratios(result.get("http") or ()), *_ratios(result.get("verl") or ()), *_kill(result.get("kill") or {})]
    return [asdict(aim) for aim in found]


def _ratios(settings: Sequence[Mapping[str, Any]]) -> Iterator[Aim]:
    for name, least in LEAST_RATIOS.items():
        for one in settings:
            if name in one["ratios"]:
                setting = Setting(service_ms=one["service_ms"], concurrency=one["concurrency"])
                median = one["ratios"][name]["median"]
                yield Aim(what=name, where=setting.title, measured=median, aim=f">= {least:g}", met=median >= least)


def _kill(kill: Mapping[str, Any]) -> Iterator[Aim]:
    for play in kill.get("client", ()):
        slowest, lost = play["slowest_seconds"], play["lost"]
        yield Aim(
            what="slowest sample, s",
            where=f"{play['victim']} of the workers killed, {lost} lost",
            measured=slowest,
            aim=f"<= {SLOWEST_SECONDS:g}, 0 lost",
            met=slowest <= SLOWEST_SECONDS and lost == 0,
        )
