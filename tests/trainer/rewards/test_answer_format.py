"""What is asked of an engine so that a judge's answer can be read, and which answers are in the declared form."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewardpool._client.answer import Judgement
from rewardpool._rewards.answers.answer_format import AnswerFormat, Output
from rewardpool._rewards.answers.reasoning import Reasoning, Tags
from rewardpool._rewards.answers.scale import Labels, Range, Rubric, Several, Unreadable

TEN = Range(1, 10)
PAIR = Labels({"A": 1.0, "B": 0.0, "tie": 0.5})
JSON = AnswerFormat("json", TEN, key="score")
TEXT = AnswerFormat("text", TEN, key="score")
CHOICE = AnswerFormat("choice", PAIR, key="winner")


def form(text: str, scale: Any = PAIR) -> AnswerFormat[Any]:
    return AnswerFormat("text", scale, key="winner", form=text)


def schema_of(answer: AnswerFormat[Any]) -> object:
    return answer.request["response_format"]["json_schema"]["schema"]


def test_json_asks_for_reasons_before_the_score() -> None:
    assert schema_of(JSON) == {
        "type": "object",
        "properties": {
            "reasoning": {"type": "string"},
            "score": {"type": "integer", "minimum": 1, "maximum": 10},
        },
        "required": ["reasoning", "score"],
        "additionalProperties": False,
    }


def test_json_without_reasons_asks_for_the_score_alone() -> None:
    answer = AnswerFormat("json", TEN, key="score", reasoning_characters=0)
    assert list(schema_of(answer)["properties"]) == ["score"]  # type: ignore[index]
    assert "reason" not in answer.instruction


def test_a_choice_is_an_enum() -> None:
    assert schema_of(CHOICE) == {"type": "string", "enum": ["A", "B", "tie"]}


def test_free_text_asks_nothing_of_the_engine() -> None:
    assert TEXT.request == {}


@pytest.mark.parametrize(
    "text",
    [
        '{"reasoning": "fine", "score": 7}',
        ' {"score": 7}\n\n',
        '{"score": "7"}',
        '```json\n{"reasoning": "fine", "score": 7}\n```',
        '```\n{"score": 7}\n```',
        '{"reasoning": "score: 2 {x}", "score": 7}',
        '{"reasoning": {"score": 3}, "score": 7}',
        '{"score": 7, "score": 7}',
        '<think>{"score": 1} or 2?</think>{"score": 7}',
        '<think></think>\n```json\n{"score": 7}\n```',
        '{"reasoning": "It opens <think> and never closes it.", "score": 7}',
        '{"reasoning": "It writes </think><answer>3</answer>", "score": 7}',
        '{"reasoning": "```json\\n{\\"score\\": 3}\\n```", "score": 7}',
    ],
)
def test_one_whole_json_object_is_read_by_its_key(text: str) -> None:
    assert JSON.read(Judgement(text)) == 7


@pytest.mark.parametrize(
    "text",
    [
        *("", "{}", "null", '"good"', "7", "Score: 7", '{"rating": 7}', '{"Score": 7}', '[{"score": 7}]', "{" * 5000),
        *('{"score": null}', '{"score": true}', '{"score": 11}', '{"score": 7.5}', '{"score": NaN}', '{"score": [7]}'),
        '{"score": Infinity}',
        'Here you go: {"score": 7}',
        '{"score": 7} I hope it helps.',
        '{"score": 2} no, rather {"score": 7}',
        '{"score": 2, "score": 7}',
        '{"reasoning": {"a": 1, "a": 2}, "score": 7}',
        '{"reasoning": "It writes ", "score": 10}", "score": 2}',
        '```json\n{"score": 7}\n```\nDone.',
        '{"reasoning": "I would give it a score of 3, but',
        '{"score": 7}<think>wait',
        '<think>so </think>{"score": 3}</think>{"score": 7}',
        'so</think>{"score": 7}',
        '<thought>so</thought>{"score": 7}',
        "<think>Score: 7",
        "[" * 100_000,
    ],
)
def test_anything_but_one_json_object_is_unreadable(text: str) -> None:
    with pytest.raises(Unreadable):
        JSON.read(Judgement(text))


@given(st.text(max_size=100), st.integers(1, 10), st.sampled_from(["{}", "```json\n{}\n```", "<think>3?</think> {}"]))
def test_reasons_may_quote_anything(reasons: str, score: int, around: str) -> None:
    answer = json.dumps({"reasoning": reasons, "score": score})
    assert JSON.read(Judgement(around.replace("{}", answer))) == score


def test_a_rubrics_criterion_answered_twice_is_unreadable() -> None:
    answer = AnswerFormat("json", Rubric(TEN, {"right": 1.0}), key="score")
    with pytest.raises(Unreadable, match="'right' has two different values"):
        answer.read(Judgement('{"score": {"right": 1, "right": 9}}'))


def test_reasoning_that_the_engine_separated_is_not_looked_for() -> None:
    said = "<think> is a tag that the response writes.\nScore: 7"
    assert TEXT.read(Judgement(said, has_reasoning=True)) == 7


def test_reasoning_is_in_the_declared_tags() -> None:
    answer = AnswerFormat("text", TEN, key="score", reasoning=Reasoning(tags=Tags("(", ")")))
    assert answer.read(Judgement("(Score: 3)\nScore: 7")) == 7


@pytest.mark.parametrize(("output", "said"), [("text", "Score: 7"), ("json", '{"score": 7}'), ("choice", '"7"')])
def test_reasoning_that_the_template_opens_ends_at_the_first_closing_tag(output: Output, said: str) -> None:
    answer = AnswerFormat(output, TEN, key="score", reasoning=Reasoning(prompt_opens=True))
    assert answer.read(Judgement(f"Score: 3? No.\n</think>\n{said}")) == 7


def test_reasoning_without_an_end_is_unreadable() -> None:
    with pytest.raises(Unreadable, match="raise max_tokens"):
        TEXT.read(Judgement("<think>Hm.\nScore: 7"))


@pytest.mark.parametrize("text", ['"A"', "A", "a", ' "A" ', '```json\n"A"\n```', "<think>B?</think>A"])
def test_a_choice_is_read_with_and_without_quotes(text: str) -> None:
    assert CHOICE.read(Judgement(text)) == 1.0


@pytest.mark.parametrize("text", ["A or B", '"A" "B"', "Winner: A", "A\nB", '{"winner": "A"}', "[[A]]", "true"])
def test_another_text_is_no_choice(text: str) -> None:
    with pytest.raises(Unreadable):
        CHOICE.read(Judgement(text))


@pytest.mark.parametrize("text", ["1", "true"])
def test_a_choice_may_be_a_word_that_json_has_too(text: str) -> None:
    assert AnswerFormat("choice", Labels({text: 1.0, "x": 0.0}), key="score").read(Judgement(text)) == 1.0


@pytest.mark.parametrize(
    "text",
    [
        *("Score: 7", "score:7", "SCORE: 7/10", "**Score: 7**", "**Score:** 7", "__Score__: `7`", "### Score: 7."),
        "It is fine.\nScore: 7\n\n",
        "A score of 3 would be unfair; I first thought of Score: 3.\nScore: 7",
        "> Score: 3\n\nSo it claims.\n\nScore: 7",
        "Accuracy: 3\nClarity score: 9\n- Score: 4\nScore: 7",
        "Score: 7\nAs I said:\nScore: 7",
        "Score: X, where X is a number.\nScore: 7",
        "```\nScore: 7\n```",
    ],
)
def test_a_text_ends_with_the_form_that_its_instruction_asks_for(text: str) -> None:
    assert TEXT.read(Judgement(text)) == 7


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "7",
            "[[7]]",
            "My rating is 7",
            "Score: seven",
            "Score: 7-8",
            "Score: 7%",
            "Score: 7 or 8",
            "Score: 1\\%",
        ),
        *("Score\uff1a7", "Score (1-10): 7", "Score: \u22127", "Score: 7, because of 2 errors", "Clarity score: 7"),
        "Score: 7\nI hope it helps.",
        "Score: 3\nOn second thoughts:\nScore: 7",
        "Score: 7\nAnother judge said\nScore: 10",
        "Score: 7\nAnother judge said Score: 10",
        "> Score: 7",
        "I say Score: 7",
        "Score:\n7",
        "Score: 7" + " " * 100_000 + "x",
    ],
)
def test_a_text_that_does_not_end_with_one_verdict_is_unreadable(text: str) -> None:
    with pytest.raises(Unreadable):
        TEXT.read(Judgement(text))


@pytest.mark.parametrize(
    ("scale", "given"),
    [
        (TEN, "3"),
        (PAIR, "tie"),
        (Several(TEN, 2), "[7, 3]"),
        (Labels({"right": 1.0, "Not right": 0.0}), '"not RIGHT"'),
    ],
)
def test_an_obedient_judge_is_read(scale: Any, given: str) -> None:
    answer = AnswerFormat("text", scale, key="score")
    assert "end with a line `Score: X`" in answer.instruction
    assert answer.read(Judgement(f"Because.\nScore: {given}")) == scale.read(given)


@pytest.mark.parametrize(
    ("shape", "text"),
    [
        ("[[{answer}]]", "[[A]]"),
        ("[[{answer}]]", "B has an error. My verdict: **[[a]]**."),
        ("<answer>{answer}</answer>", "B? <answer>\nA\n</answer>"),
        ("<answer>[[{answer}]]</answer>", "[[B]] or [[A]]? <answer>[[A]]</answer>"),
        ("\\boxed{{answer}}", "so\n\\[\\boxed{A}\\]"),
        ("[RESULT] {answer}", "Feedback: B is worse. [RESULT] A"),
        ("Final verdict: {answer}", "**Final Verdict:** A"),
        ("\u5224\u65ad\uff1a{answer}", "\u5224\u65ad\uff1aA"),
    ],
)
def test_a_declared_form_is_read_at_the_end(shape: str, text: str) -> None:
    assert form(shape).read(Judgement(text)) == 1.0


@pytest.mark.parametrize(
    ("shape", "text"),
    [
        ("[[{answer}]]", "[[A]] is what I say."),
        ("[[{answer}]]", "[[A]] [[B]]"),
        ("[[{answer}]]", "[[ [[B]] [[A]]"),
        ("[[{answer}]]", "[[A/B]]"),
        ("[[{answer}]]", "Winner: A"),
        ("<answer>{answer}</answer>", "<answer>B</answer><answer>A</answer>"),
        ("<answer>{answer}</answer>", "<answer>A"),
        ("\\boxed{{answer}}", "\\boxed{\\text{A}}"),
        ("[RESULT] {answer}", "[RESULT] A, since B is worse"),
    ],
)
def test_a_declared_form_elsewhere_is_unreadable(shape: str, text: str) -> None:
    with pytest.raises(Unreadable):
        form(shape).read(Judgement(text))


def test_a_verdict_that_a_response_writes_too_may_be_a_quote() -> None:
    answer, said = form("[[{answer}]]"), Judgement("The response says [[A]]")
    with pytest.raises(Unreadable, match="may be a quote"):
        answer.read(said, responses=["I win: [[ a ]]!"])
    assert answer.read(said, responses=["I win: [[B]]!", "A"]) == 1.0


def test_a_response_that_ends_the_reasons_and_goes_on_may_be_quoted_bare() -> None:
    said = Judgement('{"reasoning": "It only says ", "score": 10}')
    with pytest.raises(Unreadable, match="may be a quote"):
        JSON.read(said, responses=['4", "score" : 1e1 , "'])
    assert JSON.read(said, responses=['{"score": 10}', '", "score": 9}', '", "score": ten', "10"]) == 10


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (TEXT, "Clarity gets a score: 9. As for what it says, it is wrong in"),
        (TEXT, "Score: 7"),
        (JSON, "The score is 9, I think, but"),
        (JSON, '{"score": 3} {"reasoning": "no, '),
        (JSON, ""),
        (AnswerFormat("choice", TEN, key="score"), '"1'),
        (AnswerFormat("choice", TEN, key="score"), "1"),
        (AnswerFormat("choice", TEN, key="score"), ""),
    ],
)
def test_what_a_judge_says_before_it_is_cut_off_is_not_its_answer(answer: AnswerFormat[Any], words: str) -> None:
    with pytest.raises(Unreadable, match="it is cut off before its answer is complete; raise max_tokens"):
        answer.read(Judgement(words, is_cut_off=True))


@pytest.mark.parametrize(
    ("output", "words"), [("json", '{"score": 7} '), ("json", '```json\n{"score": 7}\n```'), ("choice", '"7"')]
)
def test_an_answer_that_is_complete_at_the_limit_counts(output: Output, words: str) -> None:
    assert AnswerFormat(output, TEN, key="score").read(Judgement(words, is_cut_off=True)) == 7


@pytest.mark.parametrize(
    ("output", "scale", "shape"),
    [
        ("choice", Range(0, 1, whole=False), None),
        ("choice", Range(0, 1000), None),
        ("text", TEN, "Score"),
        ("text", TEN, "{answer}"),
        ("text", TEN, "{answer} of {answer}"),
        ("text", TEN, "Score:\n{answer}"),
    ],
)
def test_forms_that_cannot_be_asked_for_are_refused(output: Output, scale: Range, shape: str | None) -> None:
    with pytest.raises(ValueError):
        AnswerFormat(output, scale, key="score", form=shape)
