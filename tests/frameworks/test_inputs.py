"""What real pandas and torch hold, as a function's arguments and results and as rows."""

import math
from typing import Any

import pandas
import pytest
import torch

import rewardpool
from rewardpool_runtime.functions.outcome import Failed, FunctionScore, read_result
from rewardpool_runtime.json_values import NotJsonError, json_value


@pytest.mark.parametrize(
    ("value", "as_json"),
    [
        (pandas.NA, None),
        (pandas.NaT, None),
        (pandas.Timestamp("2026-01-02 03:04:05.000000006", tz="UTC"), "2026-01-02T03:04:05.000000006+00:00"),
        (pandas.Series([1.5, math.nan]), [1.5, None]),
        (pandas.Series(pandas.to_datetime(["2026-01-02", None])), ["2026-01-02T00:00:00", None]),
        (pandas.Series({"level": 1, "id": "a"}), {"level": 1, "id": "a"}),
        (pandas.Series([1, 2], index=[7, 9]), [1, 2]),
        (pandas.Series([1, None], dtype="Int64"), [1, None]),
        (torch.tensor([[1, 2], [3, 4]]), [[1, 2], [3, 4]]),
        (torch.tensor(0.5, dtype=torch.bfloat16), 0.5),
        (torch.tensor(0.5, requires_grad=True), 0.5),
    ],
)
def test_values_become_json_by_a_rule(value: Any, as_json: Any) -> None:
    assert json_value(value, "extra_info") == as_json


@pytest.mark.parametrize("value", [pandas.Timedelta(1), pandas.DataFrame({"a": [1]}), torch.tensor(1j)])
def test_other_values_are_refused_by_name(value: Any) -> None:
    with pytest.raises(NotJsonError, match=f"extra_info is an? {type(value).__name__}|complex"):
        json_value(value, "extra_info")


@pytest.mark.parametrize(
    ("result", "score"),
    [
        (torch.tensor(0.5), 0.5),
        (torch.tensor(True), 1.0),
        (torch.tensor(2), 2.0),
        (torch.tensor(0.5, dtype=torch.bfloat16, requires_grad=True), 0.5),
    ],
)
def test_a_scalar_of_torch_is_a_score(result: Any, score: float) -> None:
    assert read_result(result) == FunctionScore(score)
    assert read_result({"score": result, "acc": result}) == FunctionScore(score, {"acc": score})


@pytest.mark.parametrize("result", [torch.tensor([0.5]), torch.tensor(math.nan), torch.tensor(1j)])
def test_any_other_tensor_is_not_one(result: Any) -> None:
    assert isinstance(read_result(result), Failed)


def right(solution_str: str, ground_truth: str, extra_info: dict[str, Any], **_: Any) -> dict[str, Any]:
    return {"score": solution_str == ground_truth, "level": extra_info["level"]}


RIGHT = {"function": right, "run_in": "threads"}
"""In processes it would import this module, and torch and pandas with it."""

FRAME = pandas.DataFrame(
    {"prompt": ["a?", "b?"], "response": ["1", "2"], "ground_truth": ["1", "3"], "extra_info": [{"level": 1}] * 2}
)


def test_a_frame_is_scored_by_its_columns_and_by_its_rows() -> None:
    with rewardpool.Reward(RIGHT) as reward:
        by_columns = reward(
            FRAME["prompt"], FRAME["response"], ground_truth=FRAME["ground_truth"], extra_info=FRAME["extra_info"]
        )
        by_records = [rating.total for rating in reward.rate(FRAME.to_dict("records"))]
        by_rows = [rating.total for rating in reward.rate(row for _, row in FRAME.iterrows())]
    assert by_columns == by_records == by_rows == [1.0, 0.0]


def test_a_frame_itself_is_refused_with_the_way_to_its_rows() -> None:
    with rewardpool.Reward(RIGHT) as reward, pytest.raises(TypeError, match=r'give frame\.to_dict\("records"\)'):
        reward.rate(FRAME)  # type: ignore[arg-type]


def test_messages_of_a_parquet_file_are_read(tmp_path: Any) -> None:
    messages = [{"role": "user", "content": "one?"}]
    pandas.DataFrame({"prompt": [messages], "extra_info": [{"level": 1, "split": None}]}).to_parquet(tmp_path / "a")
    read = pandas.read_parquet(tmp_path / "a")
    with rewardpool.Reward(RIGHT) as reward:
        [score] = reward(read["prompt"], ["4"], ground_truth=["4"], extra_info=read["extra_info"])
    assert score == 1.0
