"""Judges: what they are asked, what is made of their answers, and when they are asked again."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.scripted_judge import ScriptedJudge

from rewardpool._rewards import Episode
from rewardpool._rewards.judges.judge import PointwiseScorer, ReferenceScorer, decide
from rewardpool._rewards.part_config import JudgeConfig
from rewardpool._rewards.reward_function import PartScore
from rewardpool.errors import InvalidSampleError, ScoreError

EPISODE = Episode(
    prompt=[
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello"},
        {"role": "user", "content": "What is 2 + 2?"},
    ],
    response="4 {reference}",
    ground_truth=4,
    extra_info={"level": "easy"},
    id="e1",
)


def says(*answers: str) -> Callable[..., str]:
    """The answers in turn."""
    left = list(answers)
    return lambda *_: left.pop(0)


async def pointwise(judge: ScriptedJudge, **config: Any) -> PartScore:
    return await PointwiseScorer(judge, JudgeConfig(**config)).score(EPISODE)


async def test_the_question_has_the_conversation_the_response_and_how_to_answer() -> None:
    judge = ScriptedJudge(says('{"reasoning": "right", "score": 9}'))
    score = await pointwise(judge, system="You are strict.")
    [(messages, _)] = judge.asked
    assert [message["role"] for message in messages] == ["system", "user"]
    question = messages[1]["content"]
    assert "user: What is 2 + 2?" in question
    assert re.search(r"\[Response (\w{12})\]\n4 \{reference\}\n\[End \1\]", question)
    assert "a whole number from 1 to 10" in question
    assert score.value == 9
    assert score.info == {"votes": [9.0], "words": ['{"reasoning": "right", "score": 9}'], "requests": 1}


async def test_a_prompt_of_ones_own_is_filled_from_the_episode() -> None:
    judge = ScriptedJudge(says("Score: 3"))
    prompt = "{question}|{response}|{reference}|{extra_info[level]}|{low}-{high}"
    await pointwise(judge, prompt=prompt, output="text", range=(0, 5))
    assert judge.asked[0][0][-1]["content"] == "What is 2 + 2?|4 {reference}|4|easy|0-5"


@pytest.mark.parametrize(
    ("prompt", "lacks"), [("{response}{reference}", "ground_truth"), ("{response}{extra_info[a]}", "'a'")]
)
async def test_an_episode_without_what_the_prompt_names_is_refused_unasked(prompt: str, lacks: str) -> None:
    judge = ScriptedJudge(says())
    scorer = PointwiseScorer(judge, JudgeConfig(prompt=prompt))
    with pytest.raises(InvalidSampleError, match=lacks):
        await scorer.score(Episode(prompt="?", response="!"))
    assert judge.asked == []


async def test_an_unreadable_answer_is_asked_for_again_with_another_seed_and_some_heat() -> None:
    judge = ScriptedJudge(says("hm", '{"score": 11}', '{"score": 7}'))
    score = await pointwise(judge, seed=5, retries=2)
    assert (score.value, score.info["requests"]) == (7, 3)
    assert [(asked["seed"], asked["temperature"]) for _, asked in judge.asked] == [(5, 0.0), (6, 0.7), (7, 0.7)]


async def test_answers_that_stay_unreadable_are_an_error_that_quotes_the_last_one() -> None:
    judge = ScriptedJudge(says("hm", "well"))
    with pytest.raises(ScoreError, match=r"sample e1: .* 2 times; last: it is not one JSON object .*: 'well'"):
        await pointwise(judge, retries=1)


async def test_votes_are_asked_with_seeds_of_their_own_and_decided() -> None:
    judge = ScriptedJudge(says("Score: 2", "Score: 9", "nothing", "Score: 8"))
    score = await pointwise(judge, votes=3, vote="median", output="text")
    assert score.value == 8
    assert sorted(score.info["votes"]) == [2, 8, 9]
    assert len({asked["seed"] for _, asked in judge.asked}) == 4
    assert judge.asked[0][1]["temperature"] == 0.7


async def test_labels_stand_for_scores() -> None:
    judge = ScriptedJudge(says('"wrong"'))
    score = await pointwise(judge, output="choice", labels={"correct": 1, "wrong": -1})
    assert score.value == -1
    schema = judge.asked[0][1]["response_format"]["json_schema"]["schema"]
    assert schema == {"type": "string", "enum": ["correct", "wrong"]}


@pytest.mark.parametrize(
    ("votes", "how", "value"),
    [
        ([1, 2, 9], "median", 2),
        ([1, 2], "median", 1.5),
        ([1, 2, 9], "mean", 4),
        ([1, 1, 9], "majority", 1),
        ([1, 1, 9, 9, 3], "majority", 5),
    ],
)
def test_votes_are_decided_as_configured(votes: list[float], how: str, value: float) -> None:
    assert decide(votes, how) == value


@given(
    st.lists(st.floats(0, 10), min_size=1, max_size=9), st.sampled_from(["median", "mean", "majority"]), st.randoms()
)
def test_a_decision_lies_among_the_votes_whatever_their_order(votes: list[float], how: str, random: Any) -> None:
    decision = decide(votes, how)
    shuffled = random.sample(votes, len(votes))
    assert decide(shuffled, how) == pytest.approx(decision)
    assert min(votes) - 1e-9 <= decision <= max(votes) + 1e-9


def prefers(answer: str) -> Callable[[str, Any], str]:
    """A judge that finds that response better wherever it stands."""

    def verdict(question: str, _: Any) -> str:
        first = re.search(rf"\[Response A \w+\]\n{answer}\n", question) is not None
        return json.dumps({"reasoning": "", "winner": "A" if first else "B"})

    return verdict


@pytest.mark.parametrize(
    ("answer", "value"),
    [
        (prefers("4"), 1.0),
        (prefers("the reference"), 0.0),
        (lambda *_: '{"winner": "A"}', 0.5),
        (lambda *_: '{"winner": "B"}', 0.5),
        (lambda *_: '{"winner": "tie"}', 0.5),
    ],
)
async def test_a_judge_that_likes_a_place_has_no_say_in_a_comparison(answer: Any, value: float) -> None:
    judge = ScriptedJudge(answer)
    config = JudgeConfig(mode="pairwise", against="reference")
    episode = Episode(prompt="?", response="4", ground_truth="the reference")
    assert (await ReferenceScorer(judge, config).score(episode)).value == value
    assert len(judge.asked) == 2


async def test_a_comparison_with_a_reference_needs_one() -> None:
    scorer = ReferenceScorer(ScriptedJudge(says()), JudgeConfig(mode="pairwise", against="reference"))
    with pytest.raises(InvalidSampleError, match="ground_truth"):
        await scorer.score(Episode(prompt="?", response="4"))
