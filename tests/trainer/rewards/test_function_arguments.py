"""A function means the same in the training job and in a pool: the same arguments and results, or a refusal."""

import asyncio
import datetime
import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.fake_worker import FakeWorker, says

from rewardpool import FunctionSample, InvalidSampleError, Pool, RewardConfig, Sample
from rewardpool._client.answer import read_scores
from rewardpool._client.rules.retry import RetryableError
from rewardpool._rewards import Episode, open_reward
from rewardpool_api.contract import DetailedScore, Echo, parse_answer
from rewardpool_runtime.functions.limits import CallLimits
from rewardpool_runtime.functions.outcome import FunctionArguments
from rewardpool_runtime.functions.threads import ThreadRunner
from rewardpool_worker.function_server import answer_item, parse_input


def in_the_job(episode: Episode) -> dict[str, Any]:
    """Arguments with which a part calls its function. Raises InvalidSampleError."""
    called: list[dict[str, Any]] = []

    async def function(**arguments: Any) -> float:
        called.append(arguments)
        return 1.0

    async def rate() -> None:
        async with open_reward({"function": function, "run_in": "threads"}) as reward:
            await reward.rate(episode)

    asyncio.run(rate())
    [arguments] = called
    return arguments


def in_a_pool(episode: Episode) -> dict[str, Any]:
    """Arguments that a worker reads from what the client sends. Raises InvalidSampleError."""
    function = FunctionSample(
        data_source=episode.data_source,
        solution_str=episode.response,
        ground_truth=episode.ground_truth,
        extra_info=episode.extra_info,
    )
    body = orjson.dumps({"model": "m", "input": Sample(function=function).to_input("it")})
    [sample] = parse_input(body, served="m")
    return {name: getattr(sample, name) for name in FunctionArguments.__dataclass_fields__}


ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.dates()
    | st.datetimes()
    | st.binary()
    | st.decimals(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text() | st.integers(), inner, max_size=3)
    ),
    max_leaves=8,
)


def outcome(call: Any, episode: Episode) -> Any:
    try:
        return repr(call(episode))  # tells types and the signs of zeros apart, and NaN from NaN not
    except InvalidSampleError as error:
        return error.problem


@given(truth=ANYTHING, extra=st.dictionaries(st.text(), ANYTHING, max_size=3), response=st.text())
def test_a_function_has_the_same_arguments_in_the_job_and_in_a_pool(truth: Any, extra: Any, response: str) -> None:
    episode = Episode(prompt="?", response=response, ground_truth=truth, extra_info=extra)
    assert outcome(in_the_job, episode) == outcome(in_a_pool, episode)


@pytest.mark.parametrize("call", [in_the_job, in_a_pool])
def test_missing_values_and_dates_of_a_parquet_row_pass_by_a_rule(call: Any) -> None:
    extra = {"index": 1, "level": float("nan"), "day": datetime.date(2026, 1, 2)}
    arguments = call(Episode(prompt="?", response="a", ground_truth=float("nan"), extra_info=extra))
    assert arguments["extra_info"] == {"index": 1, "level": None, "day": "2026-01-02"}
    assert arguments["ground_truth"] is None


@pytest.mark.parametrize("call", [in_the_job, in_a_pool])
@pytest.mark.parametrize(
    ("truth", "said"),
    [((3, 4), "ground_truth is a tuple"), ({1: "a"}, "ground_truth has the key 1"), ({1}, "ground_truth is a set")],
)
def test_what_json_would_change_is_refused_in_both(call: Any, truth: Any, said: str) -> None:
    with pytest.raises(InvalidSampleError, match=said):
        call(Episode(prompt="?", response="a", ground_truth=truth))


def returns(info: dict[str, Any]) -> Any:
    async def function(**_: Any) -> dict[str, Any]:
        return {"score": 1.0, **info}

    return function


async def test_what_a_function_returns_beside_its_score_is_the_same_from_both() -> None:
    returned = {"acc": True, "pred": "4", "steps": [1, 2.5], "day": datetime.date(2026, 1, 2), "pair": (1, 2)}
    async with open_reward(returns(returned)) as reward:
        rating = await reward.rate(Episode(prompt="?", response="a"))
    [info] = rating.info.values()
    body = orjson.dumps({"object": "list", "data": [answer_item(0, await returned_by(returned))]})
    [score] = parse_answer(body, count=1)  # type: ignore[misc]
    assert isinstance(score, DetailedScore)
    assert (score, score.info) == (1.0, info)
    assert info["acc"] is True
    assert "is a tuple" in info["left_out"]["pair"]


async def returned_by(info: dict[str, Any]) -> Any:
    runner = ThreadRunner(returns(info), limits=CallLimits())
    return await runner.run(FunctionArguments(data_source="", solution_str="a"))


def test_an_info_that_is_no_object_is_an_invalid_response() -> None:
    body = b'{"data": [{"index": 0, "embedding": [1.0], "info": [1]}]}'
    with pytest.raises(RetryableError, match=r"data\[0\].info is \[1\], not an object"):
        read_scores(200, body, "a", count=1, echo=Echo("r-1", is_required=False))


async def test_what_a_pools_function_returns_is_in_the_rating() -> None:
    answer = {"data": [{"index": 0, "embedding": [1.0], "info": {"acc": True, "pred": "4"}}]}
    async with FakeWorker(says(json.dumps(answer))) as worker:
        spec = {"url": worker.url, "type": "Function", "name": "rule"}
        async with open_reward(spec) as reward:
            rating = await reward.rate(Episode(prompt="?", response="4"))
    assert (rating.total, rating.info) == (1.0, {"rule": {"acc": True, "pred": "4"}})


async def test_a_sample_that_is_scored_has_what_the_function_returned() -> None:
    answer = {"data": [{"index": 0, "embedding": [1.0], "info": {"acc": True}}]}
    function = FunctionSample(data_source="", solution_str="4", ground_truth=None)
    async with FakeWorker(says(json.dumps(answer))) as worker, Pool(RewardConfig(url=worker.url)) as pool:
        scored = await pool.scored(Sample(function=function))
    assert (scored.value, scored.info) == (1.0, {"acc": True})
