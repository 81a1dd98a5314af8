"""The journal of a file's rows: whatever prefix of it is left, every row is in it once in the end."""

import json
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewardpool import ConfigError
from rewardpool._files.journal import Journal

ABOUT = {"input": {"sha256": "ab"}, "reward": {"by": "pool rl/skywork"}}
ROWS = 12


def opened(path: Path, **about: Any) -> Journal:
    return Journal(path, about={**ABOUT, **about}, rows=ROWS)


def record(row: int, run: int = 0) -> dict[str, Any]:
    return {"row": row, "score": row + run / 10, "problem": "ä" * row}


def filled(path: Path, rows: Iterable[int]) -> bytes:
    with opened(path) as journal:
        journal.add(record(row) for row in rows)
    return path.read_bytes()


@settings(max_examples=50)
@given(order=st.permutations(range(ROWS)), cut=st.floats(0, 1), second_cut=st.floats(0, 1), sizes=st.integers(1, ROWS))
def test_any_prefix_goes_on_to_every_row_once(order: list[int], cut: float, second_cut: float, sizes: int) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder, "journal")
        whole = filled(path, order)
        for run, share in enumerate((cut, second_cut), start=1):
            path.write_bytes(whole[: round(share * len(whole))])
            with opened(path) as journal:
                kept = journal.done
                left = [row for row in order if not journal.is_done(row)]
                assert kept + len(left) == ROWS
                for start in range(0, len(left), sizes):
                    journal.add(record(row, run) for row in left[start : start + sizes])
                records = list(journal.in_order())
            whole = path.read_bytes()
            lines = whole.splitlines()[1:]
            assert [one["row"] for one in records] == list(range(ROWS))
            assert sorted(json.loads(line)["row"] for line in lines) == list(range(ROWS))


def test_a_torn_last_line_is_cut_off_and_the_others_stay(tmp_path: Path) -> None:
    whole = filled(tmp_path / "journal", range(3))
    (tmp_path / "journal").write_bytes(whole[:-4])
    with opened(tmp_path / "journal") as journal:
        assert [journal.is_done(row) for row in range(4)] == [True, True, False, False]
    assert (tmp_path / "journal").read_bytes() == b"".join(whole.splitlines(keepends=True)[:-1])


@pytest.mark.parametrize(
    ("about", "message"),
    [
        ({"input": {"sha256": "cd"}}, "was begun with the input sha256 ab, and this is sha256 cd"),
        (
            {"reward": {"by": "pool rl/other"}},
            "was begun with the reward by pool rl/skywork, and this is by pool rl/other",
        ),
    ],
)
def test_another_input_or_reward_is_refused_by_name(tmp_path: Path, about: dict[str, Any], message: str) -> None:
    before = filled(tmp_path / "journal", range(3))
    with pytest.raises(ConfigError, match=message):
        opened(tmp_path / "journal", **about)
    assert (tmp_path / "journal").read_bytes() == before


def test_two_processes_do_not_write_into_one(tmp_path: Path) -> None:
    with opened(tmp_path / "journal"), pytest.raises(ConfigError, match="another process scores into it"):
        opened(tmp_path / "journal")


@pytest.mark.parametrize("line", [b"[]\n", b"nonsense\n", b'{"row": 99}\n', b'{"row": 1}\n', b"\0\0\0\n"])
def test_a_line_that_is_no_record_is_refused_and_left(tmp_path: Path, line: bytes) -> None:
    whole = filled(tmp_path / "journal", range(3)) + line
    (tmp_path / "journal").write_bytes(whole)
    with pytest.raises(ConfigError, match=f"is damaged at byte {len(whole) - len(line)}"):
        opened(tmp_path / "journal")
    assert (tmp_path / "journal").read_bytes() == whole


def test_another_file_is_not_taken_for_one(tmp_path: Path) -> None:
    (tmp_path / "journal").write_text('{"prompt": "?"}\n')
    with pytest.raises(ConfigError, match="is damaged at byte 0"):
        opened(tmp_path / "journal")
