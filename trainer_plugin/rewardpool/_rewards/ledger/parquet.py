"""A ledger's closed files in Parquet: what JSON lines hold, as columns."""

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, Final

import orjson

SUFFIX: Final = ".parquet"
UNFINISHED: Final = ".part"
# An unfinished file that is not written for this long belongs to a process that was killed.
ABANDONED_SECONDS: Final = 3600.0
BATCH_ROWS: Final = 4096
# Fields of several types: columns of JSON texts.
_JSON: Final = ("group", "prompt", "turns", "ground_truth", "extra_info")
_TEXTS: Final = ("id", "prompt_hash", "response_hash", "part", "pool", "commit", "judge", "fault", "kind", "problem")
_MORE_TEXTS: Final = ("response", "data_source")
_LISTS: Final = ("revisions", "workers")
_NUMBERS: Final = ("at", "score", "seconds")
_WHOLE: Final = ("version", "seed", "attempts")


def rewrite(lines: Path) -> None:
    """Put a Parquet file in the place of a closed file of JSON lines; it is there when it is whole. Raises OSError."""
    import pyarrow  # an extra, which the config has seen to
    import pyarrow.parquet

    kinds = {
        **dict.fromkeys((*_TEXTS, *_MORE_TEXTS, *_JSON), pyarrow.string()),
        **dict.fromkeys(_LISTS, pyarrow.list_(pyarrow.string())),
        **dict.fromkeys(_NUMBERS, pyarrow.float64()),
        **dict.fromkeys(_WHOLE, pyarrow.int64()),
    }
    schema = pyarrow.schema(list(kinds.items()))
    made = lines.with_suffix(UNFINISHED)
    try:
        descriptor = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with lines.open("rb") as read, os.fdopen(descriptor, "wb") as written:
            with pyarrow.parquet.ParquetWriter(written, schema, compression="zstd") as table:
                while batch := [_columns(orjson.loads(line)) for line in islice(read, BATCH_ROWS)]:
                    table.write_table(pyarrow.Table.from_pylist(batch, schema=schema))
            written.flush()
            os.fsync(descriptor)
        os.replace(made, lines.with_suffix(SUFFIX))
    finally:
        made.unlink(missing_ok=True)
    lines.unlink()


def remove_abandoned(folder: Path) -> None:
    """Remove the unfinished files of processes that were killed, whose lines are all there."""
    for unfinished in folder.glob(f"*{UNFINISHED}"):
        with suppress(OSError):  # another one may remove it too, or alone have the right to
            is_abandoned = time.time() - unfinished.stat().st_mtime > ABANDONED_SECONDS
            if is_abandoned and unfinished.with_suffix(".jsonl").exists():
                unfinished.unlink()


def records_in(file: Any) -> Iterator[Mapping[str, Any]]:
    """Return the records of an open Parquet file, as the JSON lines had them.

    Raises:
        ValueError: It is no such file; pyarrow's own errors are among these.
        OSError: It cannot be read.
    """
    import pyarrow.parquet

    for batch in pyarrow.parquet.ParquetFile(file).iter_batches(BATCH_ROWS):
        for row in batch.to_pylist():
            known = {name: value for name, value in row.items() if value is not None}
            yield {"score": None, **known, **{name: orjson.loads(known[name]) for name in _JSON if name in known}}


def _columns(record: dict[str, Any]) -> dict[str, Any]:
    for name in _JSON:
        if record.get(name) is not None:
            record[name] = orjson.dumps(record[name]).decode()
    return record
