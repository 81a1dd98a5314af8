"""What a researcher holds, read as episodes or refused by name: tables of inputs."""

import json
from types import SimpleNamespace
from typing import Any

import numpy
import pytest

from rewardpool import Episode, InvalidSampleError
from rewardpool._rewards.rows import episodes_of, row_episode, rows_of

CHAT = [{"role": "user", "content": "hi"}]
ANSWER = [{"role": "assistant", "content": "yo"}]
CALL = {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "add"}}]}
NAN = float("nan")


class Frame:
    """Stands in for pandas.DataFrame, whose iteration gives the columns' names."""

    columns = ("prompt", "response")

    def to_dict(self, orient: str) -> list[dict[str, Any]]:
        raise AssertionError("never called")

    def __iter__(self) -> Any:
        return iter(self.columns)


def row_of_frame(**values: Any) -> Any:
    """Stand in for a row of pandas.DataFrame.iterrows."""
    return SimpleNamespace(to_dict=lambda: values, keys=values.keys)


# Rows


@pytest.mark.parametrize(
    ("row", "fields"),
    [
        (("hi", "yo"), {"prompt": "hi", "response": "yo"}),
        (["hi", "yo"], {"prompt": "hi", "response": "yo"}),
        ({"prompt": "hi", "response": "yo"}, {"prompt": "hi", "response": "yo"}),
        ({"prompt": "hi", "completion": "yo"}, {"prompt": "hi", "response": "yo"}),
        (row_of_frame(prompt="hi", response="yo"), {"prompt": "hi", "response": "yo"}),
        ({"prompt": CHAT, "completion": ANSWER}, {"prompt": CHAT, "response": "yo"}),
        (
            {"prompt": "hi", "response": "yo", "ground_truth": 4, "data_source": None, "extra_info": NAN},
            {"ground_truth": 4, "data_source": "", "extra_info": {}},
        ),
        ({"prompt": "hi", "response": "yo", "turns": NAN, "group": NAN, "prompt_tail": None}, {"turns": None}),
        ({"prompt": "hi", "response": "yo", "id": NAN, "response_tokens": NAN}, {"response_tokens": None}),
        ({"prompt": "hi", "response": "yo", "extra_info": '{"level": 1}'}, {"extra_info": {"level": 1}}),
        ({"prompt": "hi", "response": "yo", "id": "a"}, {"id": "a"}),
        ({"prompt": numpy.array(CHAT, dtype=object), "response": "yo"}, {"prompt": CHAT}),
        (
            {"prompt": [{**CHAT[0], "tool_calls": None, "name": None}], "response": numpy.str_("yo")},
            {"response": "yo"},
        ),
        ({"prompt": CHAT, "response": [CALL]}, {"response": "", "turns": [CALL]}),
    ],
)
def test_a_row_is_a_pair_or_a_mapping(row: Any, fields: dict[str, Any]) -> None:
    episode = row_episode(row, 3)
    assert {name: getattr(episode, name) for name in fields} == fields
    assert episode.id == fields.get("id", "#3")


