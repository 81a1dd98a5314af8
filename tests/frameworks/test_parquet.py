"""Files of rows in Parquet, read and written by the real pyarrow."""

import json
import os
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from rewardpool import ConfigError, Reward

USER = {"role": "user", "content": "?"}


def length(solution_str: str, **_: Any) -> float:
    if solution_str == "boom":
        raise ValueError("no")
    return float(len(solution_str))


def written(folder: Path, rows: list[dict[str, Any]]) -> Path:
    path = folder / "rows.parquet"
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path, row_group_size=100)
    return path


def scored(file: Path, out: Path) -> list[dict[str, Any]]:
    with Reward(length, run_in="threads", on_failure="skip") as reward:
        reward.score_file(file, out)
    rows: list[dict[str, Any]] = pyarrow.parquet.read_table(out).to_pylist()
    return rows


def test_rows_of_parquet_become_rows_of_parquet_in_their_order(tmp_path: Path) -> None:
    rows = [{"prompt": [USER], "response": "boom" if row == 7 else "a" * row, "id": row} for row in range(600)]
    found = scored(written(tmp_path, rows), tmp_path / "out.parquet")
    assert [(one["row"], one["id"]) for one in found] == [(row, str(row)) for row in range(600)]
    assert [one["score"] for one in found] == [None if row == 7 else float(row) for row in range(600)]
    assert (found[7]["fault"], found[7]["kind"], found[8]["fault"]) == ("verifier", "function_failed", None)
    assert json.loads(found[8]["components"]) == {"length": 8.0}


def test_pairs_have_a_score_for_each_answer(tmp_path: Path) -> None:
    rows = [{"prompt": "?", "chosen": "aaa", "rejected": "b", "subset": "easy"}]
    [found] = scored(written(tmp_path, rows), tmp_path / "out.parquet")
    assert (found["chosen_score"], found["rejected_score"], found["subset"]) == (3.0, 1.0, "easy")


def test_a_row_that_is_wrong_and_a_file_that_is_no_parquet_are_refused(tmp_path: Path) -> None:
    file = written(tmp_path, [{"prompt": "?", "response": "a"}, {"prompt": "?", "response": None}])
    with pytest.raises(ConfigError, match=r"rows\.parquet, row 1: response is None"):
        scored(file, tmp_path / "out.jsonl")
    file.write_text("nonsense")
    with pytest.raises(ConfigError, match="is no Parquet file that can be read"):
        scored(file, tmp_path / "out.jsonl")


def test_a_damaged_page_is_refused_by_its_row(tmp_path: Path) -> None:
    file = written(tmp_path, [{"prompt": "?", "response": f"{row}"} for row in range(100)])
    data = bytearray(file.read_bytes())
    data[4:200] = bytes(196)
    file.write_bytes(data)
    with pytest.raises(ConfigError, match=r"rows\.parquet, row 0: cannot be read"):
        scored(file, tmp_path / "out.jsonl")


def test_the_output_is_on_the_disk_before_the_journal_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(os.fstat(fd).st_ino))
    out = tmp_path / "out.parquet"
    scored(written(tmp_path, [{"prompt": "?", "response": "a"}]), out)
    assert out.stat().st_ino in synced
