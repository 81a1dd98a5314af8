"""Whether the members of a group that have a score have the advantages of a group without the others."""

import random
from collections.abc import Sequence
from typing import Any, Final, get_args

from blame import oracle
from rewardpool import Episode, Rating, Reward
from rewardpool_train.advantages import LEAST_MEMBERS, AdvantageScale, group_advantages, has_members

SCALES: Final[tuple[AdvantageScale, ...]] = get_args(AdvantageScale)


def largest_difference(failed: Sequence[Sequence[bool]], rng: random.Random) -> dict[AdvantageScale, float]:
    """Return the most by which an advantage differs from the oracle's, for each scale."""
    worst: dict[AdvantageScale, float] = dict.fromkeys(SCALES, 0.0)
    for group in failed:
        scores = [rng.gauss(-2.0, 1.5) for _ in group]
        known = [None if is_failed else score for score, is_failed in zip(scores, group, strict=True)]
        for scale in SCALES:
            worst[scale] = max(worst[scale], _difference(known, group_advantages(known, scale=scale), scale))
    return worst


def _difference(scores: Sequence[float | None], advantages: Sequence[float | None], scale: AdvantageScale) -> float:
    if not has_members(scores, LEAST_MEMBERS):
        return 0.0 if set(advantages) == {None} else float("inf")
    if [score is None for score in scores] != [advantage is None for advantage in advantages]:
        return float("inf")
    expected = oracle.advantages([score for score in scores if score is not None], scale)
    found = [advantage for advantage in advantages if advantage is not None]
    return max(abs(one - other) for one, other in zip(expected, found, strict=True))


def _value(data_source: str, solution_str: str, ground_truth: Any, extra_info: Any) -> float:
    return float(solution_str)


def _flaky(data_source: str, solution_str: str, ground_truth: bool, extra_info: Any) -> float:
    if ground_truth:
        raise ConnectionError("no answer")
    return 1.0


def largest_difference_of_mixtures(failed: Sequence[Sequence[bool]], rng: random.Random) -> float:
    """Return the same for totals of a real mixture: a part with `normalize: group` beside a part that fails."""
    parts = [{"function": _value, "name": "value", "normalize": "group"}, {"function": _flaky, "name": "flaky"}]
    worst = 0.0
    with Reward({"rewards": parts, "on_failure": "skip"}, progress=False) as reward:
        for number, group in enumerate(failed):
            scores = [rng.gauss(-2.0, 1.5) for _ in group]
            episodes = [
                Episode(prompt="p", response=repr(score), ground_truth=is_failed, group=number)
                for score, is_failed in zip(scores, group, strict=True)
            ]
            worst = max(worst, _difference_of_totals(scores, group, reward.rate(episodes)))
    return worst


def _difference_of_totals(scores: Sequence[float], failed: Sequence[bool], ratings: Sequence[Rating]) -> float:
    if [rating.total is None for rating in ratings] != list(failed):
        return float("inf")
    known = [score for score, is_failed in zip(scores, failed, strict=True) if not is_failed]
    expected = [advantage + 1.0 for advantage in oracle.advantages(known, "group_std")]
    found = [rating.total for rating in ratings if rating.total is not None]
    return max(abs(one - other) for one, other in zip(expected, found, strict=True))
