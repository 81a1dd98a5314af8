"""A ledger as a file of rows: its records are scored again, and compared with what they had.

A ledger is a file of JSON lines or Parquet, or the folder of them. A last line that a killed process left torn is no
record. A job may put a Parquet file in the place of one of JSON lines meanwhile, so all files are open from the begin.
"""

import hashlib
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import NoneType
from typing import Any, BinaryIO, Final

import orjson

from rewardpool._client.connections import open_files
from rewardpool._files.forms import RESPONSE, FileRow, Form, FormError
from rewardpool._files.source import RowSource, pyarrow_parquet
from rewardpool._rewards.episode import Episode
from rewardpool._rewards.ledger import parquet
from rewardpool.errors import ConfigError, InvalidSampleError
from rewardpool_runtime.json_values import shown

BLOCK_BYTES: Final = 1 << 20
SUFFIXES: Final = (".jsonl", parquet.SUFFIX)
RECORDS: Final = Form(name="records of a ledger", prompt="prompt", answers={RESPONSE: "response"})
_NUMBER: Final = (int, float)
# Fields of every record, with their types.
_NEEDS: Final[Mapping[str, tuple[type, ...]]] = {
    "at": _NUMBER,
    "part": (str,),
    "prompt_hash": (str,),
    "response_hash": (str,),
    "score": (*_NUMBER, NoneType),
}
# Further fields that are read, where a record has them.
_TEXTS: Final[Mapping[str, tuple[type, ...]]] = {
    "prompt": (str, list, NoneType),
    "response": (str, NoneType),
    "turns": (list, NoneType),
    "data_source": (str, NoneType),
    "extra_info": (dict, NoneType),
}
_EPISODE: Final = ("prompt", "response", "turns", "ground_truth", "data_source", "extra_info")
BEFORE: Final = "before"
GROUP: Final = "group"
PART: Final = "part"


class LedgerRecords(RowSource):
    """The records of a ledger, each once, as rows that carry the score that they had.

    Args:
        path: Of a ledger's file, or of its folder.
        names: Of the parts of the reward that scores them; of several, one has the name of the compared part.
        part: The part whose scores are compared; None where the ledger has one alone.
        failed_only: Whether only the records without a score are rows.
        origin: Address in messages, where the path is that of a copy.

    Raises:
        ConfigError: File or folder not found, or the folder has no files.
    """

    def __init__(
        self,
        path: Path,
        *,
        names: Sequence[str],
        part: str | None = None,
        failed_only: bool = False,
        origin: str | None = None,
    ) -> None:
        super().__init__(path, (), (RECORDS,))
        self.origin = origin or self.origin
        self._names = names
        self._part = part
        self._failed_only = failed_only
        # A job may still append to them: what it adds is no part of this.
        files = _files(path)
        open_files.raise_limit(len(files))
        self._open = dict(map(_opened, files))
        self._files = {file: os.fstat(open_file.fileno()).st_size for file, open_file in self._open.items()}
        self._parts: set[str] = set()
        self._at = ""

    def _raw(self, wanted: Callable[[int], bool]) -> Iterator[tuple[int, Mapping[str, Any]]]:
        number = 0
        for record, place in self._records():
            if self._is_meant(record, place):
                if wanted(number):
                    self._at = place
                    yield number, record
                number += 1

    def _form(self, row: Mapping[str, Any]) -> Form:
        return RECORDS

    def _read(self, row: Mapping[str, Any], form: Form, number: int) -> FileRow:
        try:
            episode = Episode(**{name: row[name] for name in _EPISODE if row.get(name) is not None}, id=f"#{number}")
        except InvalidSampleError as error:
            raise FormError(error.problem) from None
        carried = {BEFORE: row["score"], GROUP: row["prompt_hash"], PART: row["part"]}
        return FileRow(number=number, episodes={RESPONSE: episode}, carried=carried)

    def _place(self, number: int) -> str:
        return self._at

    def digest(self) -> str:
        """As `RowSource.digest`, and of what is compared."""
        digest = hashlib.sha256(f"{self._part} {self._failed_only}".encode())
        for path, left in self._files.items():
            file = self._open[path]
            file.seek(0)
            while block := file.read(min(BLOCK_BYTES, left)):
                digest.update(block)
                left -= len(block)
        return digest.hexdigest()

    def extent(self) -> dict[str, Any]:
        return {"files": {file.name: size for file, size in self._files.items()}}

    def go_on(self, extent: Mapping[str, Any]) -> None:
        """As `RowSource.go_on`; raises ConfigError where a file of that run is not there any more."""
        before = extent.get("files")
        if not isinstance(before, dict) or not all(isinstance(size, int) for size in before.values()):
            return  # of no ledger, or spoilt: the journal is refused for another input
        if gone := sorted({*before} - {file.name for file in self._files}):
            raise ConfigError(
                self.origin,
                f"has no {', '.join(gone[:3])} any more, with which the scores in --out were begun: it was deleted, or"
                " is Parquet now. Name another output, or delete the journal to begin anew",
            )
        self._files = {file: min(size, before[file.name]) for file, size in self._files.items() if file.name in before}

    def _empty(self) -> str:
        return "has no record without a score" if self._failed_only else "has no records"

    def _records(self) -> Iterator[tuple[Mapping[str, Any], str]]:
        for path, left in self._files.items():
            file = self._open[path]
            file.seek(0)
            if path.suffix == parquet.SUFFIX:
                for row, record in enumerate(_rows(self._shown(path), file)):
                    place = f"{self._shown(path)}, row {row}"
                    yield _checked(record, place), place
                continue
            for line, text in enumerate(file, start=1):
                left -= len(text)
                if left < 0 or not text.endswith(b"\n"):
                    break
                place = f"{self._shown(path)}, line {line}"
                yield _record(text, place), place

    def _shown(self, file: Path) -> str:
        return self.origin if file == self.path else f"{self.origin.rstrip('/')}/{file.name}"

    def _is_meant(self, record: Mapping[str, Any], place: str) -> bool:
        self._parts.add(record["part"])
        if self._part is None and len(self._parts) > 1:
            raise ConfigError(
                "--part", f"the ledger has scores of several parts: name one of {', '.join(sorted(self._parts))}, …"
            )
        if self._part not in (None, record["part"]) or (self._failed_only and record["score"] is not None):
            return False
        if len(self._names) > 1 and record["part"] not in self._names:
            raise ConfigError(
                "reward",
                f"has the parts {', '.join(self._names)} and none of the name {record['part']}, with whose scores the"
                " ledger's are compared; name one so, or give a reward of one part",
            )
        if missing := [name for name in ("prompt", "response") if record.get(name) is None]:
            raise ConfigError(
                place,
                f"has no {' and no '.join(missing)}, so that it cannot be scored again: set ledger.text to true for"
                " that, and give rows of which JSON can hold every value",
            )
        return True


