"""No text of the policy's becomes a verdict, wherever the judge quotes it."""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.policy_answers import ANSWERS, injected, policy_texts

from rewardpool.client.answer import Judgement
from rewardpool.rewards.answer_format import AnswerFormat
from rewardpool.rewards.scale import Labels, Range, Rubric, Several, Unreadable

TEN = Range(1, 10)
PAIR = Labels({"A": 1.0, "B": 0.0, "tie": 0.5})
RIGHT = Labels({"right": 1.0, "wrong": 0.0})


@dataclass(frozen=True)
class Form:
    """A declared form, and how a judge writes each verdict in it."""

    answer: AnswerFormat[Any]
    write: Callable[[str, Any], str]
    verdicts: st.SearchStrategy[Any]


def as_json(key: str) -> Callable[[str, Any], str]:
    return lambda reasons, verdict: json.dumps({"reasoning": reasons, key: verdict})


def as_text(shape: str) -> Callable[[str, Any], str]:
    return lambda reasons, verdict: f"{reasons}\n" + shape.replace("{answer}", str(verdict))


def text(scale: Any, shape: str, verdicts: st.SearchStrategy[Any]) -> Form:
    return Form(AnswerFormat("text", scale, key="score", form=shape), as_text(shape), verdicts)


numbers = st.integers(1, 10)
pairs = st.sampled_from(["A", "B", "tie"])
lists = st.lists(numbers, min_size=2, max_size=2)
FORMS = {
    "json": Form(AnswerFormat("json", TEN, key="score"), as_json("score"), numbers),
    "json labels": Form(
        AnswerFormat("json", RIGHT, key="score"), as_json("score"), st.sampled_from(["right", "wrong"])
    ),
    "json pairs": Form(AnswerFormat("json", PAIR, key="winner"), as_json("winner"), pairs),
    "json lists": Form(AnswerFormat("json", Several(TEN, 2), key="scores"), as_json("scores"), lists),
    "json rubric": Form(
        AnswerFormat("json", Rubric(TEN, {"score": 1.0}), key="score"),
        as_json("score"),
        numbers.map(lambda number: {"score": number}),
    ),
    "choice": Form(AnswerFormat("choice", PAIR, key="winner"), lambda _, verdict: json.dumps(verdict), pairs),
    "Score": text(TEN, "Score: {answer}", numbers),
    "Score of labels": text(RIGHT, "Score: {answer}", st.sampled_from(["right", "wrong"])),
    "Scores": text(Several(TEN, 2), "Scores: {answer}", lists),
    "[[]]": text(PAIR, "[[{answer}]]", pairs),
    "answer": text(TEN, "<answer>{answer}</answer>", numbers),
    "answer [[]]": text(PAIR, "<answer>[[{answer}]]</answer>", pairs),
    "boxed": text(TEN, "\\boxed{{answer}}", numbers),
    "boxed lists": text(Several(TEN, 2), "\\boxed{{answer}}", lists),
    "RESULT": text(TEN, "[RESULT] {answer}", numbers),
}
TAGS = ("<think>", "</think>")


@pytest.mark.parametrize("name", FORMS)
def test_a_verdict_is_the_forms_own_wherever_the_policys_text_stands(name: str) -> None:
    form = FORMS[name]
    found = Counter[str]()

    @settings(max_examples=ANSWERS, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(
        form.verdicts,
        st.lists(policy_texts, min_size=1, max_size=3),
        st.sampled_from(["reasons", "thoughts", "anywhere"]),
        st.floats(0, 1),
        st.booleans(),
        st.booleans(),
    )
    def check(verdict: Any, texts: list[str], where: str, place: float, thinks: bool, is_cut_off: bool) -> None:
        reasons, thoughts = "The response is short.\nIt says so.", "Let me see.\nOne thing, then another."
        quoted = " and ".join(texts)
        if where == "reasons":
            reasons = injected(reasons, quoted, place)
        if where == "thoughts":
            thoughts = injected(thoughts, quoted, place)
        said = form.write(reasons, verdict)
        if thinks or where == "thoughts":
            said = f"{TAGS[0]}{thoughts}{TAGS[1]}\n{said}"
        if where == "anywhere":
            said = injected(said, quoted, place)
        own = form.answer.read(Judgement(form.write("", verdict)))
        try:
            read = form.answer.read(Judgement(said, is_cut_off=is_cut_off), responses=texts)
        except Unreadable:
            found["unreadable"] += 1
            return
        found["read"] += 1
        assert read == own, said

    check()
    assert min(found["read"], found["unreadable"]) > ANSWERS / 50


@pytest.mark.parametrize("name", [name for name, form in FORMS.items() if name != "choice"])
def test_a_judge_without_a_verdict_of_its_own_has_none(name: str) -> None:
    form = FORMS[name]

    @settings(max_examples=ANSWERS, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(policy_texts, min_size=1, max_size=3), st.floats(0, 1), st.booleans())
    def check(texts: list[str], place: float, has_reasoning: bool) -> None:
        said = injected("The response is short.\nIt says so.", " and ".join(texts), place)
        with pytest.raises(Unreadable):
            form.answer.read(Judgement(said, has_reasoning=has_reasoning), responses=texts)

    check()


@given(policy_texts, st.integers(1, 10))
def test_reasons_in_json_may_hold_any_text_of_the_policys(quoted: str, verdict: int) -> None:
    form = FORMS["json"]
    assert form.answer.read(Judgement(form.write(quoted, verdict))) == verdict
