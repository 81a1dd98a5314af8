"""From an answer's bytes to scores: numbers only where numbers are."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewardpool_api.contract import CallerError, InvalidResponseError, parse_answer


def answer(*embeddings):
    return json.dumps({"data": [{"index": i, "embedding": e} for i, e in enumerate(embeddings)]})


def test_the_score_is_the_one_number_of_the_embedding():
    assert parse_answer(answer([-2.5], [3]), count=2) == [-2.5, 3.0]


@pytest.mark.parametrize("length", [0, 2, 3, 64])
def test_an_embedding_of_another_length_is_no_score_and_says_how_long_it_is(length):
    with pytest.raises(InvalidResponseError, match=rf"has {length} numbers, a score is exactly one.*spec\.model\.head"):
        parse_answer(answer([0.25] * length), count=1)


def test_scores_are_in_the_order_of_the_input_whatever_the_order_of_the_answer():
    body = json.dumps({"data": [{"index": 1, "embedding": [1.0]}, {"index": 0, "embedding": [0.0]}]})
    assert parse_answer(body, count=2) == [0.0, 1.0]


@pytest.mark.parametrize(
    "body",
    [
        "not json",
        "[]",
        "3",
        "{}",
        '{"data": {}}',
        answer(),
        answer([1.0], [2.0]),
        answer([]),
        answer(["1.0"]),
        answer([None]),
        answer([True]),
        answer([float("nan")]),
        answer([float("inf")]),
        answer([10**400]),
        '{"data": [7]}',
        '{"data": [{"index": 4, "embedding": [1.0]}]}',
        '{"data": [{"index": false, "embedding": [1.0]}]}',
        '{"error": {"code": "who knows", "message": "x"}}',
        '{"error": "out of memory", "data": [{"index": 0, "embedding": [1.0]}]}',
    ],
)
def test_an_invalid_response_is_an_error_and_never_a_number(body):
    with pytest.raises(InvalidResponseError):
        parse_answer(body, count=1)


def test_a_score_of_something_else_than_the_adapter_is_no_score():
    body = json.dumps({"model": "rm", **json.loads(answer([1.0]))})
    assert parse_answer(body, count=1) == [1.0]
    assert parse_answer(body, count=1, adapter="rm") == [1.0]
    with pytest.raises(InvalidResponseError, match="the adapter safe was asked for, and 'rm' scored"):
        parse_answer(body, count=1, adapter="safe")


def test_a_caller_error_survives_the_wire():
    error = CallerError(code="sample_too_long", message="too long", fault="policy", length_tokens=9, limit_tokens=5)
    assert parse_answer(json.dumps(error.to_wire()), count=1) == error


def test_an_error_says_whose_fault_it_is_by_its_code_alone():
    wire = CallerError(code="function_failed", message="ValueError").to_wire()
    assert wire["error"]["fault"] == "verifier"
    del wire["error"]["fault"]
    assert parse_answer(json.dumps(wire), count=1).decided_fault == "verifier"


def test_a_fault_that_the_contract_does_not_know_is_an_invalid_response():
    wire = CallerError(code="function_failed", message="ValueError").to_wire()
    wire["error"]["fault"] = "mine"
    with pytest.raises(InvalidResponseError, match="unknown fault 'mine'"):
        parse_answer(json.dumps(wire), count=1)


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=20))
def test_finite_scores_survive_the_wire(scores):
    assert parse_answer(answer(*([score] for score in scores)), count=len(scores)) == scores


@given(st.binary(max_size=200))
def test_no_bytes_at_all_make_it_fail_in_another_way(body):
    try:
        parse_answer(body, count=1)
    except InvalidResponseError:
        return
