"""What the figures shall be, and whether they are. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from rewardpool_train.pipeline.schedule import SCHEDULES
from training_step.pairs import PairProtocol
from training_step.protocol import ELASTIC, FIXED

BOTH_FIXED: Final = -0.32
BOTH_ELASTIC: Final = -0.65
OVERHEAD: Final = 0.01
"""Of the best step over the GPUs' own work."""
GROUPS_OVERHEAD: Final = 0.03
"""The same where groups are judged as a whole."""


@dataclass(frozen=True, kw_only=True)
class Aim:
    """One figure beside what it shall be; the smaller, the better."""

    what: str
    measured: float
    aim: float

    @property
    def met(self) -> bool:
        """Whether it is."""
        return self.measured <= self.aim


def vs(seconds: float, baseline: float) -> float:
    """How much longer than the baseline, as a share of it; -0.32 is 32 % less."""
    return round(seconds / baseline - 1, 4)


def aims(result: Mapping[str, Any]) -> Iterator[Aim]:
    """All aims of a result that have figures."""
    both = result.get("one_step_off_minibatch", {})
    for pool, aim in ((FIXED, BOTH_FIXED), (ELASTIC, BOTH_ELASTIC)):
        if (share := both.get(pool, {}).get("vs_sync")) is not None:
            yield Aim(what=f"both, {pool}: beside sync with {FIXED}", measured=share, aim=aim)
    yield from _overhead(result, result["floor_seconds"], aim=OVERHEAD, what="")
    yield from _overhead(
        result.get(PairProtocol.name, {}), result["floor_seconds"], aim=GROUPS_OVERHEAD, what="pairs, "
    )


def _overhead(figures: Mapping[str, Any], floor_seconds: float, *, aim: float, what: str) -> Iterator[Aim]:
    """That of the best schedule, by a protocol's figures."""
    elastic = {
        name: figures[name][ELASTIC]["step_seconds"]
        for name in SCHEDULES
        if ELASTIC in figures.get(name, {}) and name != "sync"
    }
    if elastic:
        best = min(elastic, key=lambda name: elastic[name])
        overhead = vs(elastic[best], floor_seconds)
        yield Aim(what=f"{what}{best}, {ELASTIC}: beside the GPUs' own work", measured=overhead, aim=aim)
