"""SGLang's words for log-probabilities of given tokens, read as slime, miles and AReaL read them. Pure."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.tiny_teacher import VOCABULARY, computed

from rewardpool_api.teacher_wire import BadRequestError, SequenceQuestion, SglangWords, answer, parse_request, question

TOKENS = [3, 1, 4, 1, 5, 9]
EXPECTED = computed(question(TOKENS)).logprobs.tolist()


def asking(**fields: Any) -> dict[str, Any]:
    """What slime and miles send, with some fields changed."""
    sampling = {"temperature": 0, "max_new_tokens": 0, "skip_special_tokens": False}
    request = {"input_ids": TOKENS, "sampling_params": sampling, "return_logprob": True, "logprob_start_len": 0}
    return {**request, **fields}


def parsed(request: Mapping[str, Any]) -> tuple[SequenceQuestion, SglangWords]:
    asked, words = parse_request(json.dumps(request).encode())
    assert words is not None
    return asked, words


def meta_info(request: Mapping[str, Any]) -> Any:
    asked, words = parsed(request)
    body = answer(computed(asked), asked, words, model="teacher", echo={"revision": "r"})
    return json.loads(body)["meta_info"]


def of_response(items: Any, length: int) -> Any:
    """As slime and miles cut them: without the first item, the last ones."""
    return items[1:][-length:]


def test_slime_and_miles_find_each_token_of_the_response() -> None:
    items = of_response(meta_info(asking())["input_token_logprobs"], 4)
    assert [item[1] for item in items] == TOKENS[-4:]
    assert [item[0] for item in items] == EXPECTED[-4:]


@pytest.mark.parametrize("length", range(1, 5))
def test_areal_finds_each_token_although_it_takes_no_null(length: int) -> None:
    sampling = {"max_new_tokens": 1, "temperature": 0.0}
    request = asking(logprob_start_len=len(TOKENS) - length - 1, top_logprobs_num=0, stream=False)
    items = meta_info({**request, "sampling_params": sampling})["input_token_logprobs"]
    assert [float(item[0]) for item in items][-length:] == EXPECTED[-length:]


def test_the_most_likely_tokens_stand_at_their_position_the_likeliest_first() -> None:
    rows = of_response(meta_info(asking(top_logprobs_num=2))["input_top_logprobs"], 4)
    found = computed(question(TOKENS, start=2, top_k=2))
    assert [[item[1] for item in row] for row in rows] == [found.top_ids[at : at + 2].tolist() for at in (0, 2, 4, 6)]
    assert [item[0] for row in rows for item in row] == found.top_logprobs.tolist()


def test_given_ids_of_all_positions_are_miles_unions() -> None:
    rows = of_response(meta_info(asking(token_ids_logprob=[7, 2]))["input_token_ids_logprobs"], 4)
    found = computed(question(TOKENS, start=2, ids=[[7, 2]] * 4))
    assert [[item[1] for item in row] for row in rows] == [[7, 2]] * 4
    assert [item[0] for row in rows for item in row] == found.ids_logprobs.tolist()


def test_given_ids_of_each_position_stay_at_theirs() -> None:
    positions: list[list[int]] = [[], [], [7], [2, 8], [], [1, 2, 3]]
    found = meta_info(asking(token_ids_logprob_positions=positions))["input_token_ids_logprobs"]
    assert found[0] is None
    assert [[item[1] for item in row] for row in found[1:]] == positions[1:]
    assert [item[0] for item in found[5]] == computed(question(TOKENS, start=5, ids=[[1, 2, 3]])).ids_logprobs.tolist()


@given(
    st.lists(st.integers(0, VOCABULARY - 1), min_size=2, max_size=12),
    st.integers(0, 11),
    st.integers(0, 5),
    st.lists(st.integers(0, VOCABULARY - 1), max_size=4) | st.none(),
)
def test_there_is_an_item_for_each_position_from_the_start_on(
    tokens: list[int], start: int, k: int, ids: list[int] | None
) -> None:
    start = min(start, len(tokens) - 1)
    asked = asking(input_ids=tokens, logprob_start_len=start, top_logprobs_num=k, token_ids_logprob=ids)
    found = meta_info(asked)
    own = found["input_token_logprobs"]
    assert [item[1] for item in own] == tokens[start:]
    assert [item[0] for item in own if item[0] is not None] == computed(question(tokens)).logprobs.tolist()[
        max(start - 1, 0) :
    ]
    assert len(found.get("input_top_logprobs", own)) == len(own)
    assert ("input_top_logprobs" in found) == (k > 0)
    assert ("input_token_ids_logprobs" in found) == (ids is not None)
    assert len(found.get("input_token_ids_logprobs", own)) == len(own)


def test_whose_answer_it_is_stands_beside_it() -> None:
    asked, words = parsed(asking(rid="r-1"))
    said = json.loads(answer(computed(asked), asked, words, model="teacher", echo={"request_id": "q"}))
    assert (said["model"], said["request_id"], said["meta_info"]["id"]) == ("teacher", "q", "r-1")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"return_logprob": False}, "return_logprob is False, and must be true"),
        ({"return_logprob": [True]}, "return_logprob is"),
        ({"logprob_start_len": None}, "logprob_start_len is not set"),
        ({"logprob_start_len": -1}, "logprob_start_len is not set"),
        ({"logprob_start_len": -2}, "logprob_start_len is -2, and must be 0 to 5"),
        ({"logprob_start_len": 6}, "logprob_start_len is 6, and must be 0 to 5"),
        ({"logprob_start_len": True}, "logprob_start_len must be a whole number"),
        ({"top_logprobs_num": "2"}, "top_logprobs_num must be a whole number"),
        ({"input_ids": [[1, 2]]}, r"input_ids\[0\] is \[1, 2\], not a whole number"),
        ({"token_ids_logprob": [1.5]}, r"token_ids_logprob\[0\] is 1.5"),
        ({"token_ids_logprob_positions": [[1]]}, "is 1 lists: give a list of token ids for each of 6 tokens"),
        ({"token_ids_logprob_positions": [[0]] * 5 + [[-1]]}, r"token_ids_logprob_positions\[5\]\[0\] is -1"),
        ({"token_ids_logprob": [1], "token_ids_logprob_positions": [[]] * 6}, "are both set"),
        ({"return_flat_raw_top_logprobs": True}, "return_flat_raw_top_logprobs is True, and must not be set"),
        ({"return_text_in_logprobs": True}, "return_text_in_logprobs is True"),
        ({"return_hidden_states": True}, "return_hidden_states is True"),
        ({"session_params": {"id": "s"}}, "session_params is"),
        ({"text": "hello"}, "text must not be set"),
        ({"image_data": ["x"]}, "image_data must not be set"),
        ({"stream": True}, "stream must be false"),
        ({"sampling_params": None}, "max_new_tokens is None, and must be 0"),
        ({"sampling_params": {"max_new_tokens": 16}}, "max_new_tokens is 16, and must be 0"),
        ({"sampling_params": {"max_new_tokens": 0, "temperature": 0.7}}, "temperature is 0.7, and must be 0 or 1"),
        ({"sampling_params": {"max_new_tokens": 0, "top_p": 0.9}}, "sampling_params.top_p is 0.9"),
        ({"sampling_params": []}, "sampling_params must be an object"),
        ({"model": 7}, "model must be a text"),
    ],
)
def test_what_an_answer_would_not_follow_is_refused_by_name(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(BadRequestError, match=said):
        parsed(asking(**fields))


def test_what_the_routers_add_is_no_reason_to_refuse() -> None:
    added = {"model": None, "return_text_in_logprobs": False, "stream": False, "log_metrics": True}
    added |= {"background": False, "no_logs": False, "return_bytes": False, "return_entropy": False}
    assert parsed(asking(**added)) == parsed(asking(model="unknown"))


def test_a_problem_is_said_by_the_names_of_the_request() -> None:
    words = SglangWords()
    assert words.reworded("top_k is 9, and must") == "top_logprobs_num is 9, and must"
    assert words.reworded("ids must not be set") == "token_ids_logprob must not be set"
    assert words.reworded("input_ids[1] is 9") == "input_ids[1] is 9"
