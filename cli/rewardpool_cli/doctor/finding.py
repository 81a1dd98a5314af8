"""One line of what the doctor says; pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "warning", "missing", "failed"]
"""`warning`: it works, and something may go wrong. `failed`: it is there and does not work, or that is unknown."""
Place = Literal["machine", "cluster"]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """Result of one check.

    Raises:
        ValueError: something is not ok, and has no remedy.
    """

    place: Place
    name: str
    state: State
    found: str
    remedy: str = ""
    essential: bool = False

    def __post_init__(self) -> None:
        if self.state != "ok" and not self.remedy:
            raise ValueError(f"{self.name} is {self.state}, and no remedy is given")


def broken(findings: Iterable[Finding], needed: Place) -> list[Finding]:
    """Those that keep pools of that place from being used: essential, and missing or failed."""
    return [
        finding
        for finding in findings
        if finding.place == needed and finding.essential and finding.state in ("missing", "failed")
    ]
