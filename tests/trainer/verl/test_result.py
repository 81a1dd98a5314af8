import json
import math
from typing import Any

import pytest

from rewardpool._rewards import Rating
from rewardpool.errors import FunctionFailedError, SampleTooLongError, ScoreError
from rewardpool.verl.function_pool import checked_result
from rewardpool.verl.result import score_and_extra_info
from rewardpool.verl.settings import OWN_NAMES


def test_every_component_stands_beside_the_total() -> None:
    rating = Rating(total=1.5, components={"skywork": 1.0, "rule": 0.5}, info={"rule": {"acc": True}})
    score, extra = score_and_extra_info(rating, label="a")
    assert score == 1.5
    assert json.loads(extra.pop("said")) == {"rule": {"acc": True}}
    assert extra == {
        "score": 1.5,
        "unscored": 0.0,
        "fault": "",
        "failure": "",
        "component/skywork": 1.0,
        "component/rule": 0.5,
    }


def test_a_penalty_is_marked_with_its_fault_and_the_missing_component_is_not_a_number() -> None:
    failed = Rating(total=-1.0, components={"skywork": None}, error=SampleTooLongError("a", 9, 5))
    score, extra = score_and_extra_info(failed, label="a")
    assert (score, extra["unscored"]) == (-1.0, 1.0)
    assert (extra["fault"], extra["failure"]) == ("policy", "sample_too_long")
    assert math.isnan(extra["component/skywork"])


def test_the_names_and_types_are_the_same_for_every_sample() -> None:
    scored = Rating(total=1.0, components={"judge": 1.0}, info={"judge": {"words": "good"}})
    failed = Rating(total=0.0, components={"judge": None}, error=ScoreError("a", "not a number"))
    [one, other] = [score_and_extra_info(rating, label="a")[1] for rating in (scored, failed)]
    assert [(name, type(value)) for name, value in one.items()] == [
        (name, type(value)) for name, value in other.items()
    ]


def test_a_rating_without_a_total_is_an_error() -> None:
    with pytest.raises(ScoreError, match="no total"):
        score_and_extra_info(Rating(total=None, components={"skywork": None}), label="a")


RETURNED = {"rule": {"acc": True, "pred": "4", "steps": [1, 2]}, "other": {"acc": False}}


def test_what_functions_return_is_a_name_of_its_own_where_that_is_asked_for() -> None:
    rating = Rating(total=1.0, components={"rule": 1.0, "other": 0.0}, info=RETURNED)
    _, extra = score_and_extra_info(rating, label="a", info=["acc", "pred", "steps"])
    assert (extra["acc"], extra["pred"], extra["steps"]) == (True, "4", "[1, 2]")


def test_a_sample_without_it_has_the_name_all_the_same() -> None:
    rating = Rating(total=0.0, components={"rule": None}, info={"rule": {"pred": None}})
    _, extra = score_and_extra_info(rating, label="a", info=["acc", "pred"])
    assert math.isnan(extra["acc"])
    assert math.isnan(extra["pred"])


def test_no_name_that_the_adapter_writes_can_be_taken_by_what_a_function_returns() -> None:
    _, extra = score_and_extra_info(Rating(total=1.0, components={"rule": 1.0}), label="a")
    assert {name for name in extra if not name.startswith("component/")} == OWN_NAMES


@pytest.mark.parametrize("score", [None, "good", math.nan, math.inf, pytest.param(10**400, id="huge")])
def test_what_a_function_of_the_users_own_gives_is_a_finite_number(score: Any) -> None:
    with pytest.raises(FunctionFailedError, match="not a finite number"):
        checked_result({"reward_score": score})