ROW = 'a row is {"prompt": …, "response": …}, a pair of the two, or an Episode'
MESSAGE = 'a message is {"role": "user", "content": "…"}'


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("hi", f"sample #3: it is a str; {ROW}"),
        (None, f"sample #3: it is None; {ROW}"),
        (("hi", "yo", "4"), f"sample #3: it is a tuple of 3; {ROW}"),
        ({"prompt": "hi"}, "sample #3: it has neither response nor completion; "),
        ({"response": "yo"}, "sample #3: it has no prompt; "),
        ({"prompt": "hi", "response": "yo", "completion": "yo"}, "sample #3: it has response and completion; "),
        (
            {"prompt": "hi", "response": "yo", "ground_thruth": 4},
            "sample #3: it has the unknown keys ground_thruth; did you mean ground_truth?; ",
        ),
        (
            {"conversations": []},
            "it has no prompt; it has neither response nor completion; it has the unknown keys conversations",
        ),
        (("hi", None), "sample #3: response is None; give a text, or a list of messages; "),
        (("hi", 4.0), "sample #3: response is a float; give a text, or a list of messages; "),
        ((None, "yo"), "sample #3: prompt is None; give a text, or a list of messages; "),
        (("hi", []), f"sample #3: response has no messages; {MESSAGE}"),
        (({"role": "user", "content": "hi"}, "yo"), "sample #3: prompt is a single mapping; give a text, or a list "),
        (
            ([{"from": "human", "value": "hi"}], "yo"),
            f"sample #3: prompt, turn 1: it has the keys from, value; {MESSAGE}; convert ShareGPT's with ",
        ),
        ((CHAT, [{"content": "yo"}]), f"sample #3: response, turn 1: it has no role, only content; {MESSAGE}"),
        (
            ([*CHAT, {"rol": "user", "content": "hi"}], "yo"),
            f"sample #3: prompt, turn 2: it has rol in place of a role; {MESSAGE}",
        ),
        (
            ([{"role": "user", "text": "hi"}], "yo"),
            "sample #3: prompt, turn 1: it has the unknown keys text; rename text to content; known are ",
        ),
        (
            ([{"role": "user", "content": "hi", "weight": 1, "id": 2}], "yo"),
            "sample #3: prompt, turn 1: it has the unknown keys id, weight; known are ",
        ),
        (
            ([{"role": "asistant", "content": "hi"}], "yo"),
            "sample #3: prompt, turn 1: it has the role 'asistant'; did you mean assistant?; roles are assistant, ",
        ),
        (
            ([{"role": "Human", "content": "hi"}], "yo"),
            "sample #3: prompt, turn 1: it has the role 'Human'; roles are assistant, developer, ",
        ),
        (([{"role": "user", "content": None}], "yo"), "sample #3: prompt, turn 1: its content is None; give a text, "),
        (([{"role": "user", "content": 4}], "yo"), "sample #3: prompt, turn 1: its content is an int; give a text, "),
        (([{"role": "user", "content": ["hi"]}], "yo"), "turn 1: part 1 of its content is a str; a part is "),
        (
            ([{"role": "user", "content": [{"text": "hi"}]}], "yo"),
            "turn 1: part 1 of its content has the keys text; a part is ",
        ),
        (
            ([{"role": "user", "content": [{"type": "text", "content": "hi"}]}], "yo"),
            "turn 1: part 1 of its content has type text, and its text is None",
        ),
        (([{**CALL, "tool_calls": 4}], "yo"), "turn 1: its tool_calls is an int; give a list of calls such as "),
        (([{**CALL, "tool_calls": ["add"]}], "yo"), "turn 1: call 1 of its tool_calls has a str; a call is "),
        (([{**CALL, "tool_calls": [{}, {"function": "add"}]}], "yo"), "call 2 of its tool_calls has a str; a call is "),
        ((["hi"], "yo"), f"sample #3: prompt, turn 1: it is a str, not a mapping; {MESSAGE}"),
        (
            {"prompt": "hi", "response": "yo", "extra_info": "level 1"},
            "sample #3: extra_info is a text that is not JSON (",
        ),
        ({"prompt": "hi", "response": "yo", "extra_info": "[1]"}, "sample #3: extra_info is the JSON text of a list"),
        ({"prompt": "hi", "response": "yo", "extra_info": [1]}, "sample #3: extra_info is a list; give a mapping"),
        ({"prompt": "hi", "response": "yo", "data_source": 4}, "sample #3: data_source is an int; give a text"),
        ({"prompt": "hi", "response": "yo", "turns": "yo"}, "sample #3: turns is a text; give a list of messages"),
    ],
)
def test_any_other_row_is_refused_with_the_form_that_is_accepted(row: Any, said: str) -> None:
    with pytest.raises(InvalidSampleError) as caught:
        row_episode(row, 3)
    assert said in str(caught.value)


def test_an_object_with_a_mapping_in_it_is_refused_with_the_way_to_it() -> None:
    message = SimpleNamespace(model_dump=dict)
    with pytest.raises(InvalidSampleError, match=r"it is a SimpleNamespace, .*give message\.model_dump\(\)"):
        row_episode(([message], "yo"), 0)


