"""From a Rating to what verl takes of a reward manager. Pure.

verl reads the names of `reward_extra_info` from the first sample of a batch and looks every one of them up in all the
others, so each sample has the same names, and each name one type: a part without a score has NaN there.
"""

import json
import math
from typing import Any

from rewardpool.errors import ScoreError
from rewardpool.rewards.rating import Rating


def score_and_extra_info(rating: Rating, *, label: str) -> tuple[float, dict[str, Any]]:
    """The reward, and what verl logs beside it.

    `score`: the reward. `unscored`: 1 where a constant stands for a score, else 0. `component/NAME`: the raw score of
    each part. `said`: what the parts said beside their scores, as JSON, such as a judge's words; "" for nothing.

    Raises:
        ScoreError: The rating has no total.
    """
    if rating.total is None:
        raise ScoreError(label, "the reward has no total for it, and verl takes a number for every sample")
    extra: dict[str, Any] = {"score": rating.total, "unscored": float(rating.error is not None)}
    for name, value in rating.components.items():
        extra[f"component/{name}"] = math.nan if value is None else value
    extra["said"] = json.dumps(rating.info, default=str, ensure_ascii=False) if rating.info else ""
    return rating.total, extra
