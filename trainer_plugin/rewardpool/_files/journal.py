"""Journal of a file's rows: an append-only file with a line for each row as it is scored.

    {"journal": 1, "input": …, "reward": …}     the first line: of which input and which reward
    {"row": 7, …}                               one for each row, in the order in which they were scored

A process that is killed leaves a prefix of it, whose last line may be torn. That line is cut off, and its row is scored
again; all others are as they were.
"""

import fcntl
import os
from array import array
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Self

import orjson

from rewardpool._appending import write_whole
from rewardpool.errors import ConfigError

VERSION: Final = 1
# Place of a row that is not scored: no line of a row is at the beginning.
_NONE: Final = 0


class Journal:
    """The journal of one output, open to be written; one process may have it open at a time.

    Args:
        path: Of the file, which is made where there is none.
        about: Of which input and which reward it is: words for messages, by their keys.

    Raises:
        ConfigError: It is of another input or reward, another process writes it, or it is damaged.
        OSError: It cannot be written.
    """

    def __init__(self, path: Path, *, about: Mapping[str, Any], rows: int) -> None:
        self.path = path
        self._about = dict(about)
        self._places = array("Q", bytes(8 * rows))
        self.done = 0
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            self._lock()
            self._end = self._read()
        except BaseException:
            os.close(self._fd)
            raise

    def is_done(self, row: int) -> bool:
        return self._places[row] != _NONE

    def add(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Append records, each with its number as `row`; one that is there already stays as it is.

        Raises:
            OSError: They cannot be written; what was is kept.
        """
        lines: list[bytes] = []
        places: list[tuple[int, int]] = []
        end = self._end
        for record in records:
            line = orjson.dumps(record) + b"\n"
            places.append((record["row"], end))
            lines.append(line)
            end += len(line)
        write_whole(self._fd, b"".join(lines), at=self._end)
        self._end = end
        for row, place in places:
            self._enter(row, place)

    def in_order(self) -> Iterator[Mapping[str, Any]]:
        """Read the records in the order of their rows."""
        with self.path.open("rb") as file:
            for place in self._places:
                if place != _NONE:
                    file.seek(place)
                    yield orjson.loads(file.readline())

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def delete(self) -> None:
        """Delete it; this process alone has it open."""
        self.path.unlink()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _lock(self) -> None:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(
                str(self.path), "another process scores into it; wait for that one, or name another output"
            ) from None

    def _enter(self, row: int, place: int) -> None:
        if self._places[row] == _NONE:
            self.done += 1
            self._places[row] = place

    def _read(self) -> int:
        """Take in what is there, cut off a torn line, and return where the next line begins."""
        place = 0
        with self.path.open("rb") as file:
            for line in file:
                if not line.endswith(b"\n"):
                    break
                self._read_line(line, place)
                place += len(line)
        os.ftruncate(self._fd, place)
        if place == 0:
            line = orjson.dumps({"journal": VERSION, **self._about}) + b"\n"
            write_whole(self._fd, line, at=0)
            place = len(line)
        return place

    def _read_line(self, line: bytes, place: int) -> None:
        try:
            record = orjson.loads(line)
            if place == 0:
                self._check(record)
                return
            row = record["row"]
            is_new = self._places[row] == _NONE
        except (orjson.JSONDecodeError, KeyError, TypeError, IndexError):
            is_new = False
        if not is_new:
            raise ConfigError(
                str(self.path), f"is damaged at byte {place}; delete it to begin anew, or cut it off there to go on"
            )
        self._enter(row, place)

    def _check(self, first: Mapping[str, Any]) -> None:
        if first["journal"] != VERSION:
            raise ConfigError(str(self.path), f"was written by another version ({first['journal']}); delete it")
        for key, mine in self._about.items():
            if (theirs := first.get(key)) != mine:
                raise ConfigError(
                    str(self.path),
                    f"was begun with the {key} {_shown(theirs)}, and this is {_shown(mine)}; go on with that one, name"
                    " another output, or delete the journal to begin anew",
                )


def input_of(path: Path) -> Mapping[str, Any]:
    """Return the input that a journal was begun with; nothing where there is none that can be read."""
    try:
        with path.open("rb") as file:
            first = orjson.loads(file.readline())
    except (OSError, orjson.JSONDecodeError):
        return {}
    found = first.get("input") if isinstance(first, dict) else None
    return found if isinstance(found, dict) else {}


def _shown(value: Any) -> str:
    if not isinstance(value, Mapping):
        return str(value)
    return ", ".join(f"{key} {one}" for key, one in value.items() if not isinstance(one, Mapping))
