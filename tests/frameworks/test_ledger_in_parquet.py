"""A ledger whose closed files are Parquet, written and read by the real pyarrow."""

import errno
import json
import os
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from rewardpool import Episode
from rewardpool._files.ledger import LedgerRecords
from rewardpool._rewards.ledger import parquet, writer
from rewardpool._rewards.ledger.config import LedgerConfig
from rewardpool._rewards.ledger.record import LedgerScorer
from rewardpool._rewards.ledger.writer import Ledger
from rewardpool._rewards.reward_function import PartScore

MESSAGES = [{"role": "user", "content": "?"}]


def keep(folder: Path, *prompts: Any, **settings: Any) -> Ledger:
    """A ledger that has ended, with a score for each prompt."""
    with Ledger(LedgerConfig(folder=folder, text=True, **settings)) as ledger:
        for number, prompt in enumerate(prompts):
            episode = Episode(prompt=prompt, response="a", id=f"{number}", group=number, extra_info={"level": number})
            ledger.add(
                LedgerScorer(part="length", commits={}),
                episode,
                PartScore(1.0),
                seconds=0.1,
                revisions=(),
                workers=["w0"],
            )
    return ledger


def records(folder: Path) -> list[dict[str, Any]]:
    found = LedgerRecords(folder, names=["length"])
    return [dict(record) for record, _ in found._records()]


def test_a_closed_file_is_parquet_and_has_what_the_lines_have(tmp_path: Path) -> None:
    keep(tmp_path / "lines", MESSAGES, "?")
    keep(tmp_path / "parquet", MESSAGES, "?", format="parquet")
    [file] = (tmp_path / "parquet").iterdir()
    assert (file.suffix, file.stat().st_mode & 0o777) == (".parquet", 0o600)
    assert pyarrow.parquet.read_table(file).column("workers").to_pylist() == [["w0"], ["w0"]]
    known = [
        {name: value for name, value in one.items() if value is not None and name != "at"}
        for one in records(tmp_path / "lines")
    ]
    assert [{**one, "at": None} for one in records(tmp_path / "parquet")] == [{**one, "at": None} for one in known]


def test_what_a_killed_process_left_as_lines_is_read_beside_parquet(tmp_path: Path) -> None:
    keep(tmp_path, "?", format="parquet")
    record = {"at": 1.0, "part": "length", "prompt_hash": "p", "response_hash": "r", "score": 2.0, "response": "a"}
    (tmp_path / "a.jsonl").write_text(json.dumps(record) + "\n")
    assert sorted(one["score"] for one in records(tmp_path)) == [1.0, 2.0]


def test_lines_that_become_parquet_while_they_are_read_stay_readable(tmp_path: Path) -> None:
    keep(tmp_path, "?")
    reading = LedgerRecords(tmp_path, names=["length"])
    before = reading.digest()
    [lines] = tmp_path.iterdir()
    parquet.rewrite(lines)
    assert reading.digest() == before
    assert reading.check().rows == 1


def test_the_last_file_may_take_longer_to_become_parquet_than_to_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "CLOSE_SECONDS", 0.0)
    assert keep(tmp_path, "?", format="parquet").report().stopped is None
    assert [file.suffix for file in tmp_path.iterdir()] == [".parquet"]


def test_a_disk_that_is_full_then_stops_the_ledger_and_leaves_the_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "fsync", full)
    ledger = keep(tmp_path, "?", "?", format="parquet")
    assert (ledger.report().records, ledger.report().stopped) == (2, "No space left on device")
    [lines] = tmp_path.iterdir()
    assert (lines.suffix, len(records(tmp_path))) == (".jsonl", 2)


def test_a_record_that_fits_in_no_column_leaves_its_file_as_lines_and_the_ledger_goes_on(tmp_path: Path) -> None:
    with Ledger(LedgerConfig(folder=tmp_path, text=True, format="parquet", file_mib=1)) as ledger:
        for version in ("one", 2):
            episode = Episode(prompt="?", response="a" * (1 << 20), version=version)  # type: ignore[arg-type]
            ledger.add(LedgerScorer(part="length", commits={}), episode, PartScore(1.0), seconds=0.1, revisions=())
            ledger.flush()
    assert (ledger.report().records, ledger.report().stopped) == (2, None)
    assert sorted(file.suffix for file in tmp_path.iterdir()) == [".jsonl", ".parquet"]
    assert [one["version"] for one in records(tmp_path)] == ["one", 2]


def test_a_torn_file_is_refused_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"PAR1 torn")
    with pytest.raises(Exception, match=r"a\.parquet: is no Parquet file that can be read"):
        records(tmp_path)
