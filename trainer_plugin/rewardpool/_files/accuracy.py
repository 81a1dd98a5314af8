"""Accuracy of a reward on pairs with a known better answer, by subset, as RewardBench counts it. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rewardpool._files.forms import CHOSEN, REJECTED

NO_SUBSET = "(none)"


@dataclass
class PairTally:
    """Counts of pairs.

    Attributes:
        right: The chosen answer has the higher score.
        wrong: The rejected one has it.
        ties: Both have the same, which is not right.
        unscored: One of them has none, so that the pair says nothing.
    """

    right: int = 0
    wrong: int = 0
    ties: int = 0
    unscored: int = 0

    @property
    def pairs(self) -> int:
        return self.right + self.wrong + self.ties + self.unscored

    @property
    def accuracy(self) -> float | None:
        """The share of right ones among the pairs with scores; None where there are none."""
        scored = self.pairs - self.unscored
        return self.right / scored if scored else None

    def add(self, chosen: float | None, rejected: float | None) -> None:
        if chosen is None or rejected is None:
            self.unscored += 1
        elif chosen == rejected:
            self.ties += 1
        else:
            self.right += chosen > rejected
            self.wrong += chosen < rejected


class Accuracy:
    """Counts pairs by subset, as their records come."""

    def __init__(self) -> None:
        self.subsets: dict[str, PairTally] = {}
        self.all = PairTally()

    def add(self, record: Mapping[str, Any]) -> None:
        scores = record[CHOSEN]["score"], record[REJECTED]["score"]
        self.subsets.setdefault(str(record.get("subset", NO_SUBSET)), PairTally()).add(*scores)
        self.all.add(*scores)

    @property
    def mean(self) -> float | None:
        """The mean of the subsets' accuracies; None where one has none."""
        each = [tally.accuracy for tally in self.subsets.values()]
        known = [one for one in each if one is not None]
        return sum(known) / len(known) if known and len(known) == len(each) else None
