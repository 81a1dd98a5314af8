"""Agreement of two scores of the same rows: their differences, and their order within groups. Pure."""

import math
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Final

from rewardpool._files.ledger import BEFORE, GROUP, PART

# Rows of one group that are compared with each other; pairs grow by the square.
MOST_OF_A_GROUP: Final = 512


@dataclass(frozen=True, kw_only=True)
class ScoreAgreement:
    """Agreement of scores with earlier ones.

    Attributes:
        rows: That were scored again.
        both: Rows with a score then and now; the others are in nothing below.
        gained: Rows that had no score and have one now.
        lost: Rows that had one and have none now.
        equal: Of `both`, those whose score is the same.
        mean_difference: Of the scores, now minus before; None where `both` is 0, or no float is as large.
        mean_abs_difference: The same without the sign.
        max_abs_difference: The largest of these.
        groups: Prompts with two rows or more that differed before.
        pairs: Of rows of one group whose scores differed before.
        same_order: Pairs that are in the same order now.
        tied: Pairs whose scores are equal now.
    """

    rows: int
    both: int
    gained: int
    lost: int
    equal: int
    mean_difference: float | None
    mean_abs_difference: float | None
    max_abs_difference: float | None
    groups: int
    pairs: int
    same_order: int
    tied: int

    @property
    def kendall(self) -> float | None:
        """Kendall's rank correlation within groups: 1 for the same order, -1 for the reverse; None without pairs."""
        return _kendall(self.pairs, self.same_order, self.tied)


class AgreementCounter:
    """Takes in records one by one; keeps two numbers of each, by group."""

    def __init__(self) -> None:
        self._groups: dict[str, array[float]] = {}
        self._rows = 0
        self._gained = 0
        self._lost = 0

    def add(self, record: Mapping[str, Any]) -> None:
        """Take in a row that carries the score from before."""
        before, now = record.get(BEFORE), _now(record)
        self._rows += 1
        if before is None or now is None:
            self._gained += before is None and now is not None
            self._lost += before is not None and now is None
            return
        self._groups.setdefault(record[GROUP], array("d")).extend((before, now))

    def groups(self) -> list[list[tuple[float, float]]]:
        """The scores before and now of the rows that have both, by group."""
        return [list(zip(found[::2], found[1::2], strict=True)) for found in self._groups.values()]

    def agreement(self) -> ScoreAgreement:
        groups = self.groups()
        # Quarters: the difference of two scores, and a sum of such means, may be larger than any float.
        quarters = [now / 4 - before / 4 for group in groups for before, now in group]
        counts = [_order(group[:MOST_OF_A_GROUP]) for group in groups]
        return ScoreAgreement(
            rows=self._rows,
            both=len(quarters),
            gained=self._gained,
            lost=self._lost,
            equal=sum(before == now for group in groups for before, now in group),
            mean_difference=_mean_of_quarters(quarters),
            mean_abs_difference=_mean_of_quarters([abs(one) for one in quarters]),
            max_abs_difference=_of_quarter(max(map(abs, quarters), default=None)),
            groups=sum(pairs > 0 for pairs, _, _ in counts),
            pairs=sum(pairs for pairs, _, _ in counts),
            same_order=sum(same for _, same, _ in counts),
            tied=sum(tied for _, _, tied in counts),
        )


def kendall_of(group: Sequence[tuple[float, float]]) -> float | None:
    """Return the rank correlation of one group's scores before and now; None where no pair differed before."""
    return _kendall(*_order(group[:MOST_OF_A_GROUP]))


def _mean_of_quarters(quarters: Sequence[float]) -> float | None:
    return _of_quarter(math.fsum(one / len(quarters) for one in quarters) if quarters else None)


def _of_quarter(quarter: float | None) -> float | None:
    """Return four times that; None where no float is as large."""
    return None if quarter is None or math.isinf(found := 4 * quarter) else found


def _kendall(pairs: int, same: int, tied: int) -> float | None:
    return (2 * same + tied - pairs) / pairs if pairs else None


def _now(record: Mapping[str, Any]) -> float | None:
    """Return the raw score of the compared part; that of a reward with one part, whatever it is called there."""
    components: Mapping[str, float | None] = record.get("components", {})
    return next(iter(components.values())) if len(components) == 1 else components.get(record[PART])


def _order(group: Sequence[tuple[float, float]]) -> tuple[int, int, int]:
    """Return the pairs of a group that differed before, those in the same order now, and those that are equal now."""
    pairs = same = tied = 0
    for (before, now), (other_before, other_now) in combinations(group, 2):
        if before != other_before:
            pairs += 1
            tied += now == other_now
            same += (before < other_before and now < other_now) or (before > other_before and now > other_now)
    return pairs, same, tied
