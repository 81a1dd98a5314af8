import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewardpool._client.answer import check_echo, read_judgement
from rewardpool._client.answer import read_score as read_echoed_score
from rewardpool._client.rules.retry import RetryableError
from rewardpool.errors import FunctionFailedError, InvalidSampleError, SampleTooLongError, ScoreError
from rewardpool_api import contract
from rewardpool_api.contract import AnsweringWorker, CallerError, Echo, Signature


def body(*items: object, **fields: object) -> bytes:
    return json.dumps({"data": list(items), **fields}).encode()


def read_score(status: int, answer: bytes, sample: str) -> float:
    return read_echoed_score(status, answer, sample, echo=Echo("r-1", is_required=False)).value


@pytest.mark.parametrize(
    ("answer", "score"),
    [
        (body({"index": 0, "embedding": [-1.25]}), -1.25),
        (body({"embedding": [0]}), 0.0),
    ],
)
def test_the_score_is_the_one_number_of_the_embedding(answer: bytes, score: float) -> None:
    assert read_score(200, answer, "s") == score


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"not json",
        b"\xff\xfe",
        b"[]",
        b"{}",
        b"null",
        b'{"data": []}',
        b'{"data": {}}',
        b'{"data": [null]}',
        b'{"data": [{"embedding": []}]}',
        b'{"data": [{"embedding": [0.1, 0.2, 7.5]}]}',
        b'{"data": [{"embedding": 1.0}]}',
        b'{"data": [{"embedding": [NaN]}]}',
        b'{"data": [{"embedding": [Infinity]}]}',
        b'{"data": [{"embedding": [true]}]}',
        b'{"data": [{"embedding": ["1.0"]}]}',
        b'{"data": [{"embedding": [null]}]}',
        b'{"data": [{"embedding": [1' + b"0" * 400 + b"]}]}",
        b'{"data": [{"index": [], "embedding": [1.0]}]}',
        b'{"data": [{"index": 1, "embedding": [1.0]}]}',
        b'{"data": [{"embedding": [1.0]}, {"embedding": [1.0]}]}',
        b'{"error": {"code": "who_knows", "message": "x"}}',
        b"[" * 100_000,
    ],
)
def test_an_invalid_response_is_retried_and_never_a_number(answer: bytes) -> None:
    with pytest.raises(RetryableError) as caught:
        read_score(200, answer, "s")
    assert caught.value.kind == "invalid_response"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["data", "embedding", "steps", "index", "error", "code", "message"]), inner, max_size=3
        )
    ),
    max_leaves=12,
)


@given(st.binary(max_size=50) | json_values.map(lambda value: json.dumps(value).encode()))
def test_whatever_a_worker_says_the_result_is_a_finite_number_or_a_named_error(answer: bytes) -> None:
    try:
        score = read_score(200, answer, "s")
    except (RetryableError, InvalidSampleError, FunctionFailedError, SampleTooLongError):
        return
    assert isinstance(score, float)
    assert math.isfinite(score)


def test_a_sample_that_is_too_long_is_named_with_both_lengths() -> None:
    error = CallerError(code="sample_too_long", message="long", length_tokens=1500, limit_tokens=1024)
    with pytest.raises(
        SampleTooLongError, match="sample 17: has 1500 tokens and the model takes at most 1024"
    ) as caught:
        read_score(200, json.dumps(error.to_wire()).encode(), "17")
    assert (caught.value.length_tokens, caught.value.limit_tokens) == (1500, 1024)


@pytest.mark.parametrize(
    ("code", "kind"), [("invalid_sample", InvalidSampleError), ("function_failed", FunctionFailedError)]
)
def test_an_error_of_the_contract_is_the_samples_own(code: str, kind: type[Exception]) -> None:
    answer = json.dumps({"data": [], "error": {"code": code, "message": "ValueError: no answer found"}}).encode()
    with pytest.raises(kind, match="ValueError: no answer found"):
        read_score(200, answer, "s")


