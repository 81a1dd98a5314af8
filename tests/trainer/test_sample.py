import json
import pickle
from typing import Any

import pytest

from rewardpool import FunctionSample, Sample
from rewardpool.errors import DeadlineError, InvalidSampleError, RewardPoolError, SampleTooLongError, ScoreError


@pytest.mark.parametrize("parts", [{}, {"text": "a", "token_ids": [1]}, {"token_ids": []}])
def test_a_sample_is_exactly_one_thing(parts: dict[str, object]) -> None:
    with pytest.raises(InvalidSampleError):
        Sample(**parts, id="s")  # type: ignore[arg-type]


def test_token_ids_are_sent_as_plain_numbers() -> None:
    assert Sample(token_ids=range(3)).to_input("s") == [0, 1, 2]


def test_a_function_sample_travels_as_one_json_string() -> None:
    function = FunctionSample(data_source="gsm8k", solution_str="5", ground_truth=5, extra_info={"turns": 1})
    sent = Sample(function=function).to_input("s")
    assert json.loads(str(sent)) == {
        "data_source": "gsm8k",
        "solution_str": "5",
        "ground_truth": 5,
        "extra_info": {"turns": 1},
    }


@pytest.mark.parametrize("value", [float("inf"), object(), {1, 2}, (1, 2), {1: 2}])
def test_a_value_that_json_cannot_hold_is_refused_before_it_is_sent(value: object) -> None:
    sample = Sample(function=FunctionSample(data_source="d", solution_str="s", ground_truth=value))
    with pytest.raises(InvalidSampleError, match=r"sample 3: ground_truth (is|has) "):
        sample.to_input("3")


@pytest.mark.parametrize(
    "parts",
    [
        {"text": "a\ud83d"},
        {"function": FunctionSample(data_source="d", solution_str="a\ud83d", ground_truth=None)},
    ],
)
def test_half_a_character_is_refused_before_it_is_sent(parts: Any) -> None:
    with pytest.raises(InvalidSampleError, match=r"sample 3: (solution_str )?has '\\ud83d' in it, a lone surrogate"):
        Sample(**parts).to_input("3")


@pytest.mark.parametrize(
    "error",
    [
        SampleTooLongError("s", 5, None),
        DeadlineError("s", 1.5, 3, "HTTP 503"),
        ScoreError("s", "not a number"),
        ScoreError("s", "the judge is silent", fault="verifier"),
        DeadlineError("s", 2.0, 0, "no worker", fault="capacity"),
    ],
)
def test_an_error_survives_pickling(error: RewardPoolError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), vars(copy)) == (type(error), str(error), vars(error))
