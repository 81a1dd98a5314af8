"""The wire of teachers: what is asked arrives as it was sent, and numbers that cannot be do not leave a worker."""

import base64
import json
import math
from array import array
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.tiny_teacher import VOCABULARY, computed

from rewardpool_api.teacher_wire import (
    FLOAT32,
    INT32,
    MAX_INT32,
    NO_PROBABILITY,
    BadAnswerError,
    BadRequestError,
    SequenceQuestion,
    TooLongError,
    Values,
    check_question,
    check_values,
    from_base64,
    parse_request,
    parse_values,
    question,
    table_of,
    to_base64,
    to_wire,
    vocabulary_digest,
    vocabulary_in,
)


@st.composite
def questions(draw: st.DrawFn) -> SequenceQuestion:
    tokens = draw(st.lists(st.integers(0, VOCABULARY - 1), min_size=2, max_size=12))
    start = draw(st.integers(1, len(tokens) - 1))
    width = draw(st.integers(0, 3))
    rows = len(tokens) - start
    ids = draw(
        st.lists(st.lists(st.integers(0, VOCABULARY - 1), min_size=width, max_size=width), min_size=rows, max_size=rows)
    )
    return question(tokens, start=start, top_k=draw(st.integers(0, 5)), ids=ids if width else None, model="teacher")


@given(questions())
def test_a_question_arrives_as_it_was_sent(asked: SequenceQuestion) -> None:
    assert parse_request(json.dumps(asked.to_wire()).encode()) == (asked, None)


@given(questions())
def test_an_answer_arrives_bit_for_bit_and_what_a_model_computes_passes_every_check(asked: SequenceQuestion) -> None:
    found = computed(asked)
    check_values(found, asked, vocabulary=VOCABULARY)
    assert parse_values(json.loads(json.dumps(to_wire(found, asked, model="teacher"))), asked) == found


@given(questions(), st.data())
def test_an_answer_with_a_position_more_or_fewer_or_shifted_is_never_read(
    asked: SequenceQuestion, data: st.DataObject
) -> None:
    found = computed(asked)
    name = data.draw(st.sampled_from([one for one in vars(found) if getattr(found, one)]))
    values = getattr(found, name)
    wrong = data.draw(st.sampled_from([values[:-1], values + values[:1], values[:0]]))
    broken = replace(found, **{name: wrong})
    with pytest.raises(BadAnswerError, match=name):
        check_values(broken, asked, vocabulary=VOCABULARY)
    with pytest.raises(BadAnswerError, match=name):
        parse_values(to_wire(broken, asked, model="teacher"), asked)


@given(questions())
def test_the_body_of_an_answer_is_no_larger_than_the_client_allows_for(asked: SequenceQuestion) -> None:
    assert len(json.dumps(to_wire(computed(asked), asked, model="m" * 253))) <= asked.most_answer_bytes


ASKED = question([3, 1, 4, 1, 5], start=2, top_k=2, ids=[[1, 2], [3, 4], [5, 6]])
FOUND = computed(ASKED)


def but(name: str, place: int, value: Any) -> Values:
    """`FOUND` with one number in place of its own."""
    values = getattr(FOUND, name)[:]
    values[place] = value
    return replace(FOUND, **{name: values})


NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (but("token_ids", 1, 9), r"row 1 belongs to the token 9, and token 3 that was sent is 1"),
        (replace(FOUND, token_ids=ASKED.token_ids[1:4]), "row 0 belongs to the token 1"),
        (but("logprobs", 1, NAN), r"logprobs\[1\] is nan, not a finite"),
        (but("logprobs", 0, -INF), r"logprobs\[0\] is -inf, not a finite"),
        (but("top_logprobs", 2, INF), r"top_logprobs\[2\] is inf, not a finite"),
        (but("ids_logprobs", 5, NAN), r"ids_logprobs\[5\] is nan, not a finite"),
        (but("logprobs", 2, 9.95), r"logprobs\[2\] is 9.9.*not a log-probability"),
        (but("logprobs", 2, 7.5e28), r"logprobs\[2\] is 7.*not a log-probability"),
        (but("logprobs", 0, NO_PROBABILITY), r"logprobs\[0\] is -9999.0, not a log-probability"),
        (but("top_ids", 3, -631299312), r"top_ids\[3\] is -631299312, and the model has 50 tokens"),
        (but("top_ids", 3, VOCABULARY), r"top_ids\[3\] is 50, and the model has 50 tokens"),
        (but("top_logprobs", 1, -0.01), "rank 2 is likelier than that of rank 1"),
        (but("logprobs", 1, -0.01), "the token itself is likelier than the most likely one"),
        (but("ids_logprobs", 3, -0.01), r"ids\[:, 1\] is likelier than the most likely one"),
        (
            replace(FOUND, top_logprobs=array(FLOAT32, [-0.1] * 6), logprobs=array(FLOAT32, [-0.2] * 3)),
            "2 most likely tokens sum to 1.8097",
        ),
    ],
)
def test_numbers_that_cannot_be_do_not_leave_the_worker(wrong: Values, said: str) -> None:
    check_values(FOUND, ASKED, vocabulary=VOCABULARY)
    with pytest.raises(BadAnswerError, match=said):
        check_values(wrong, ASKED, vocabulary=VOCABULARY)


def test_rounding_alone_is_no_reason_to_refuse() -> None:
    asked = question([0, 1], top_k=2)
    found = Values(array(INT32, [1]), array(FLOAT32, [1e-6]), array(INT32, [1, 0]), array(FLOAT32, [1e-6, -7.5]))
    check_values(found, asked, vocabulary=2)


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("rows", 2, "rows is 2, and 3 was asked"),
        ("rows", True, "rows is True"),
        ("start", 1, "start is 1, and 2 was asked"),
        ("top_k", 3, "top_k is 3, and 2 was asked"),
        ("ids_per_row", None, "ids_per_row is None, and 2 was asked"),
        ("logprobs", None, "logprobs is None, not base64"),
        ("logprobs", [0.0, 0.0, 0.0], "logprobs is .*, not base64"),
        ("logprobs", "0", "logprobs is not base64"),
        ("logprobs", base64.b64encode(b"12345").decode(), "logprobs is 5 bytes, not 4 for each value"),
        ("logprobs", to_base64(array(FLOAT32, [0.0, NAN, 0.0])), r"logprobs\[1\] is nan"),
        ("top_ids", to_base64(array(INT32, [1])), "top_ids has 1 values, not 2 for each of 3 rows"),
    ],
)
def test_an_answer_to_another_question_or_of_another_shape_is_not_read(field: str, value: Any, said: str) -> None:
    answer = to_wire(FOUND, ASKED, model="teacher")
    with pytest.raises(BadAnswerError, match=said):
        parse_values({**answer, field: value}, ASKED)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"token_ids": "abc"}, "token_ids must be a list of token ids, not 'abc'"),
        ({"token_ids": None}, "token_ids must be a list of token ids, not None"),
        ({"token_ids": [1, 2.0]}, r"token_ids\[1\] is 2.0, not a whole number"),
        ({"token_ids": [True, 2]}, r"token_ids\[0\] is True, not a whole number"),
        ({"token_ids": [1, -2]}, r"token_ids\[1\] is -2, not a token id"),
        ({"token_ids": [1, 2**31]}, r"token_ids\[1\] is 2147483648, not a token id"),
        ({"token_ids": [[1, 2], [3]]}, r"token_ids\[0\] is \[1, 2\], not a whole number"),
        ({"start": 1.0}, "start must be a whole number, not 1.0"),
        ({"top_k": None}, "top_k must be a whole number"),
        ({"ids": [1, 2]}, "ids must be a list of token ids for each row"),
        ({"ids": [[1], [2, 3]]}, r"ids\[1\] has 2 token ids and ids\[0\] 1"),
        ({"ids": [[], []]}, r"ids\[0\] has 0 token ids .* at least 1"),
        ({"ids": [[1]]}, "ids has 1 rows, and there are 2 positions from start 1 to 2: give one row for each"),
        ({"ids": [[1], [-1]]}, r"ids\[1\]\[0\] is -1, not a token id"),
    ],
)
def test_what_are_no_token_ids_of_these_shapes_is_refused_before_it_is_sent(given: dict[str, Any], said: str) -> None:
    with pytest.raises(BadRequestError, match=said):
        question(**{"token_ids": [1, 2, 3], **given})