@pytest.mark.parametrize(
    ("message", "length", "limit"),
    [
        ("The input (1500 tokens) is longer than the model's context length (1024 tokens).", 1500, 1024),
        (
            "This model's maximum context length is 1024 tokens. However, your request has 1500 input tokens. "
            "Please reduce the length of the input messages.",
            1500,
            1024,
        ),
    ],
)
def test_an_engines_own_words_for_too_long_are_understood(message: str, length: int, limit: int) -> None:
    with pytest.raises(SampleTooLongError) as caught:
        read_score(400, json.dumps({"message": message}).encode(), "s")
    assert (caught.value.length_tokens, caught.value.limit_tokens) == (length, limit)


@pytest.mark.parametrize("status", [400, 413, 422])
def test_any_other_refusal_is_the_samples_fault_and_quoted(status: int) -> None:
    with pytest.raises(InvalidSampleError, match=f"HTTP {status}: model is required"):
        read_score(status, b"model is required", "s")


@pytest.mark.parametrize("status", [301, 409, 501])
def test_a_status_that_no_retry_mends_ends_the_sample(status: int) -> None:
    with pytest.raises(ScoreError, match=f"HTTP {status}"):
        read_score(status, b"", "s")


def test_a_quoted_answer_is_cut() -> None:
    with pytest.raises(RetryableError) as caught:
        read_score(500, b"x" * 1_000_000, "s")
    assert len(caught.value.problem) < 400


def test_a_judgement_is_the_text_of_the_first_choice() -> None:
    answer = json.dumps({"choices": [{"message": {"content": "Yes."}}]}).encode()
    assert read_judgement(200, answer, "s") == "Yes."


@pytest.mark.parametrize(("reason", "is_cut_off"), [("length", True), ("stop", False), (None, False)])
def test_whether_a_judgement_is_cut_off_is_read_from_its_finish_reason(reason: str | None, is_cut_off: bool) -> None:
    for content in ("Score: 7", "", None):
        answer = json.dumps({"choices": [{"message": {"content": content}, "finish_reason": reason}]}).encode()
        assert read_judgement(200, answer, "s").is_cut_off is is_cut_off


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
@pytest.mark.parametrize(("reasoning", "has_reasoning"), [("Hm.", True), ("", False), (None, False)])
def test_reasoning_that_the_engine_separates_is_no_part_of_the_judgement(
    name: str, reasoning: str | None, has_reasoning: bool
) -> None:
    answer = json.dumps({"choices": [{"message": {"content": None, name: reasoning}}]}).encode()
    said = read_judgement(200, answer, "s")
    assert (said, said.has_reasoning) == ("", has_reasoning)


@pytest.mark.parametrize(
    "answer", [b"{}", b"no", b'{"choices": []}', b'{"choices": [{}]}', b'{"choices": [{"message": {"content": [1]}}]}']
)
def test_a_judgement_without_text_is_a_setback(answer: bytes) -> None:
    with pytest.raises(RetryableError):
        read_judgement(200, answer, "s")


def refusal(code: object) -> bytes:
    return json.dumps({"error": {"code": code, "message": "no"}}).encode()


@pytest.mark.parametrize(
    ("status", "answer", "kind"),
    [
        (404, refusal("model_not_found"), "waiting"),  # smg with an empty list
        (503, refusal("no_available_workers"), "waiting"),
        (404, refusal(404), "not_found"),
        (404, b"not found", "not_found"),
        (404, b'{"error": "gone"}', "not_found"),
        (503, b"", "busy"),
        (429, refusal("model_not_found"), "busy"),
    ],
)
def test_a_router_without_a_worker_is_told_from_one_that_is_none(status: int, answer: bytes, kind: str) -> None:
    with pytest.raises(RetryableError) as caught:
        read_score(status, answer, "s")
    assert caught.value.kind == kind


