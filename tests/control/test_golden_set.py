"""Which golden sets are read, and how others are refused."""

import pytest

from rewardpool_control.golden_set import (
    GoldenScores,
    GoldenSetError,
    GoldenText,
    parse_golden_set,
    scores_of_annotation,
)


def test_a_line_is_a_text_with_or_without_a_score():
    golden = parse_golden_set('{"text": "good", "score": 2}\n\n{"text": "bad"}\n')
    assert golden.texts == (
        GoldenText(line=1, text="good", expected=2.0),
        GoldenText(line=3, text="bad", expected=None),
    )


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "no lines"),
        ('{"text": "a"}\nnonsense', "line 2 is not JSON"),
        ('["a"]', "line 1 is not an object with a text"),
        ('{"score": 1}', "line 1 is not an object with a text"),
        ('{"text": "a", "scores": 1}', "line 1 has fields beside text and score"),
        ('{"text": "a", "score": NaN}', "line 1 has a score that is not a finite number"),
        ('{"text": "a", "score": true}', "line 1 has a score that is not a finite number"),
        ('{"text": "a"}\n' * 257, "257 texts; at most 256"),
    ],
)
def test_a_set_that_cannot_be_used_is_refused_by_line(content, words):
    with pytest.raises(GoldenSetError, match=words):
        parse_golden_set(content)


def test_other_expected_scores_need_no_new_measurement_but_other_texts_do():
    one, other = parse_golden_set('{"text": "a"}'), parse_golden_set('{"text": "a", "score": 1}')
    assert one.digest == other.digest
    assert one.digest != parse_golden_set('{"text": "b"}').digest


@pytest.mark.parametrize("refusal", [None, "line 2: sample_too_long: 9 tokens"])
def test_scores_come_back_from_their_annotation(refusal):
    scores = GoldenScores(digest="abc", scores=(0.1, None), refusal=refusal)
    assert scores_of_annotation(scores.to_annotation()) == scores


@pytest.mark.parametrize("annotation", ["", "[]", '{"set": "abc"}', '{"set": "abc", "scores": [NaN]}', '{"set":1}'])
def test_an_annotation_that_is_not_ours_is_measured_anew(annotation):
    assert scores_of_annotation(annotation) is None


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\u0085"])
def test_a_text_may_hold_a_line_separator_of_unicode(separator):
    golden = parse_golden_set(f'{{"text": "a{separator}b"}}\r\n{{"text": "c"}}\r\n')
    assert [text.text for text in golden.texts] == [f"a{separator}b", "c"]


def test_a_byte_order_mark_before_the_first_text_is_skipped():
    assert parse_golden_set('\ufeff{"text": "a"}').texts == (GoldenText(line=1, text="a"),)


@pytest.mark.parametrize(
    "line", ['{"text": 1, "a": "%s"}', '{"text": "", "%s": 1}', '{"text": "", "score": "%s"}', "%s"]
)
def test_no_error_quotes_what_a_config_map_has(line: str) -> None:
    with pytest.raises(GoldenSetError) as refused:
        parse_golden_set(line % "a-password")
    assert "a-password" not in str(refused.value)
