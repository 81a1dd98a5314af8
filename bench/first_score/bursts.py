"""What became of announced bursts: how many found their pool warm. Pure."""

import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

AT_ONCE_SECONDS: Final = 0.05
"""The first pause of a router that has no worker: what took less found one, and the status was only not written yet."""
NO_START_SECONDS: Final = 1.0
"""A first score that took longer is no warm one, whatever the status says."""


@dataclass(frozen=True, kw_only=True)
class Burst:
    """One burst, as `burst_job` prints it."""

    pool: str
    burst: int
    announced: bool
    ready: int
    least_ready: int
    first_seconds: float
    wrong: Sequence[str]

    @property
    def is_warm(self) -> bool:
        """Whether its pool served when it began."""
        return self.first_seconds < (NO_START_SECONDS if self.ready else AT_ONCE_SECONDS)


def read(log: str) -> list[Burst]:
    """The bursts of the job's output, in which other lines may be."""
    return [Burst(**json.loads(line)) for line in log.splitlines() if line.startswith('{"pool"')]


def warm_bursts(bursts: Sequence[Burst]) -> dict[str, Any]:
    """The entry of all announced bursts.

    Raises:
        ValueError: a sample has no score, or another one's; or no burst was announced.
    """
    wrong = [f"{burst.pool}, burst {burst.burst}: {words}" for burst in bursts for words in burst.wrong]
    if wrong:
        raise ValueError(f"{len(wrong)} samples were not scored as they should, such as {wrong[0]}")
    announced = [burst for burst in bursts if burst.announced]
    if not announced:
        raise ValueError("no burst was announced")
    firsts = [burst.first_seconds for burst in announced]
    return {
        "of": len(announced),
        "warm": sum(burst.is_warm for burst in announced),
        "warm_by_status": sum(burst.ready > 0 for burst in announced),
        "from_zero": sum(burst.least_ready == 0 for burst in announced),
        "first_seconds": {"median": round(statistics.median(firsts), 3), "max": max(firsts)},
        "cold": [asdict(burst) for burst in announced if not burst.is_warm],
    }
