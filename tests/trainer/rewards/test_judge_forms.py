"""Judges that write no answer, that answer by a rubric, and that rate several responses in one prompt."""

import asyncio
import json
import re
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from support.scripted_judge import ScriptedJudge

from rewardpool._client.answer import read_first_token
from rewardpool._client.rules.retry import RetryableError
from rewardpool._rewards import Episode
from rewardpool._rewards.judges.judge import PointwiseScorer, ReferenceScorer
from rewardpool._rewards.judges.listwise import ListComparer, tables_of
from rewardpool._rewards.part_config import JudgeConfig
from rewardpool._rewards.reward_function import PartScore
from rewardpool.errors import SampleError, SampleTooLongError, ScoreError

EPISODE = Episode(prompt="?", response="4", ground_truth="the reference", id="e1")
NAN = float("nan")
YES_NO = {"yes": 1, "no": 0}
RUBRIC = [{"name": "right", "says": "The result is 4.", "weight": 3}, {"name": "short", "says": "One word."}]


def unasked(*_: Any) -> str:
    raise AssertionError("nothing is to be written")


def by_probabilities(shares: Mapping[str, float]) -> ScriptedJudge:
    judge = ScriptedJudge(unasked)
    judge.probabilities = lambda _: shares
    return judge


@pytest.mark.parametrize(
    ("shares", "config", "value"),
    [
        ({"yes": 0.6, "no": 0.2, "hm": 0.2}, {"labels": YES_NO}, 0.75),
        ({"Yes": 0.3, " yes": 0.3, "No": 0.2}, {"labels": YES_NO}, 0.75),
        ({"1": 0.5, "5": 0.5, "7": 1e-9}, {"range": (1, 5)}, 3.0),
    ],
)
async def test_without_writing_the_score_is_the_mean_of_the_answers_by_their_probabilities(
    shares: Any, config: Any, value: float
) -> None:
    judge = by_probabilities(shares)
    score = await PointwiseScorer(judge, JudgeConfig(output="probabilities", **config)).score(EPISODE)
    assert score.value == pytest.approx(value)
    [(_, sampling)] = judge.asked
    assert (sampling["max_tokens"], sampling["logprobs"], sampling["top_logprobs"]) == (1, True, 20)


@pytest.mark.parametrize("shares", [{"Well": 0.7, "yes": 0.2}, {"<think>": 1.0}, {}])
async def test_a_judge_that_was_about_to_write_something_else_has_no_score(shares: Any) -> None:
    judge = by_probabilities(shares)
    with pytest.raises(ScoreError, match="sample e1: the judge's probabilities say nothing"):
        await PointwiseScorer(judge, JudgeConfig(output="probabilities", labels=YES_NO)).score(EPISODE)
    assert len(judge.asked) == 1


