"""What the figures shall be, and whether they are. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from client_cost.figures import Setting, setting_of

LEAST_RATIOS: Final[Mapping[str, float]] = {
    "client/verl_stock": 3.5,
    "plugin/constant streaming": 0.9,
    "plugin/constant batch": 0.9,
    "plugin_model/constant streaming": 0.9,
    "plugin_model/constant batch": 0.9,
    "inline/constant streaming": 1.0,
    "inline_model/constant streaming": 1.0,
}
"""By name of a ratio: what its median shall be at least, in every setting."""
LEAST_BESIDE_SESSION: Final[Mapping[int, float]] = {64: 1.0, 1024: 0.95, 4096: 0.95, 16_384: 0.9}
"""By samples in flight: `client/session`."""
LEAST_AUTO: Final = 0.95
"""`client_auto/session`: it never loses."""
LEAST_BATCHED: Final = 1.5
"""The same, and `client_batched/session`, where nothing but requests takes time and more samples wait than are in
flight."""
LEAST_LAST_FIFTH: Final = 0.95
FIRST_SECONDS: Final = 1.0
"""Until the first answer, with 16,384 in flight."""
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
    for one in settings:
        setting = setting_of(one)
        for name, found in one["ratios"].items():
            least = _least(name, setting)
            if least is not None:
                median = found["median"]
                yield Aim(what=name, where=setting.title, measured=median, aim=f">= {least:g}", met=median >= least)
        client = one["ways"].get("client", {})
        if "last_fifth" in client:
            share = client["last_fifth"]["median"]
            aim = f">= {LEAST_LAST_FIFTH:g}"
            yield Aim(
                what="the client's last fifth",
                where=setting.title,
                measured=share,
                aim=aim,
                met=share >= LEAST_LAST_FIFTH,
            )
        if setting.concurrency == max(LEAST_BESIDE_SESSION) and "first_ms" in client:
            first = client["first_ms"]["median"] / 1000
            aim = f"<= {FIRST_SECONDS:g}"
            yield Aim(what="first answer, s", where=setting.title, measured=first, aim=aim, met=first <= FIRST_SECONDS)


def _least(ratio: str, setting: Setting) -> float | None:
    match ratio:
        case "client/session":
            return LEAST_BESIDE_SESSION.get(setting.concurrency)
        case "client_batched/session" | "client_auto/session":
            if (setting.service_ms, setting.concurrency, setting.kind) == (0, 64, "text"):
                return LEAST_BATCHED
            return LEAST_AUTO if ratio == "client_auto/session" else None
        case _:
            return LEAST_RATIOS.get(ratio)


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
