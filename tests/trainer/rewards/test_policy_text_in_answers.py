"""No text of the policy's becomes a verdict, wherever the judge quotes it."""

import json
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.policy_answers import ANSWERS, EVERY, injected, policy_texts, quotes

from rewardpool._client.answer import Judgement
from rewardpool._rewards.answers.answer_format import AnswerFormat
from rewardpool._rewards.answers.scale import Labels, Range, Rubric, Several, Unreadable

TEN = Range(1, 10)
PAIR = Labels({"A": 1.0, "B": 0.0, "tie": 0.5})
RIGHT = Labels({"right": 1.0, "wrong": 0.0})


@dataclass(frozen=True)
class Form:
    """A declared form, and how a judge writes each verdict in it."""

    answer: AnswerFormat[Any]
    write: Callable[[str, Any], str]
    verdicts: Sequence[Any]


def as_json(key: str) -> Callable[[str, Any], str]:
    return lambda reasons, verdict: json.dumps({"reasoning": reasons, key: verdict})


def as_text(shape: str) -> Callable[[str, Any], str]:
    return lambda reasons, verdict: f"{reasons}\n" + shape.replace("{answer}", str(verdict))


def text(scale: Any, shape: str, verdicts: Sequence[Any]) -> Form:
    return Form(AnswerFormat("text", scale, key="score", form=shape), as_text(shape), verdicts)


numbers = range(1, 11)
pairs = ("A", "B", "tie")
right = ("right", "wrong")
lists = [[first, second] for first in numbers for second in numbers]
FORMS = {
    "json": Form(AnswerFormat("json", TEN, key="score"), as_json("score"), numbers),
    "json labels": Form(AnswerFormat("json", RIGHT, key="score"), as_json("score"), right),
    "json pairs": Form(AnswerFormat("json", PAIR, key="winner"), as_json("winner"), pairs),
    "json lists": Form(AnswerFormat("json", Several(TEN, 2), key="scores"), as_json("scores"), lists),
    "json rubric": Form(
        AnswerFormat("json", Rubric(TEN, {"score": 1.0}), key="score"),
        as_json("score"),
        [{"score": number} for number in numbers],
    ),
    "choice": Form(AnswerFormat("choice", PAIR, key="winner"), lambda _, verdict: json.dumps(verdict), pairs),
    "Score": text(TEN, "Score: {answer}", numbers),
    "Score of labels": text(RIGHT, "Score: {answer}", right),
    "Scores": text(Several(TEN, 2), "Scores: {answer}", lists),
    "[[]]": text(PAIR, "[[{answer}]]", pairs),
    "answer": text(TEN, "<answer>{answer}</answer>", numbers),
    "answer [[]]": text(PAIR, "<answer>[[{answer}]]</answer>", pairs),
    "boxed": text(TEN, "\\boxed{{answer}}", numbers),
    "boxed lists": text(Several(TEN, 2), "\\boxed{{answer}}", lists),
    "RESULT": text(TEN, "[RESULT] {answer}", numbers),
}


@pytest.mark.parametrize("name", FORMS)
def test_a_verdict_is_the_forms_own_wherever_the_policys_text_stands(name: str) -> None:
    form = FORMS[name]
    found = Counter[str]()

    def check(texts: list[str], place: float, seed: int) -> None:
        rng = random.Random(seed)
        verdict, where = rng.choice(form.verdicts), rng.choice(["reasons", "thoughts", "behind", "anywhere"])
        reasons, thoughts = "The response is short.\nIt says so.", "Let me see.\nOne thing, then another."
        quoted = " and ".join(texts)
        if where == "reasons":
            reasons = injected(reasons, quoted, place)
        if where == "thoughts":
            thoughts = injected(thoughts, quoted, place)
        said = form.write(reasons, verdict)
        if where == "thoughts" or rng.random() < 0.5:
            said = f"<think>{thoughts}</think>\n{said}"
        if where == "behind":
            said = f"{said}\n{quoted}"
        if where == "anywhere":
            said = injected(said, quoted, place)
        # Where its own verdict is whole, it need not even be known what the policy wrote.
        shown = texts if where == "anywhere" else []
        own = form.answer.read(Judgement(form.write("", verdict)))
        try:
            read = form.answer.read(Judgement(said, is_cut_off=rng.random() < 0.2), responses=shown)
        except Unreadable:
            found["unreadable"] += 1
            return
        found["read"] += 1
        assert read == own, said

    quotes(check)()
    assert min(found["read"], found["unreadable"]) > ANSWERS / 50


@pytest.mark.parametrize("name", [name for name in FORMS if name != "choice"])
def test_a_judge_without_a_verdict_of_its_own_has_none(name: str) -> None:
    def check(texts: list[str], place: float, seed: int) -> None:
        said = injected("The response is short.\nIt says so.", " and ".join(texts), place)
        with pytest.raises(Unreadable):
            FORMS[name].answer.read(Judgement(said, has_reasoning=seed % 2 == 0), responses=texts)

    quotes(check)()


@pytest.mark.parametrize("name", [name for name, form in FORMS.items() if form.answer.request != {}])
def test_a_quote_that_ends_the_reasons_in_json_is_no_verdict(name: str) -> None:
    for text in EVERY:
        for end in ("", "}"):
            with pytest.raises(Unreadable):
                FORMS[name].answer.read(Judgement('{"reasoning": "It writes ' + text + end), responses=[text])


@given(policy_texts, st.integers(1, 10))
def test_reasons_in_json_may_hold_any_text_of_the_policys(quoted: str, verdict: int) -> None:
    form = FORMS["json"]
    assert form.answer.read(Judgement(form.write(quoted, verdict))) == verdict
