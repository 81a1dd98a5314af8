"""Conversion of a Rating to the result of a reward manager of verl. Pure.

verl reads the names of `reward_extra_info` from the first sample of a batch and looks every one of them up in all the
others, so each sample has the same names, and each name one type: a part without a score has NaN there.
"""

import json
import math
from collections.abc import Sequence
from typing import Any

from rewardpool._rewards.rating import Rating
from rewardpool.errors import ScoreError


def score_and_extra_info(rating: Rating, *, label: str, info: Sequence[str] = ()) -> tuple[float, dict[str, Any]]:
    """Return the reward, and what verl logs with it.

    `score`: the reward. `unscored`: 1 where a penalty stands for a score, else 0. `fault` and `failure`: the fault and
    the kind of that failure, "" for none. `component/NAME`: the raw score of each part. `said`: what the parts said
    beside their scores, as JSON, such as a judge's words; "" for nothing.

    Args:
        info: Keys of what functions return beside their score, each of which is a name of its own: the value of the
            first part that has it; NaN where none has, or where it is null; lists and mappings as JSON.

    Raises:
        ScoreError: The rating has no total.
    """
    if rating.total is None:
        problem = "the reward has no total for it, and verl takes a number for every sample"
        raise rating.error or ScoreError(label, problem, fault="verifier")
    extra: dict[str, Any] = {"score": rating.total, "unscored": float(rating.error is not None)}
    extra["fault"] = rating.error.fault if rating.error is not None else ""
    extra["failure"] = rating.error.kind if rating.error is not None else ""
    for name, value in rating.components.items():
        extra[f"component/{name}"] = math.nan if value is None else value
    for name in info:
        extra[name] = _named(name, rating)
    extra["said"] = json.dumps(rating.info, default=str, ensure_ascii=False) if rating.info else ""
    return rating.total, extra


def _named(name: str, rating: Rating) -> Any:
    value = next((said[name] for said in rating.info.values() if said.get(name) is not None), math.nan)
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) else value
