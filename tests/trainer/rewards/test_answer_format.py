"""What is asked of an engine so that a judge's answer can be read, and how answers are read whatever is around them."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewardpool.rewards.answer_format import AnswerFormat, Form
from rewardpool.rewards.scale import Labels, Range, Unreadable

TEN = Range(1, 10)
PAIR = Labels({"A": 1.0, "B": 0.0, "tie": 0.5})
JSON = AnswerFormat("json", TEN, key="score")


def schema_of(answer: AnswerFormat) -> object:
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


def test_a_choice_is_an_enum_and_a_regex_a_pattern_without_named_groups() -> None:
    choice = AnswerFormat("choice", PAIR, key="winner")
    regex = AnswerFormat("regex", TEN, key="score", pattern=r"Score: (?P<score>10|[1-9])")
    assert schema_of(choice) == {"type": "string", "enum": ["A", "B", "tie"]}
    assert schema_of(regex) == {"type": "string", "pattern": "^(?:Score: (10|[1-9]))$"}


def test_free_text_asks_nothing_of_the_engine() -> None:
    assert AnswerFormat("text", TEN, key="score").request == {}


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ('{"reasoning": "fine", "score": 7}', 7),
        ('{"score": 7}', 7),
        ('{"score": "7"}', 7),
        ('{"score": "7/10"}', 7),
        ('```json\n{"reasoning": "fine", "score": 7}\n```', 7),
        ('Here you go: {"score": 7} I hope it helps.', 7),
        ('{"score": 2} no, rather {"score": 7}', 7),
        ('{"reasoning": "score: 2 {x}", "score": 7}', 7),
        ('{not json} {"score": 7}', 7),
        ('{"a": {"score": 3}, "score": 7}', 7),
        ('<think>{"score": 1}</think>{"score": 7}', 7),
        ('it may be {"score": 1}</think>\n{"score": 7}', 7),
        ("Score: 7", 7),
        ("7", 7),
    ],
)
def test_a_json_answer_is_read_whatever_is_around_it(text: str, score: float) -> None:
    assert JSON.read(text) == score


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "null",
        '"good"',
        '{"score": null}',
        '{"score": true}',
        '{"score": 11}',
        '{"score": 7.5}',
        '{"score": NaN}',
        '{"score": [7]}',
        '{"rating": 7}',
        '{"reasoning": "I would give it a score of 3, but',
        '{"reasoning": "fine", "score": 7',
        "<think>Score: 7",
        "{" * 5000,
        '{"score": 7}<think>wait',
        "[" * 100_000,
    ],
)
def test_what_is_cut_off_or_off_the_scale_is_unreadable(text: str) -> None:
    with pytest.raises(Unreadable):
        JSON.read(text)


@given(st.text(max_size=100), st.integers(1, 10), st.sampled_from(["{}", "```json\n{}\n```", "Well. {} So be it."]))
def test_what_an_engine_that_is_held_to_the_schema_writes_is_read(reasons: str, score: int, around: str) -> None:
    answer = json.dumps({"reasoning": reasons.replace("think>", ""), "score": score})
    assert JSON.read(around.replace("{}", answer)) == score


@pytest.mark.parametrize("text", ['"A"', "A", "`A`", ' "A" ', '```json\n"A"\n```'])
def test_a_choice_is_read_with_and_without_quotes(text: str) -> None:
    assert AnswerFormat("choice", PAIR, key="winner").read(text) == 1.0


@given(st.text(max_size=30).filter(lambda text: not re.search(r"(?i)\b(a|b|tie)\b", text)))
def test_another_text_is_no_choice(text: str) -> None:
    with pytest.raises(Unreadable):
        AnswerFormat("choice", PAIR, key="winner").read(text)


@pytest.mark.parametrize(
    ("pattern", "text", "score"),
    [
        (r"(?P<why>\w+) (?P<score>\d+)", '"good 7"', 7),
        (r"Score: (\d+)", "Score: 7", 7),
        (r"\d+", '"7"', 7),
    ],
)
def test_a_regex_gives_its_group(pattern: str, text: str, score: float) -> None:
    assert AnswerFormat("regex", TEN, key="score", pattern=pattern).read(text) == score


@pytest.mark.parametrize("text", ["Score: 7!", "7", '"Score: 11"', ""])
def test_what_a_regex_does_not_match_as_a_whole_is_unreadable(text: str) -> None:
    with pytest.raises(Unreadable):
        AnswerFormat("regex", TEN, key="score", pattern=r"Score: (\d+)").read(text)


@pytest.mark.parametrize(
    ("form", "scale", "pattern"),
    [
        ("regex", TEN, None),
        ("json", TEN, "x"),
        ("regex", TEN, "("),
        ("choice", Range(0, 1, whole=False), None),
        ("choice", Range(0, 1000), None),
    ],
)
def test_forms_that_cannot_be_asked_for_are_refused(form: Form, scale: Range, pattern: str | None) -> None:
    with pytest.raises(ValueError):
        AnswerFormat(form, scale, key="score", pattern=pattern)