async def test_what_a_judge_likes_about_a_place_cancels_out_of_probabilities_too() -> None:
    judge = ScriptedJudge(unasked)
    config = JudgeConfig(mode="pairwise", against="reference", output="probabilities")
    for first, second, value in [(0.9, 0.9, 0.5), (0.9, 0.3, 0.8)]:
        shown_first = {True: first, False: second}

        def shares(question: str, shown: Mapping[bool, float] = shown_first) -> dict[str, float]:
            a = shown[re.search(r"\[Response A \w+\]\n4", question) is not None]
            return {"A": a, "B": 1 - a}

        judge.probabilities = shares
        assert (await ReferenceScorer(judge, config).score(EPISODE)).value == pytest.approx(value)


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ({"output": "probabilities"}, "'1' begins '10'"),
        ({"output": "probabilities", "labels": {"good": 1, "goodness": 0}}, "'good' begins 'goodness'"),
        ({"labels": {"Good": 1, "good": 0}}, "more than case"),
        ({"form": "[[{answer}]]"}, "form is for output text"),
        ({"output": "text", "form": "[[X]]"}, "once and text before it"),
        ({"mode": "pairwise", "labels": {"A": 1, "B": -1}}, "from 0 to 1"),
        ({"reasoning": {"tags": ["<think>", ""]}}, "at least 1 character"),
        ({"output": "probabilities", "range": (0, 99)}, "at most 20 answers, not 100"),
        ({"output": "probabilities", "labels": YES_NO, "votes": 3}, "asks once: leave out votes"),
        ({"rubric": RUBRIC, "output": "text"}, "rubric is for mode pointwise and output json"),
        ({"rubric": [RUBRIC[0], RUBRIC[0]]}, "two criteria of one name"),
        ({"mode": "listwise", "labels": YES_NO}, "listwise takes a range"),
        ({"together": 4}, "together is for mode listwise"),
        ({"mode": "listwise", "prompt": "{response}"}, "unknown field {response}"),
        ({"rubric": RUBRIC, "prompt": "{response}"}, "must have the field {rubric}"),
    ],
)
def test_what_does_not_go_together_is_refused_when_the_config_is_read(config: Any, problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        JudgeConfig(**config)


ANSWERS = [{"token": "yes", "logprob": -0.1}, {"token": "no", "logprob": -3.0}]


def completion(alternatives: Any) -> bytes:
    return json.dumps({"choices": [{"logprobs": {"content": [{"top_logprobs": alternatives}]}}]}).encode()


def test_the_probabilities_of_the_first_token_are_read() -> None:
    assert read_first_token(200, completion(ANSWERS), "s") == [("yes", -0.1), ("no", -3.0)]


@pytest.mark.parametrize(
    "alternatives", [[], None, [{"token": "yes"}], *([{"token": "yes", "logprob": one}] for one in (NAN, -(10**400)))]
)
def test_an_answer_without_probabilities_is_an_invalid_response(alternatives: Any) -> None:
    with pytest.raises(RetryableError, match="no probabilities"):
        read_first_token(200, completion(alternatives), "s")
    with pytest.raises(RetryableError):
        read_first_token(200, b'{"choices": [{"logprobs": null}]}', "s")


async def test_a_rubrics_score_is_the_mean_of_its_answers_by_their_weights() -> None:
    judge = ScriptedJudge(lambda *_: '{"reasoning": "", "score": {"right": 10, "short": 2}}')
    score = await PointwiseScorer(judge, JudgeConfig(rubric=RUBRIC)).score(EPISODE)
    assert score.value == (3 * 10 + 2) / 4
    messages, sampling = judge.asked[0]
    assert "- right: The result is 4.\n- short: One word." in messages[-1]["content"]
    schema = sampling["response_format"]["json_schema"]["schema"]["properties"]["score"]
    assert (schema["required"], schema["additionalProperties"]) == (["right", "short"], False)


@pytest.mark.parametrize(
    "answer", ['{"right": 10}', '{"right": 10, "short": 11}', '{"right": 1, "short": 1, "x": 1}', "7"]
)
async def test_a_rubric_with_a_missing_answer_has_no_score(answer: str) -> None:
    judge = ScriptedJudge(lambda *_: f'{{"score": {answer}}}')
    with pytest.raises(ScoreError, match="3 times"):
        await PointwiseScorer(judge, JudgeConfig(rubric=RUBRIC)).score(EPISODE)


RESPONSES = re.compile(r"\[Response \d+ \w+\]\n(-?\d+)")


def by_quality(question: str, _: Any) -> str:
    """A fair judge of responses that are their own score."""
    return json.dumps({"reasoning": "", "scores": [int(number) for number in RESPONSES.findall(question)]})


def rated(answer: Any, qualities: list[int], **config: Any) -> list[PartScore | SampleError]:
    comparer = ListComparer(ScriptedJudge(answer), JudgeConfig(mode="listwise", retries=0, **config))
    episodes = [Episode(prompt="?", response=str(quality), id=f"e{quality}") for quality in qualities]
    return asyncio.run(comparer.compare(episodes))


def values(scores: list[Any]) -> list[float]:
    return [score.value for score in scores]


@given(st.lists(st.integers(1, 10), min_size=1, max_size=20), st.integers(2, 9), st.integers(1, 4))
def test_each_response_gets_the_score_that_was_given_to_it(qualities: list[int], together: int, votes: int) -> None:
    assert values(rated(by_quality, qualities, together=together, votes=votes)) == qualities


@given(st.integers(1, 100), st.integers(2, 64))
def test_tables_have_everybody_once_and_are_even(members: int, together: int) -> None:
    tables = tables_of(members, together)
    assert [index for table in tables for index in table] == list(range(members))
    sizes = {len(table) for table in tables}
    assert max(sizes) <= together
    assert max(sizes) - min(sizes) <= 1


def test_with_a_vote_in_every_order_a_place_counts_for_nothing() -> None:
    places = '{"scores": [9, 5, 1]}'
    assert values(rated(lambda *_: places, [4, 4, 4], votes=3, vote="mean")) == [5, 5, 5]


def test_a_list_of_another_length_leaves_its_table_unscored_and_no_other() -> None:
    def short(question: str, sampling: Any) -> str:
        return '{"scores": [1]}' if "]\n7\n" in question else by_quality(question, sampling)

    first, second, third, fourth = rated(short, [7, 2, 3, 4], together=2)
    assert isinstance(first, ScoreError)
    assert isinstance(second, ScoreError)
    assert values([third, fourth]) == [3, 4]


def test_a_list_that_is_too_long_is_no_fault_of_those_it_has() -> None:
    def too_long(*_: Any) -> str:
        raise SampleTooLongError("e1", 9000, 4096)

    assert [score.fault for score in rated(too_long, [1, 2]) if isinstance(score, SampleError)] == ["verifier"] * 2


@pytest.mark.parametrize("text", ["Scores: \\boxed{7, 3}", "I give [1, 2] no,\n$\\boxed{ 7,3 }$."])
def test_a_judge_that_writes_freely_may_box_its_scores(text: str) -> None:
    assert values(rated(lambda *_: text, [1, 2], output="text", form="\\boxed{{answer}}")) == [7, 3]