def test_an_episode_is_read_by_the_same_schema() -> None:
    with pytest.raises(InvalidSampleError, match=r"sample a: prompt, turn 1: .*ShareGPT"):
        Episode(prompt=[{"from": "human", "value": "hi"}], response="yo", id="a")


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ({"prompt": ["hi"], "response": ["yo"]}, f"give a list of rows, not a dict; {ROW}"),
        ("hi", f"give a list of rows, not a str; {ROW}"),
        (None, f"give a list of rows, not None; {ROW}"),
        (Episode(prompt="hi", response="yo"), f"give a list of rows, not a single Episode; {ROW}"),
        (Frame(), f'give frame.to_dict("records") for a Frame; {ROW}'),
    ],
)
def test_what_is_no_list_of_rows_is_refused(rows: Any, said: str) -> None:
    with pytest.raises(TypeError) as caught:
        rows_of(rows)
    assert str(caught.value) == said


# Columns


@pytest.mark.parametrize(
    "column",
    [
        lambda values: values,
        tuple,
        iter,
        lambda values: (one for one in values),
        lambda values: numpy.array(values, dtype=object),
        lambda values: dict.fromkeys(values).keys(),
    ],
)
def test_a_column_is_any_iterable(column: Any) -> None:
    episodes = episodes_of(column(["a?", "b?"]), column(["1", "2"]), ground_truth=column(["3", "4"]))
    assert [(one.prompt, one.response, one.ground_truth, one.id) for one in episodes] == [
        ("a?", "1", "3", "#0"),
        ("b?", "2", "4", "#1"),
    ]


def test_rows_of_one_prompt_are_a_group_whatever_holds_its_messages() -> None:
    prompts = [CHAT, tuple(CHAT), numpy.array(CHAT, dtype=object), "hi"]
    assert [one.group for one in episodes_of(prompts, ["1", "2", "3", "4"])] == [0, 0, 0, 1]


@pytest.mark.parametrize(
    ("extra_info", "read"),
    [
        (None, [{}, {}]),
        ({"a": 1}, [{"a": 1}, {"a": 1}]),
        (json.dumps({"a": 1}), [{"a": 1}, {"a": 1}]),
        ([{"a": 1}, None], [{"a": 1}, {}]),
        ([NAN, '{"a": 1}'], [{}, {"a": 1}]),
    ],
)
def test_extra_info_is_of_all_rows_or_of_each(extra_info: Any, read: list[Any]) -> None:
    assert [one.extra_info for one in episodes_of(["?", "?"], ["1", "2"], extra_info=extra_info)] == read


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"prompts": None}, "prompts must be a list with one for each response, not None"),
        ({"prompts": {"a": 1}}, "prompts must be a list with one for each response, not a single one (a dict)"),
        ({"prompts": CHAT}, "not a single conversation: a conversation is itself a list of messages"),
        ({"prompts": [{"prompt": "hi", "response": "yo"}]}, "it has rows, for which there is reward.rate(rows)"),
        ({"prompts": Frame()}, "prompts must be a list with one for each response, not a Frame"),
        ({"prompts": {"a"}}, "prompts must be a list with one for each response, not a set"),
        ({"responses": "yo"}, "responses must be a list with one for each response, not a single one (a str)"),
        ({"responses": 4}, "responses must be a list with one for each response, not an int"),
        ({"ground_truth": "4"}, "ground_truth must be a list with one for each response, not a single one (a str)"),
        ({"data_source": 4}, "data_source must be a list with one for each response, not an int"),
    ],
)
def test_a_column_that_is_none_is_refused(columns: dict[str, Any], said: str) -> None:
    with pytest.raises(TypeError) as caught:
        episodes_of(**{"prompts": ["hi"], "responses": ["yo"], **columns})
    assert said in str(caught.value)


def test_the_row_of_a_wrong_message_is_named() -> None:
    with pytest.raises(InvalidSampleError, match="sample #1: prompt, turn 1: it has no role"):
        episodes_of([CHAT, [{"content": "hi"}]], ["a", "b"])