class Tensor:
    """As numpy's and torch's: a list by `tolist`."""

    def __init__(self, values: Any) -> None:
        self.tolist = lambda: values


def test_arrays_and_tensors_are_token_ids_too() -> None:
    assert question(Tensor([1, 2, 3]), ids=Tensor([[1], [2]])) == question([1, 2, 3], ids=[[1], [2]])
    assert question(array(INT32, [1, 2])) == question(range(1, 3)) == question((1, 2))


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (question([]), "input_ids has 0 tokens"),
        (question([7]), "input_ids has 1 tokens: the first one has no log-probability"),
        (question([1, 2, 3], start=0), "start is 0, and must be 1 to 2"),
        (question([1, 2, 3], start=3), "start is 3, and must be 1 to 2"),
        (question([1, 2, 3], start=-2), "start is -2, and must be 1 to 2"),
        (question([1, 2, 3], top_k=-1), "top_k is -1, and this teacher gives 0 to 8"),
        (question([1, 2, 3], top_k=9), "top_k is 9, and this teacher gives 0 to 8"),
        (question([1, 2], ids=[[0] * 51]), "ids_per_row is 51, and this teacher gives 0 to 50"),
        (question([1, VOCABULARY]), r"input_ids\[1\] is 50, and the model has the tokens 0 to 49"),
        (question([1, 2], ids=[[1, 50]]), r"ids\[1\] is 50, and the model has the tokens 0 to 49"),
        (
            SequenceQuestion(array(INT32, [1, 2]), ids=array(INT32, [1, 2]), ids_per_row=1),
            "ids has 2 token ids, not 1 for each",
        ),
        (SequenceQuestion(array(INT32, [1, -2])), r"input_ids\[1\] is -2"),
    ],
)
def test_what_no_teacher_of_this_size_answers_is_refused_by_name(asked: SequenceQuestion, said: str) -> None:
    with pytest.raises(BadRequestError, match=said):
        check_question(asked, vocabulary=VOCABULARY, most_tokens=20, most_top_k=8)


def test_top_k_is_bounded_by_the_vocabulary() -> None:
    with pytest.raises(BadRequestError, match="top_k is 51, and this teacher gives 0 to 50"):
        check_question(question([1, 2], top_k=51), vocabulary=VOCABULARY, most_top_k=64)


def test_a_sequence_that_is_too_long_is_refused_with_both_lengths() -> None:
    with pytest.raises(TooLongError) as refused:
        check_question(question([1] * 21), vocabulary=VOCABULARY, most_tokens=20)
    assert (refused.value.length_tokens, refused.value.limit_tokens) == (21, 20)


def test_more_values_than_one_answer_has_are_refused() -> None:
    with pytest.raises(BadRequestError, match="5242752 values, and one answer has at most 4194304: ask fewer"):
        check_question(question([1] * 81_918 + [2], top_k=63), vocabulary=VOCABULARY * 2, most_top_k=64)


