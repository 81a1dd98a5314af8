"""A file of rows: JSON lines or Parquet, read in a stream, as often as is asked.

The first reading checks every row and makes the digest, so that a file is refused whole and before anything is scored.
"""

import hashlib
import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson

from rewardpool._files.forms import FORMS, FileRow, Form, FormError, check_columns, form_of, read_row
from rewardpool.errors import ConfigError

JSON_LINES: Final = (".jsonl", ".ndjson")
PARQUET: Final = ".parquet"
MOST_LINE_BYTES: Final = 64 << 20
# Rows of a Parquet file that are in memory at a time.
BATCH_ROWS: Final = 256


@dataclass(frozen=True, kw_only=True)
class Checked:
    """Facts about a file that was read once; the digest is of its bytes."""

    form: Form
    rows: int
    sha256: str


class RowSource(ABC):
    """A file of rows; the columns to ignore are not read."""

    def __init__(self, path: Path, ignore: Collection[str] = (), forms: Sequence[Form] = FORMS) -> None:
        self.path = path
        self.origin = str(path)
        self._ignore = tuple(ignore)
        self._forms = forms

    @abstractmethod
    def _raw(self, wanted: Callable[[int], bool]) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """Number and columns of the rows that are wanted. Raises ConfigError."""

    @abstractmethod
    def _place(self, number: int) -> str: ...

    def check(self, read: Callable[[int], None] = lambda rows: None) -> Checked:
        """Read all of the file.

        Args:
            read: Called after each row with the number of those that are read.

        Raises:
            ConfigError: A row is of no accepted form, or of another one than the first; it names the row.
            OSError: It cannot be read.
        """
        digest = self.digest()
        form: Form | None = None
        rows = 0
        for number, row in self._raw(lambda number: True):
            try:
                form = form or self._form(row)
                self._read(row, form, number)
            except FormError as error:
                raise ConfigError(self._place(number), str(error)) from None
            rows = number + 1
            read(rows)
        if form is None:
            raise ConfigError(self.origin, self._empty())
        return Checked(form=form, rows=rows, sha256=digest)

    def rows(self, checked: Checked, wanted: Callable[[int], bool] = lambda number: True) -> Iterator[FileRow]:
        """Read the rows that are wanted by their number, in order.

        Raises:
            ConfigError: The file is not what it was when it was checked.
        """
        for number, row in self._raw(lambda number: number < checked.rows and wanted(number)):
            try:
                yield self._read(row, checked.form, number)
            except FormError as error:
                raise ConfigError(self._place(number), f"{error}; the file was changed while it was scored") from None

    def _form(self, row: Mapping[str, Any]) -> Form:
        return form_of(row.keys(), ignore=self._ignore, forms=self._forms)

    def digest(self) -> str:
        """Return the SHA-256 of what is read of it. Raises OSError."""
        with self.path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def extent(self) -> dict[str, Any]:
        """Return how much of it is read, in what JSON can hold; nothing where that is all of it."""
        return {}

    def go_on(self, extent: Mapping[str, Any]) -> None:  # noqa: B027 - most files are read to their end
        """Read as much as an earlier run, which said so by `extent`, and not what was added since."""

    def _empty(self) -> str:
        return "has no rows; give a file with at least one"

    def _read(self, row: Mapping[str, Any], form: Form, number: int) -> FileRow:
        check_columns(row.keys(), form, ignore=self._ignore)
        return read_row(row, form, number)


class JsonLines(RowSource):
    """A JSON object a line."""

    def _raw(self, wanted: Callable[[int], bool]) -> Iterator[tuple[int, Mapping[str, Any]]]:
        with self.path.open("rb") as file:
            number = 0
            while line := file.readline(MOST_LINE_BYTES):
                if wanted(number):
                    yield number, self._object(line, number)
                number += 1

    def _object(self, line: bytes, number: int) -> Mapping[str, Any]:
        place = self._place(number)
        if len(line) == MOST_LINE_BYTES and not line.endswith(b"\n"):
            raise ConfigError(place, f"is longer than {MOST_LINE_BYTES} bytes; leave it out")
        try:
            row = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            raise ConfigError(place, f"is not JSON ({error}); write a JSON object on each line, in UTF-8") from None
        if not isinstance(row, dict):
            raise ConfigError(place, 'is no JSON object; write one such as {"prompt": …, "response": …}')
        return row

    def _place(self, number: int) -> str:
        return f"{self.path}, line {number + 1}"


class Parquet(RowSource):
    """A Parquet file, read by pyarrow."""

    def _raw(self, wanted: Callable[[int], bool]) -> Iterator[tuple[int, Mapping[str, Any]]]:
        parquet = pyarrow_parquet(str(self.path))
        try:
            file = parquet.ParquetFile(self.path)
        except (ValueError, NotImplementedError) as error:  # pyarrow's own errors are among them
            raise ConfigError(str(self.path), f"is no Parquet file that can be read ({error})") from None
        number = 0
        with file:
            batches = self._undamaged(file.iter_batches, BATCH_ROWS, at=0)
            while (batch := self._undamaged(next, batches, None, at=number)) is not None:
                mine = [wanted(number + place) for place in range(batch.num_rows)]
                if any(mine):
                    rows = self._undamaged(batch.to_pylist, at=number)
                    yield from ((number + place, row) for place, row in enumerate(rows) if mine[place])
                number += batch.num_rows

    def _undamaged(self, read: Callable[..., Any], *arguments: Any, at: int) -> Any:
        """Return what pyarrow reads; each of its errors names the first row that may be damaged. Raises ConfigError."""
        pyarrow = importlib.import_module("pyarrow")
        try:
            return read(*arguments)
        except (pyarrow.ArrowException, ValueError, OverflowError, OSError) as error:
            raise ConfigError(
                self._place(at), f"cannot be read ({error}); the file is damaged: write it anew"
            ) from None

    def _place(self, number: int) -> str:
        return f"{self.path}, row {number}"


def pyarrow_parquet(field: str) -> Any:
    """Return pyarrow's module for Parquet. Raises ConfigError where it is not installed."""
    try:
        return importlib.import_module("pyarrow.parquet")
    except ModuleNotFoundError:
        raise ConfigError(
            field, "is a Parquet file, which takes pyarrow: pip install 'rewardpool[parquet]', or use JSON lines"
        ) from None


def open_source(path: Path, *, ignore: Collection[str] = (), forms: Sequence[Form] = FORMS) -> RowSource:
    """Return the file as JSON lines or Parquet, as its name says; the arguments are those of `RowSource`.

    Raises:
        ConfigError: File not found, or its name has no accepted ending.
    """
    if is_parquet(path, field="FILE"):
        found: RowSource = Parquet(path, ignore, forms)
    else:
        found = JsonLines(path, ignore, forms)
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist" if not path.exists() else "cannot be read twice"
        raise ConfigError(str(path), f"{what}; give the path of a file")
    return found


def is_parquet(path: Path, *, field: str) -> bool:
    """Return whether a file's name says Parquet, and not JSON lines. Raises ConfigError where it says neither."""
    if path.suffix == PARQUET:
        return True
    if path.suffix not in JSON_LINES:
        raise ConfigError(
            field, f"{path} must end in {PARQUET}, or for JSON lines in {' or '.join(JSON_LINES)}: convert or rename it"
        )
    return False