def _record(text: bytes, place: str) -> Mapping[str, Any]:
    try:
        record = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise ConfigError(place, f"is not JSON ({error}); it is no ledger, or was changed") from None
    return _checked(record, place)


def _rows(place: str, file: BinaryIO) -> Iterator[Mapping[str, Any]]:
    pyarrow_parquet(place)
    try:
        yield from parquet.records_in(file)
    except (ValueError, OSError) as error:  # pyarrow's own errors are among them
        raise ConfigError(place, f"is no Parquet file that can be read ({error})") from None


def _checked(record: Any, place: str) -> Mapping[str, Any]:
    remedy = "give the folder or a file of one"
    if not isinstance(record, dict) or not _NEEDS.keys() <= record.keys():
        raise ConfigError(place, f"is no record of a ledger; {remedy}")
    for name, types in (*_NEEDS.items(), *_TEXTS.items()):
        value = record.get(name)
        if type(value) not in types or (isinstance(value, float) and not math.isfinite(value)):
            raise ConfigError(place, f"is no record of a ledger: its {name} is {shown(value)}; {remedy}")
    return record


def _files(path: Path) -> list[Path]:
    if path.is_file() and path.suffix in SUFFIXES:
        return [path]
    if not path.is_dir():
        problem = f"must end in {' or '.join(SUFFIXES)}" if path.exists() else "does not exist"
        raise ConfigError(str(path), f"{problem}; give the folder or a file of a ledger")
    # By its stem, a file that is both is complete in Parquet.
    found = {file.stem: file for suffix in SUFFIXES for file in path.glob(f"*{suffix}")}
    if found:
        return sorted(found.values())
    raise ConfigError(str(path), f"has no files of a ledger, {' or '.join(f'*{suffix}' for suffix in SUFFIXES)}")


def _opened(path: Path) -> tuple[Path, BinaryIO]:
    try:
        return path, path.open("rb")
    except FileNotFoundError:  # since it was listed, a Parquet file took its place
        path = path.with_suffix(parquet.SUFFIX)
        return path, path.open("rb")
