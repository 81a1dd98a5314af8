"""Description of one router program. Each has a module of its own; `programs.py` lists them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol


class Waiting(Protocol):
    """Works out how many requests wait, which no router says, from its metrics of one pass after the other."""

    def read(self, metrics: str, *, now: float) -> int | None:
        """Read the metrics (Prometheus text format) of `now` (monotonic seconds).

        Returns:
            Requests that are at no worker; None until a window has been seen, or when a figure is not a count.
        """


@dataclass(frozen=True, kw_only=True)
class RouterProgram:
    """A router that takes sglang-router's flags, serves its worker list at `/workers`, and counts as it does."""

    package: str
    """The Python package whose `launch_router` module starts it."""
    requirement: str
    waiting: Callable[[], Waiting]
    worker: Callable[[str], dict[str, Any]] = lambda _: {}
    flags: tuple[str, ...] = ()
    ipv6_host: str = "{}"
    """Format of an IPv6 address in `--host`."""
    settle_seconds: float = 0.0
    """Seconds for which it goes on taking requests after SIGTERM."""