def asking(own: Any = ..., **fields: Any) -> bytes:
    request: dict[str, Any] = {"input_ids": [1, 2, 3], "session_params": {"rewardpool": {"start": 1}}, **fields}
    if own is not ...:
        request["session_params"] = {"rewardpool": own}
    return json.dumps(request).encode()


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"{", "not JSON"),
        (b"[1]", "not a JSON object"),
        (b"[" * 100_000, "not JSON"),
        (asking(session_params=None), "return_logprob is None, and must be true"),
        (asking(own=7), "session_params.rewardpool must be an object, not 7"),
        (asking({"topk": 3}), "unknown field 'topk'"),
        (asking({"start": "1"}), "start must be a whole number, not '1'"),
        (asking({"top_k": True}), "top_k must be a whole number, not True"),
        (asking({"model": 3}), "model must be a text"),
        (asking({"ids": [1]}), r"ids is \[1\], not base64"),
        (asking({"ids": "????"}), "ids is not base64"),
        (asking({"ids": to_base64(array(INT32, [1]))}), "ids_per_row is 0"),
        (asking(input_ids=None), "input_ids must be a list"),
        (asking(input_ids=[[1, 2]]), r"input_ids\[0\] is \[1, 2\]"),
        (asking(input_ids=[1, 10**30]), r"input_ids\[1\] is 1000000000000"),
        (asking(text="hello"), "text must not be set"),
        (asking(image_data=["x"]), "image_data must not be set"),
        (asking(stream=True), "stream must be false"),
        (asking(sampling_params=[]), "sampling_params must be an object"),
        (asking(sampling_params={"temperature": 0.7}), "temperature is 0.7, and must be 1"),
        (asking(sampling_params={"temperature": 0}), "temperature is 0, and must be 1"),
        (asking(sampling_params={"temperature": True}), "temperature is True, and must be 1"),
        (asking(sampling_params={"top_p": 0.9}), "top_p is 0.9, and must not be set"),
        (asking(sampling_params={"n": 2}), "n is 2, and must not be set"),
        (asking(sampling_params={"frequency_penalty": 0.5}), "frequency_penalty is 0.5"),
        (asking(sampling_params={"logit_bias": {"1": 2}}), "logit_bias is"),
        (asking(sampling_params={"custom_params": {"a": 1}}), "custom_params is"),
    ],
)
def test_a_request_that_says_something_else_is_refused_by_name(body: bytes, said: str) -> None:
    with pytest.raises(BadRequestError, match=said):
        parse_request(body)


def test_what_routers_add_is_no_reason_to_refuse() -> None:
    added = {"stream": False, "return_logprob": False, "log_metrics": True, "rid": None, "text": None}
    plain = {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "n": 1, "max_new_tokens": 0, "repetition_penalty": 1.0}
    assert parse_request(asking(**added, sampling_params=plain)) == (question([1, 2, 3]), None)


def test_the_largest_token_id_and_float_survive() -> None:
    assert from_base64(to_base64(array(INT32, [0, MAX_INT32])), INT32).tolist() == [0, MAX_INT32]
    assert base64.b64decode(to_base64(array(INT32, [1]))) == b"\x01\0\0\0"


def test_columns_become_rows() -> None:
    assert table_of([array(INT32, [1, 2]), array(INT32, [3, 4])], INT32).tolist() == [1, 3, 2, 4]
    assert table_of([], INT32) == array(INT32)


# The vocabulary.


ADDED = {"added_tokens": [{"id": 2, "content": "<end>"}]}
CONFIG = b'{"added_tokens_decoder": {"3": {"content": "<pad>"}}}'


@pytest.mark.parametrize("vocab", [{"a": 0, "b": 1}, [["a", -1.0], ["b", -2.0]]], ids=["BPE", "Unigram"])
def test_a_vocabulary_is_that_of_the_files_with_what_they_add(vocab: Any) -> None:
    tokenizer = json.dumps({"model": {"vocab": vocab}, **ADDED}).encode()
    assert vocabulary_in(tokenizer, CONFIG) == {"a": 0, "b": 1, "<end>": 2, "<pad>": 3}
    assert vocabulary_in(tokenizer, None) == {"a": 0, "b": 1, "<end>": 2}


@pytest.mark.parametrize("tokenizer", [b"{", b"[]", b"{}", b'{"model": {"vocab": 7}}', b'{"model": {"vocab": [7]}}'])
def test_files_without_a_vocabulary_are_said_to_have_none(tokenizer: bytes) -> None:
    with pytest.raises(ValueError, match=r"tokenizer\.json has no vocabulary|Expecting property name"):
        vocabulary_in(tokenizer, None)


def test_a_digest_is_of_what_each_id_stands_for() -> None:
    digest = vocabulary_digest({"a": 0, "b": 1})
    assert digest == vocabulary_digest({"b": 1, "a": 0})
    assert digest not in {vocabulary_digest({"a": 1, "b": 0}), vocabulary_digest({"a": 0, "b": 1, "c": 2})}
    assert len(digest) == 16