def test_a_question_that_is_too_long_has_both_lengths() -> None:
    told = CallerError(code="sample_too_long", message="603 tokens", length_tokens=603, limit_tokens=512)
    with pytest.raises(SampleTooLongError) as caught:
        read_judgement(200, json.dumps(told.to_wire()).encode(), "s")
    assert (caught.value.length_tokens, caught.value.limit_tokens) == (603, 512)


def test_an_error_object_of_another_server_is_quoted() -> None:
    with pytest.raises(InvalidSampleError, match="no such model"):
        read_judgement(200, b'{"error": {"code": 404, "message": "no such model"}}', "s")


ONE = {"index": 0, "embedding": [0.5]}


def test_an_answer_says_which_revision_scored() -> None:
    answer = body(ONE, request_id="r-1", revision="5f1c")
    assert read_echoed_score(200, answer, "s", echo=Echo("r-1", is_required=True)) == (0.5, Signature("5f1c", None))


@pytest.mark.parametrize("is_required", [True, False])
def test_an_answer_of_another_wire_contract_is_refused_in_words(is_required: bool) -> None:
    answer = body(ONE, request_id="r-1", revision="5f1c", wire=2)
    with pytest.raises(RetryableError, match="trainer speaks version 1 of the wire contract and the worker version 2"):
        read_echoed_score(200, answer, "s", echo=Echo("r-1", is_required))


def test_an_answer_without_a_version_is_of_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contract, "WIRE_VERSION", 2)
    assert Echo("r-1", is_required=True, revision="5f1c").header == "r-1;wire=2;revision=5f1c"
    with pytest.raises(RetryableError, match="the worker version 1: install"):
        read_echoed_score(200, body(ONE, request_id="r-1;wire=2"), "s", echo=Echo("r-1", is_required=True))


@pytest.mark.parametrize("is_required", [True, False])
@pytest.mark.parametrize("answer", [body(ONE, request_id="r-2", revision="5f1c"), body(ONE, request_id="r-2")])
def test_an_answer_to_another_request_is_never_a_score(answer: bytes, is_required: bool) -> None:
    with pytest.raises(RetryableError, match="to the request 'r-2'") as caught:
        read_echoed_score(200, answer, "s", echo=Echo("r-1", is_required))
    assert caught.value.kind == "invalid_response"


@pytest.mark.parametrize("answer", [body(ONE), body(ONE, request_id="r-1"), body(ONE, revision="5f1c")])
def test_a_pool_of_ours_must_say_whose_the_answer_is(answer: bytes) -> None:
    with pytest.raises(RetryableError, match=r"does not repeat|revision is None"):
        read_echoed_score(200, answer, "s", echo=Echo("r-1", is_required=True))


def test_a_bare_url_may_say_nothing() -> None:
    assert read_echoed_score(200, body(ONE), "s", echo=Echo("r-1", is_required=False)) == (0.5, Signature(None, None))


def test_an_error_in_an_answer_to_another_request_is_not_this_samples() -> None:
    error = json.dumps({**CallerError(code="invalid_sample", message="no").to_wire(), "request_id": "r-2"}).encode()
    with pytest.raises(RetryableError, match="to the request 'r-2'"):
        read_echoed_score(200, error, "s", echo=Echo("r-1", is_required=False))


def test_words_of_a_judge_for_another_request_are_refused() -> None:
    with pytest.raises(RetryableError, match="to the request 'r-2'"):
        check_echo(200, json.dumps({"choices": [], "request_id": "r-2"}).encode(), Echo("r-1", is_required=False))


@pytest.mark.parametrize("name", ["", "a\n", "\ud800", "a" * 254, 7, None])
def test_a_name_of_a_worker_that_cannot_be_one_is_left_out(name: object) -> None:
    answer = json.dumps({"data": [{"embedding": [1.0]}], "worker": {"name": name, "seconds": 2.0}}).encode()
    echo = Echo("r-1", is_required=False)
    assert read_echoed_score(200, answer, "s", echo=echo).by.worker == AnsweringWorker(None, 2.0)
