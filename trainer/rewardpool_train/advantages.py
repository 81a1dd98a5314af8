"""Advantages of groups: the responses to one prompt, compared with each other.

GRPO has no value network. The baseline of a response is the mean of its group (Shao et al. 2024, DeepSeekMath,
arXiv:2402.03300, section 4.1.2):

    A_i = (r_i - mean(r)) / (std(r) + epsilon)        r = scores of the group's responses

`rewardpool._rewards.mixture.normalized` computes it, and defines epsilon. The paper does not say which deviation it
means. The default is that of a population, which divides by n; verl and TRL use that of a sample, which divides by
n - 1, so their advantages are smaller: by 6.5 % in groups of 8.

So an advantage depends on the scores of the whole group and nothing else, and a group whose scores are complete can be
trained on while others still wait.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Literal

from rewardpool._rewards.mixture import Deviation, normalized
from rewardpool._rewards.score_noise import EPSILON, ScoreDtype, differ

LEAST_MEMBERS = 2  # scored responses; with fewer there is nothing to compare

AdvantageScale = Literal["group_std", "group_sample_std", "none"]
_DEVIATION: dict[AdvantageScale, Deviation] = {"group_std": "population", "group_sample_std": "sample"}


def group_advantages(
    scores: Sequence[float | None],
    *,
    scale: AdvantageScale = "group_std",
    only_informative: bool = False,
    min_members: int = LEAST_MEMBERS,
    dtype: ScoreDtype = "float32",
) -> list[float | None]:
    """Return the advantage of each response in its group.

    A response without a score (None) is left out of mean and deviation, and has no advantage. It never counts as a
    score of 0, which would be a verdict. With fewer than `min_members` scores no response has an advantage.

    Args:
        scores: Scores of one group.
        scale: `group_std` gives standard deviations of the group (that of a population), `group_sample_std` those of a
            sample, both 0 where scores do not `differ`; `none` the plain distance r_i - mean(r), because dividing
            favours groups whose scores hardly differ, the too easy and the too hard questions (Dr. GRPO, Liu et al.
            2025, arXiv:2503.20783, section 3.1).
        only_informative: Treat a group that is not `is_informative` as unscored.
        min_members: Minimum number of scores, at least 2.
        dtype: Dtype that the reward model computes in.
    """
    if not has_members(scores, min_members) or (only_informative and not is_informative(scores, dtype=dtype)):
        return [None] * len(scores)
    known = [score for score in scores if score is not None]
    if scale == "none":
        mean = math.fsum(known) / len(known)
        return [None if score is None else score - mean for score in scores]
    advantages = iter(normalized(known, dtype=dtype, deviation=_DEVIATION[scale]))
    return [None if score is None else next(advantages) for score in scores]


TokenReward = tuple[int, float]  # reward of a step: index of the response's token in which the step ends, and the value


def process_advantages(
    steps: Sequence[Sequence[TokenReward] | None],
    lengths: Sequence[int],
    *,
    scale: AdvantageScale = "group_std",
    only_informative: bool = False,
    min_members: int = LEAST_MEMBERS,
    dtype: ScoreDtype = "float32",
) -> list[list[float] | None]:
    """Return the advantage of each token, where every step of a response has a reward.

    Process supervision of GRPO (DeepSeekMath, section 4.1.3): the rewards of all steps of all responses are normalised
    together, and a token's advantage is the sum over the steps that end in it or after it. If each response has one
    step, the result is that of `group_advantages`.

    Args:
        steps: Rewards of each response of a group, in the order of its tokens, at least one; None for a response
            without a score.
        scale: See `group_advantages`.
        min_members: Minimum number of responses with rewards, at least 2.
        dtype: Dtype that the reward model computes in.

    Returns:
        For each response, one number per token.
    """
    values = [value for one in steps if one is not None for _, value in one]
    if not has_members(steps, min_members) or (only_informative and not is_informative(values, dtype=dtype)):
        return [None] * len(steps)
    normalised = iter(group_advantages(values, scale=scale, dtype=dtype))
    found: list[list[float] | None] = []
    for one, length in zip(steps, lengths, strict=True):
        if one is None:
            found.append(None)
            continue
        at_token: dict[int, list[float]] = {}
        for token, _ in one:
            at_token.setdefault(token, []).append(next(normalised) or 0.0)
        found.append(_sums_from_here(at_token, length))
    return found


def _sums_from_here(at_token: Mapping[int, Sequence[float]], length: int) -> list[float]:
    """Return for each token the sum of the values at it and after it."""
    total, backwards = 0.0, []
    for token in reversed(range(length)):
        total = math.fsum([total, *at_token.get(token, ())])
        backwards.append(total)
    return backwards[::-1]


def has_members(outcomes: Sequence[object | None], min_members: int = LEAST_MEMBERS) -> bool:
    """Return whether a group has enough outcomes to continue without its other responses."""
    return sum(outcome is not None for outcome in outcomes) >= max(min_members, LEAST_MEMBERS)


def is_informative(scores: Sequence[float | None], *, dtype: ScoreDtype = "float32") -> bool:
    """Return whether a group has a gradient: its scores differ by more than rounding, and by more than `EPSILON`.

    A group of equal scores has advantages of 0 and no gradient, but counts in the mini-batch's mean and so reduces the
    weight of the others. DAPO's dynamic sampling (Yu et al. 2025, arXiv:2503.14476, section 3.2) leaves it out, and
    samples another group in its place (`pipeline.dynamic_sampling`).
    """
    known = [score for score in scores if score is not None]
    return differ(known, dtype) and max(known) - min(known) > EPSILON
