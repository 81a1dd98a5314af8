"""The second protocol: a judge of pairs, which every group waits for as a whole. Pure.

Each response of a group of 8 is compared with 4 others, its nearest on a ring, in both orders; its score is the share
that it wins. A comparison takes 20 s in the middle and 120 s at the 99th percentile, lognormal, and never longer than
240 s, where a judge's `max_tokens` would end it. A group waits for the longest of its 32: 95 s in the middle.

Steps have the GPUs' work of the published run, and about as many calls: 128 groups are 4,096 of them.
"""

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from rewardpool._rewards.judges.pairwise import pairs_of
from training_step.protocol import AT_ONCE, ELASTIC, Protocol

GROUPS: Final = 128
SIZE: Final = 8
OPPONENTS: Final = 4
MEDIAN_SECONDS: Final = 20.0
P99_SECONDS: Final = 120.0
LONGEST_SECONDS: Final = 240.0
STANDARD_NORMAL_P99: Final = 2.3263


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One question to the judge.

    Attributes:
        first: Member that is shown first.
        second: The other one.
        wins: What the judge says: 1 where the first one is better, else 0.
        seconds: That it takes.
    """

    first: int
    second: int
    wins: float
    seconds: float


@dataclass(frozen=True, kw_only=True)
class PairProtocol(Protocol):
    """One step of it, every time divided by `factor`."""

    prompts: int = GROUPS
    name = "pairs"
    answers = SIZE
    whole_prompts = GROUPS
    # Two steps: within one, the longest comparisons of a step are not over.
    max_staleness = 8
    pools = (ELASTIC, AT_ONCE)

    def comparisons(self, *, group: int) -> Iterator[Comparison]:
        """All questions about a group."""
        rng = random.Random(f"{self.seed}/{group}")
        rank = self._ranks(group)
        spread = math.log(P99_SECONDS / MEDIAN_SECONDS) / STANDARD_NORMAL_P99
        for one, other in pairs_of(SIZE, OPPONENTS):
            for first, second in ((one, other), (other, one)):
                seconds = min(LONGEST_SECONDS, MEDIAN_SECONDS * math.exp(rng.gauss(0.0, spread)))
                wins = float(rank[first] > rank[second])
                yield Comparison(first=first, second=second, wins=wins, seconds=seconds / self.factor)

    def score(self, *, group: int, member: int) -> float:
        """The share of its comparisons that a member wins."""
        rank = self._ranks(group)
        met = [pair for pair in pairs_of(SIZE, OPPONENTS) if member in pair]
        return sum(rank[member] == max(rank[one], rank[other]) for one, other in met) / len(met)

    def _ranks(self, group: int) -> list[int]:
        return random.Random(f"{self.seed}/{group}/ranks").sample(range(SIZE), SIZE)
