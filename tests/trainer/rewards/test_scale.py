"""Which values are answers on a scale, however they are written."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewardpool._rewards.answers.scale import Labels, Range, Several, Unreadable

TEN = Range(1, 10)
SHARE = Range(0, 1, whole=False)
WIDE = Range(-10, 10, whole=False)
PAIR = Labels({"A": 1.0, "B": 0.0, "tie": 0.5})


@pytest.mark.parametrize("value", [7, 7.0, "7", " 7 ", "7.", "7.0", "+7", "**7**", '"7"', "7/10", "7 / 10", "70e-1"])
def test_a_number_may_be_json_or_text(value: object) -> None:
    assert TEN.read(value) == 7.0


@pytest.mark.parametrize(
    ("text", "number"),
    [("1e-1", 0.1), ("1.0E-3", 0.001), (".5", 0.5), ("-.5", -0.5), ("5e-1", 0.5), ("5.", 5), ("`-2`", -2), ("1E0", 1)],
)
def test_exponents_and_points_are_part_of_the_number(text: str, number: float) -> None:
    assert WIDE.read(text) == number


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "good",
            "7 or 8",
            "7-8",
            "7 \u2013 8",
            "7 to 8",
            "7,5",
            "0,8",
            "1,000",
            "7 8",
            "nan",
            "inf",
            "1_0",
            "0x7",
        ),
        *("70%", "1%", "1\\%", "7/5", "70/100", "7/10/10", "7 out of 10", "2**3", "2*3", "1e", "e1", ".", "-", "--7"),
        *("\u22122", "\uff17", "\u0667", "\u00bd", "7\u00b2", "1\u00a0000", "7 (good)", "1e999", "7/1e1/", "seven"),
    ],
)
def test_another_spelling_is_refused_and_never_another_number(text: str) -> None:
    for scale in (TEN, SHARE, WIDE):
        with pytest.raises(Unreadable):
            scale.read(text)


@pytest.mark.parametrize(
    "value", [None, True, False, [], {}, "7.5", 7.5, 0, 11, "0", "11", math.nan, math.inf, 10**400, [7], {"score": 7}]
)
def test_a_value_off_the_scale_is_unreadable(value: object) -> None:
    with pytest.raises(Unreadable):
        TEN.read(value)


@given(st.floats(0, 1))
def test_every_number_on_a_scale_of_fractions_is_read_back(value: float) -> None:
    assert SHARE.read(json.loads(json.dumps(value))) == SHARE.read(repr(value)) == value


@given(st.floats(allow_nan=True, allow_infinity=True).filter(lambda value: not 0 <= value <= 1))
def test_no_number_outside_is_brought_inside(value: float) -> None:
    for written in (value, repr(value)):
        with pytest.raises(Unreadable):
            SHARE.read(written)


@given(st.text(alphabet="0123456789.eE+-/%\u2212, ", max_size=8))
def test_a_text_is_the_number_that_python_reads_or_unreadable(text: str) -> None:
    try:
        score = WIDE.read(text)
    except Unreadable:
        return
    assert score == float(text.partition("/")[0])


@pytest.mark.parametrize("text", ["A", "a", '"A"', "**A**", " a. ", "`A`"])
def test_a_label_is_compared_without_case(text: str) -> None:
    assert PAIR.read(text) == 1.0


@pytest.mark.parametrize("value", ["", "C", "AB", "A or B", "A is better", "a tie", "tie-break", None, 1, ["A"], True])
def test_another_value_is_no_label(value: object) -> None:
    with pytest.raises(Unreadable):
        PAIR.read(value)


@pytest.mark.parametrize("labels", [["yes", "YES"], ["a", "a."], ["Straße", "STRASSE"], ["", "x"], ["**", "x"]])
def test_labels_that_differ_by_case_alone_are_refused(labels: list[str]) -> None:
    with pytest.raises(ValueError, match="more than case"):
        Labels(dict.fromkeys(labels, 1.0))


@pytest.mark.parametrize("value", [[7, 3], ["7", 3.0], "7, 3", "[7, 3]", " [7,3] "])
def test_a_list_may_be_json_or_text(value: object) -> None:
    assert Several(TEN, 2).read(value) == (7, 3)


@pytest.mark.parametrize("value", [[7], [7, 3, 1], "7", "7 3", "[7, 3", "7, 11", "7, 3,", {"a": 7}, [[7, 3]], None, 7])
def test_a_list_of_another_length_is_unreadable(value: object) -> None:
    with pytest.raises(Unreadable):
        Several(TEN, 2).read(value)
