"""What counts as a judge's answer, and what does not, however it is written."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewardpool.rewards.scale import Labels, Range, Unreadable

TEN = Range(1, 10)
SHARE = Range(0, 1, whole=False)
PAIR = Labels({"A": 1.0, "B": 0.0, "tie": 0.5})


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ("7", 7),
        (" 7.\n", 7),
        ("**7**", 7),
        ("7/10", 7),
        ("7 out of 10", 7),
        ("7.0", 7),
        ("+7", 7),
        ("Score: 7", 7),
        ("score = 7", 7),
        ("SCORE: 7/10", 7),
        ("The score is 7.", 7),
        ("I give it a rating of 7 out of 10.", 7),
        ("**Score:** 7", 7),
        ("**Score: 7**", 7),
        ("__Rating__: `7`", 7),
        ('"score": 7', 7),
        ("'score' : 7,", 7),
        ("Score -> 7", 7),
        ("Good, but short. [[7]]", 7),
        ("[[ 7 ]]", 7),
        ("A score of 3 would be unfair.\nScore: 7", 7),
        ("Score: 3\nOn second thoughts, Score: 7", 7),
        ("Clarity 4/5, style 2/5. I would say 7/10", 7),
        ("There are 12 errors in 3 lines.\nScore: 7", 7),
        ("Score: 10", 10),
        ("grade: 1", 1),
        ("Score: 7\n\n8 lines were read.", 7),
        ("Score: 7, because of 2 errors", 7),
    ],
)
def test_a_score_is_found_in_free_text(text: str, score: float) -> None:
    assert TEN.find(text) == score


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no number",
        "seven",
        "0",
        "11",
        "-3",
        "Score: 0",
        "Score: 11",
        "Score: -7",
        "Score: 100",
        "Score: 7.5",
        "Score: 7,5",
        "Score: 70%",
        "Score: 70 %",
        "Score: 7-8",
        "Score: 7 to 8",
        "Score: 7 or 8",
        "Score: 7 \u2013 8",
        "Score: 7/5",
        "Score: 7 out of 100",
        "70/100",
        "3/5",
        "Score: N/A",
        "Score: seven",
        "it scored",
        "The scores vary.",
        "Rate it from 1 to 10.",
        "7 8",
        "I saw 7 apples",
        "2026-07-01",
        "1e1",
        "nan",
        "inf",
        "7/10/10",
    ],
)
def test_what_is_no_score_on_the_scale_is_unreadable(text: str) -> None:
    with pytest.raises(Unreadable):
        TEN.find(text)


@pytest.mark.parametrize(
    "value", [None, True, False, [], {}, "", "good", "7 or 8", "7.5", 7.5, 0, 11, math.nan, math.inf, 10**400, "1e1"]
)
def test_a_json_value_that_is_no_score_is_unreadable(value: object) -> None:
    with pytest.raises(Unreadable):
        TEN.read(value)


@pytest.mark.parametrize("value", [7, 7.0, "7", " 7 ", "7/10", "7 out of 10"])
def test_a_json_value_may_be_a_number_or_its_text(value: object) -> None:
    assert TEN.read(value) == 7.0


@given(st.floats(0, 1))
def test_every_number_on_a_scale_of_fractions_is_read_back(value: float) -> None:
    assert SHARE.read(json.loads(json.dumps(value))) == value


@given(st.floats(allow_nan=True, allow_infinity=True).filter(lambda value: not 0 <= value <= 1))
def test_no_number_outside_is_brought_inside(value: float) -> None:
    with pytest.raises(Unreadable):
        SHARE.read(value)


@given(st.text(max_size=200))
def test_any_text_is_a_score_on_the_scale_or_unreadable(text: str) -> None:
    for scale in (TEN, SHARE, PAIR):
        try:
            score = scale.find(text)
        except Unreadable:
            continue
        assert 0 <= score <= 10


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ("A", 1.0),
        ("b", 0.0),
        ('"B"', 0.0),
        ("Tie.", 0.5),
        ("**A**", 1.0),
        ("[[B]]", 0.0),
        ("First [[A]], but then [[B]]", 0.0),
        ("Winner: A", 1.0),
        ("winner: tie", 0.5),
        ("The winner is Response B.", 0.0),
        ("Both are fine.\n**Winner:** B", 0.0),
        ("Verdict: A\n", 1.0),
        ("My answer is A; B is too long.", 1.0),
        ("The better response is Response A.", 1.0),
    ],
)
def test_a_verdict_is_found_in_free_text(text: str, score: float) -> None:
    assert PAIR.find(text) == score


@pytest.mark.parametrize(
    "text",
    [
        "",
        "C",
        "AB",
        "A or B",
        "A is better than B",
        "Winner: a hard choice",
        "The winner is a tie-break",
        "winner: A tie",
    ],
)
def test_what_is_no_verdict_is_unreadable(text: str) -> None:
    with pytest.raises(Unreadable):
        PAIR.find(text)


def test_labels_that_differ_by_case_alone_are_told_apart() -> None:
    labels = Labels({"yes": 1.0, "YES": 2.0})
    assert (labels.read("yes"), labels.read("YES")) == (1.0, 2.0)
    with pytest.raises(Unreadable):
        labels.read("Yes")
