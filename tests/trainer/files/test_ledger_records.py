"""The border of a ledger: its records are what they say, or are refused by file and line."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rewardpool import ConfigError
from rewardpool._files.forms import RESPONSE
from rewardpool._files.ledger import LedgerRecords

RECORD = {"at": 1.0, "part": "length", "prompt_hash": "p", "response_hash": "r", "score": 2.0}
TEXTS = {"prompt": "?", "response": "a", "turns": None, "ground_truth": 4, "data_source": "maths", "extra_info": {}}
WHOLE = RECORD | TEXTS


def ledger(folder: Path, *records: Any) -> LedgerRecords:
    path = folder / "one.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return LedgerRecords(path, names=["length"])


def refusal(folder: Path, *records: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        ledger(folder, *records).check()
    return str(caught.value)


@pytest.mark.parametrize("missing", ["prompt", "response"])
def test_a_record_that_lacks_one_of_its_texts_is_refused_by_file_and_line(tmp_path: Path, missing: str) -> None:
    record = {name: value for name, value in WHOLE.items() if name != missing}
    assert f"one.jsonl, line 2: has no {missing}, so that it cannot be scored again" in refusal(tmp_path, WHOLE, record)


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("prompt_hash", ["p"], "is no record of a ledger: its prompt_hash is ['p']"),
        ("score", True, "is no record of a ledger: its score is True"),
        ("turns", "a", "is no record of a ledger: its turns is 'a'"),
        ("prompt", [{"role": "nobody", "content": "?"}], "prompt, turn 1: it has the role 'nobody'"),
    ],
)
def test_a_field_of_another_type_is_refused_by_file_and_line(tmp_path: Path, field: str, value: Any, said: str) -> None:
    assert f"one.jsonl, line 2: {said}" in refusal(tmp_path, WHOLE, WHOLE | {field: value})


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["role", "content", "type", "text", "a"]), inner, max_size=3)
    ),
    max_leaves=6,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])  # the file is written anew each time
@given(changed=st.dictionaries(st.sampled_from([*WHOLE]), JSON, max_size=3), without=st.sets(st.sampled_from([*WHOLE])))
def test_whatever_a_record_says_it_is_read_or_refused_by_its_place(
    tmp_path: Path, changed: dict[str, Any], without: set[str]
) -> None:
    source = ledger(tmp_path, {name: value for name, value in (WHOLE | changed).items() if name not in without})
    try:
        [row] = source.rows(source.check())
        found = row.episodes[RESPONSE].response
    except ConfigError as error:
        found = error.field
    assert found in (f"{tmp_path}/one.jsonl, line 1", WHOLE["response"], changed.get("response"))


def test_a_file_that_was_not_completed_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "one.part").write_text(json.dumps(WHOLE) + "\n")
    with pytest.raises(ConfigError, match=r"one\.part: must end in \.jsonl or \.parquet"):
        LedgerRecords(tmp_path / "one.part", names=["length"])
    with pytest.raises(ConfigError, match="has no files of a ledger"):
        LedgerRecords(tmp_path, names=["length"])
