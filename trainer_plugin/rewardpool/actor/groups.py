"""Groups: the responses to one prompt, judged against each other.

GRPO has no value network. The baseline of a response is what its siblings got (Shao et al. 2024, DeepSeekMath,
arXiv:2402.03300, section 4.1.2):

    A_i = (r_i - mean(r)) / std(r)        r = scores of the group's responses

So an advantage needs the scores of the whole group and nothing else, and a group whose scores are complete can be
trained on while others still wait. Plain Python: a group is a handful of numbers.
"""

import math
import statistics
from collections.abc import Sequence
from typing import Literal

SMALLEST_SPREAD = 1e-4
"""Added to the standard deviation. Equal responses can differ by some 1e-7 in score, depending on who shared their
batch at the server; without it, that noise would be blown up to advantages of 1."""

AdvantageScale = Literal["group_std", "none"]


def group_advantages(
    scores: Sequence[float | None], *, scale: AdvantageScale = "group_std", only_informative: bool = False
) -> list[float | None]:
    """Return how much better than its siblings each response did.

    None stands for a response without a score: it is left out of the group, and has no advantage. It never counts as
    a score of 0, which would be a verdict. A response with no scored sibling has nothing to be compared with: 0.0.

    Args:
        scores: Of one group.
        scale: `group_std` gives standard deviations of the group (of the population), as above; `none` the plain
            distance r_i - mean(r), because dividing favours groups that are almost of one mind, the too easy and the
            too hard questions (Dr. GRPO, Liu et al. 2025, arXiv:2503.20783, section 3.1).
        only_informative: Whether a group that `is_informative` denies is left out, as if it were unscored.
    """
    if only_informative and not is_informative(scores):
        return [None] * len(scores)
    known = [score for score in scores if score is not None]
    if len(known) < 2:
        return [None if score is None else 0.0 for score in scores]
    mean = math.fsum(known) / len(known)
    spread = statistics.pstdev(known, mu=mean) + SMALLEST_SPREAD if scale == "group_std" else 1.0
    return [None if score is None else (score - mean) / spread for score in scores]


def is_informative(scores: Sequence[float | None]) -> bool:
    """Return whether a group can teach anything: its scores differ by more than noise.

    A group of equal scores has advantages of 0 and no gradient, and yet would count in the mini-batch's mean, so that
    the others weigh less. DAPO's dynamic sampling (Yu et al. 2025, arXiv:2503.14476, section 3.2) leaves it out, and
    samples another group in its place (`pipeline.dynamic_sampling`).
    """
    known = [score for score in scores if score is not None]
    return len(known) > 1 and max(known) - min(known) > SMALLEST_SPREAD
