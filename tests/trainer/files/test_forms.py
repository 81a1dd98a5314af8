"""The border of files of rows: which columns are which form, and what is refused by name."""

import json
from pathlib import Path
from typing import Any

import pytest

from rewardpool import ConfigError
from rewardpool._files.source import open_source

USER = {"role": "user", "content": "2 + 2?"}
SYSTEM = {"role": "system", "content": "Be short."}
FOUR = {"role": "assistant", "content": "4"}
FIVE = {"role": "assistant", "content": "5"}
REWARD_BENCH = {
    "prompt": "2 + 2?",
    "chosen": "4",
    "rejected": "5",
    "chosen_model": "a",
    "rejected_model": "b",
    "subset": "math",
    "id": 7,
}


def written(folder: Path, *rows: Any, name: str = "rows.jsonl") -> Path:
    path = folder / name
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def read(path: Path, *ignore: str) -> list[dict[str, Any]]:
    source = open_source(path, ignore=ignore)
    rows = source.rows(source.check())
    return [
        {name: (one.messages(), one.ground_truth) for name, one in row.episodes.items()} | dict(row.carried)
        for row in rows
    ]


@pytest.mark.parametrize(
    ("row", "answers"),
    [
        ({"prompt": "2 + 2?", "response": "4"}, {"response": [USER, FOUR]}),
        ({"prompt": [SYSTEM, USER], "response": [FOUR]}, {"response": [SYSTEM, USER, FOUR]}),
        ({"prompt": "2 + 2?", "completion": "4", "label": True}, {"response": [USER, FOUR]}),
        ({"prompt": [USER], "completion": [FOUR]}, {"response": [USER, FOUR]}),
        ({"input": "2 + 2?", "output": "4"}, {"response": [USER, FOUR]}),
        ({"messages": [SYSTEM, USER, FOUR]}, {"response": [SYSTEM, USER, FOUR]}),
        ({"messages": [USER, FIVE, USER, FOUR]}, {"response": [USER, FIVE, USER, FOUR]}),
        ({"prompt": "2 + 2?", "chosen": "4", "rejected": "5"}, {"chosen": [USER, FOUR], "rejected": [USER, FIVE]}),
        (
            {"prompt": [USER], "chosen": [FOUR], "rejected": [FIVE], "margin": 1.0},
            {"chosen": [USER, FOUR], "rejected": [USER, FIVE]},
        ),
        ({"chosen": [USER, FOUR], "rejected": [USER, FIVE]}, {"chosen": [USER, FOUR], "rejected": [USER, FIVE]}),
        (REWARD_BENCH, {"chosen": [USER, FOUR], "rejected": [USER, FIVE]}),
    ],
)
def test_a_declared_form_is_read(tmp_path: Path, row: dict[str, Any], answers: dict[str, Any]) -> None:
    [found] = read(written(tmp_path, row))
    assert {name: found[name][0] for name in answers} == answers


def test_what_else_is_known_goes_with_each_answer(tmp_path: Path) -> None:
    rows = [
        {"prompt": "?", "response": "4", "ground_truth": "4"},
        {"prompt": "?", "response": "5", "ground_truth": None},
    ]
    assert [row["response"][1] for row in read(written(tmp_path, *rows))] == ["4", None]


def test_id_and_subset_come_out_as_they_went_in(tmp_path: Path) -> None:
    [found] = read(written(tmp_path, REWARD_BENCH))
    assert (found["id"], found["subset"]) == (7, "math")


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"question": "?", "answer": "4"}, "it has the columns answer, question, which is not an accepted form"),
        ({"prompt": "?", "response": "4", "completion": "4"}, "which is more than one form"),
        ({"prompt": "?", "response": "4", "ground_turth": 4}, "has no column ground_turth; did you mean ground_truth?"),
        ({"prompt": "?", "response": None}, "response is None"),
        ({"prompt": "?", "response": 4}, "response is an int"),
        ({"prompt": "?", "response": "4", "id": [1]}, "its id is a list"),
        ({"prompt": "?", "response": "4", "extra_info": "[1]"}, "extra_info is the JSON text of a list"),
        (
            {"prompt": [USER], "response": [USER, FOUR]},
            "response begins with a message of the role user; beside a prompt",
        ),
        ({"chosen": "4", "rejected": "5"}, "chosen is a text, and without a prompt"),
        ({"chosen": [FOUR], "rejected": [FIVE]}, "chosen has one message"),
        ({"messages": [FOUR, USER]}, "the last message of messages has the role user"),
        ({"messages": [{"from": "human", "value": "?"}]}, "convert ShareGPT's"),
        ([1], "is no JSON object"),
    ],
)
def test_every_other_row_is_refused_by_its_line(tmp_path: Path, row: Any, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        open_source(written(tmp_path, row)).check()
    assert refused.value.field.endswith("rows.jsonl, line 1")
    assert message in refused.value.problem


def test_a_refusal_has_the_accepted_forms(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"Accepted are prompt, response .*; messages .*; prompt, chosen, rejected"):
        open_source(written(tmp_path, {"text": "?"})).check()


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"prompt": "?"}, "line 2: it has no response, as the rows before it have"),
        ({"prompt": "?", "response": "4", "extra": 1}, "line 2: it has a column extra"),
        ({"prompt": "?", "response": []}, "line 2: response has no messages"),
    ],
)
def test_a_later_row_must_have_the_form_of_the_first(tmp_path: Path, row: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        open_source(written(tmp_path, {"prompt": "?", "response": "4"}, row)).check()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no rows"),
        ("{}\n", "it has the columns none"),
        ('{"prompt": "?", "response": "4"}\n\n', "line 2: is not JSON"),
        ('{"prompt": "?", "resp', "line 1: is not JSON"),
        ('{"prompt": "\\ud800", "response": "4"}', "line 1: is not JSON"),
    ],
)
def test_a_file_that_is_not_json_lines_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        open_source(path).check()


def test_a_column_may_be_ignored_if_it_is_there(tmp_path: Path) -> None:
    path = written(tmp_path, {"prompt": "?", "chosen": [USER, FOUR], "rejected": [USER, FIVE], "source": 1})
    [row] = read(path, "prompt", "source")
    assert row["chosen"][0] == [USER, FOUR]
    with pytest.raises(ConfigError, match="there is no column score to ignore"):
        open_source(path, ignore=["score"]).check()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("rows.csv", r"must end in \.parquet, or for JSON lines in \.jsonl or \.ndjson"),
        ("none.jsonl", "does not exist"),
        ("folder.jsonl", "is a folder"),
    ],
)
def test_a_path_that_is_no_such_file_is_refused(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "folder.jsonl").mkdir()
    with pytest.raises(ConfigError, match=message):
        open_source(tmp_path / name)
