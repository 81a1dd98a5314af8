"""`normalize: running`: scores are scaled by those of earlier steps, by one rule for all responses to a prompt.

    groups are trained on    count       the raw scores of their responses, on the rank that asked for them
    weights are published    advance     the ranks put together what they counted; it is frozen under the new version
    a response is rated      scale_of    by what was frozen under the version that its group was begun with

So a score is never scaled by itself or by a sibling, and neither the order in which answers come nor the number of
ranks changes a result: sums are exact fractions, which add up to the same whatever their order, and are rounded once.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Self

from rewardpool._rewards.mixture import Bounds, Scaling, clipped
from rewardpool._rewards.score_noise import float_step

# Called with what this rank has, returns what each rank has; all ranks call it at the same point of their work.
Together = Callable[[Any], Sequence[Any]]


# Versions whose moments are kept. A group is trained on at most `max_staleness` updates after it was begun, so at most
# 1000.
KEPT_VERSIONS = 1024


def alone(own: Any) -> Sequence[Any]:
    """Return what a job of one rank has together."""
    return [own]


@dataclass(frozen=True)
class Sums:
    """Exact sums of some scores, and of their squares."""

    count: int = 0
    total: Fraction = Fraction(0)
    squares: Fraction = Fraction(0)

    def __add__(self, other: "Sums") -> "Sums":
        return Sums(self.count + other.count, self.total + other.total, self.squares + other.squares)

    def scaling(self) -> Scaling:
        """Return what brings such scores to mean 0 and standard deviation 1 (that of a population)."""
        if not self.count:
            return Scaling()
        mean = self.total / self.count
        deviation = _root(self.squares / self.count - mean**2)
        # A deviation below a step of the scores' numbers is rounding.
        return Scaling(float(mean), deviation if deviation > float_step([float(mean)], "float32") else 1.0)

    def to_json(self) -> list[Any]:
        return [self.count, str(self.total), str(self.squares)]

    @classmethod
    def from_json(cls, data: Sequence[Any]) -> Self:
        return cls(int(data[0]), Fraction(data[1]), Fraction(data[2]))


class RunningMoments:
    """Mean and deviation of the scores of all earlier steps, for each part of a reward that is normalized by them.

    One thread may rate while another counts and advances.

    Args:
        clips: The bounds that each such part's scores are clipped to, or None, by the part's name.
    """

    def __init__(self, clips: Mapping[str, Bounds | None]) -> None:
        self._clips = dict(clips)
        self._counted = dict.fromkeys(self._clips, Sums())
        self._frozen = dict.fromkeys(self._clips, Sums())
        self._scalings: dict[int, dict[str, Scaling]] = {0: {}}

    def count(self, components: Mapping[str, float | None]) -> None:
        """Count a rating's raw scores, for later steps; None, where a part has no score, counts nothing."""
        for part, clip in self._clips.items():
            value = components.get(part)
            if value is not None:
                exact = Fraction(clipped(value, clip))
                self._counted[part] += Sums(1, exact, exact**2)

    def advance(self, version: int, *, together: Together = alone) -> None:
        """Freeze all that was counted, on all ranks, for groups that are begun under this version from now on."""
        # A job that goes on from a checkpoint publishes its weights once more, maybe between two publications: what it
        # counted since the last one waits for the next, as it would have.
        if version in self._scalings:
            return
        ranks = together({part: sums.to_json() for part, sums in self._counted.items()})
        self._frozen = {
            part: sum((Sums.from_json(rank[part]) for rank in ranks), start=sums) for part, sums in self._frozen.items()
        }
        self._counted = dict.fromkeys(self._clips, Sums())
        scalings = {part: sums.scaling() for part, sums in self._frozen.items()}
        newest = list(self._scalings.items())[1 - KEPT_VERSIONS :]
        self._scalings = {**dict(newest), version: scalings}  # a new one, as another thread may be reading

    def scale_of(self, part: str, version: int) -> Scaling:
        """Return how scores of groups that were begun under this version are scaled.

        Raises:
            ValueError: Nothing was frozen under it, or so long ago that it is forgotten.
        """
        try:
            return self._scalings[version].get(part, Scaling())
        except KeyError:
            known = ", ".join(map(str, sorted(self._scalings)))
            raise ValueError(f"there are no moments of version {version}; advance was called for {known}") from None

    def to_json(self, *, versions: Collection[int]) -> dict[str, Any]:
        """Return it as what JSON can express, for a checkpoint; `versions` are those of the groups in that."""
        return {
            "counted": {part: sums.to_json() for part, sums in self._counted.items()},
            "frozen": {part: sums.to_json() for part, sums in self._frozen.items()},
            "scalings": [
                [version, {part: [scaling.mean, scaling.std] for part, scaling in scalings.items()}]
                for version, scalings in self._scalings.items()
                if version in versions
            ],
        }

    def restore(self, data: Mapping[str, Any], *, version: int) -> None:
        """Go on from what `to_json` made, under this version; a part that it does not know begins anew."""
        for sums, key in ((self._counted, "counted"), (self._frozen, "frozen")):
            sums.update({part: Sums.from_json(data[key][part]) for part in self._clips if part in data[key]})
        self._scalings = {
            version: {part: Scaling(*numbers) for part, numbers in scalings.items()}
            for version, scalings in data["scalings"]
        }
        self._scalings[version] = {part: sums.scaling() for part, sums in self._frozen.items()}


def _root(square: Fraction) -> float:
    """Return the square root, which is a float also where the square is too large or too small for one."""
    if not square:
        return 0.0
    half = (square.numerator.bit_length() - square.denominator.bit_length()) // 2
    return math.ldexp(math.sqrt(square / Fraction(4) ** half), half)
