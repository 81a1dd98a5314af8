"""Results of rows: a record in the journal, and in the end a line or row of the output, in the input's order.

    {"row": 0, "id": …, "score": 0.42, "components": {…}, "revisions": {…}}
    {"row": 1, "score": null, "fault": "infra", "kind": "no_answer", "problem": "…"}
    {"row": 2, "chosen": {"score": …}, "rejected": {"score": …}}

A row without a score has none: no number stands for it.
"""

import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import orjson

from rewardpool._files.forms import CARRIED, RESPONSE, FileRow
from rewardpool._files.ledger import BEFORE, GROUP, PART
from rewardpool._files.source import is_parquet, pyarrow_parquet
from rewardpool._files.window import Outcomes
from rewardpool._rewards.rating import Rating
from rewardpool.errors import SampleError

# Characters that are kept of a failure's message.
MOST_PROBLEM: Final = 500
# Rows of a Parquet file that are written at a time.
BATCH_ROWS: Final = 4096
_FIELDS: Final = ("score", "fault", "kind", "problem", "components", "revisions")


def record_of(row: FileRow, outcomes: Outcomes) -> dict[str, Any]:
    head: dict[str, Any] = {"row": row.number, **row.carried}
    if RESPONSE in outcomes:
        return head | _outcome(outcomes[RESPONSE])
    return head | {role: _outcome(outcome) for role, outcome in outcomes.items()}


def _outcome(outcome: Rating | SampleError) -> dict[str, Any]:
    if isinstance(outcome, SampleError):
        return {"score": None, **_failure(outcome)}
    # A penalty stands for a part's score in training alone.
    score = outcome.total if outcome.error is None else None
    found: dict[str, Any] = {"score": score, "components": dict(outcome.components)}
    if outcome.revisions:
        found["revisions"] = {pool: list(seen) for pool, seen in outcome.revisions.items()}
    if outcome.error is not None:
        found |= _failure(outcome.error)
    return found


def _failure(error: SampleError) -> dict[str, str]:
    problem = error.problem[:MOST_PROBLEM].encode(errors="replace").decode()
    return {"fault": error.fault, "kind": error.kind, "problem": problem}


def outcomes_of(record: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [record] if "score" in record else [one for one in record.values() if isinstance(one, Mapping)]


def fault_of(record: Mapping[str, Any]) -> str | None:
    """Return why a row, or one of its answers, has no score; None where all have one."""
    return next((one.get("fault") or "verifier" for one in outcomes_of(record) if one["score"] is None), None)


def write_output(path: Path, records: Iterable[Mapping[str, Any]]) -> None:
    """Write the output, which is there when it is whole.

    Raises:
        ConfigError: It is a Parquet file, and pyarrow is not installed.
        OSError: It cannot be written; nothing of it is left.
    """
    write: Callable[[Path, Iterator[Mapping[str, Any]]], None] = (
        _write_parquet if is_parquet(path, field="--out") else _write_lines
    )
    made = path.with_name(f"{path.name}.part")
    try:
        write(made, iter(records))
        with made.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(made, path)
    finally:
        made.unlink(missing_ok=True)


def _write_lines(path: Path, records: Iterator[Mapping[str, Any]]) -> None:
    with path.open("wb") as file:
        file.writelines(orjson.dumps(record) + b"\n" for record in records)


def _write_parquet(path: Path, records: Iterator[Mapping[str, Any]]) -> None:
    parquet = pyarrow_parquet(str(path))
    import pyarrow  # an extra, and here it is installed

    rows = map(_flat, records)
    first = next(rows)
    schema = pyarrow.schema([(name, _type(pyarrow, name)) for name in first])
    everything = itertools.chain([first], rows)
    with parquet.ParquetWriter(path, schema) as file:
        while batch := list(itertools.islice(everything, BATCH_ROWS)):
            file.write_table(pyarrow.Table.from_pylist(batch, schema=schema))


def _flat(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record as columns: those of an answer of a pair have its name in front."""
    carried: dict[str, Any] = {name: str(record[name]) if name in record else None for name in CARRIED}
    if BEFORE in record:
        carried = {name: record[name] for name in (BEFORE, GROUP, PART)}
    roles = [name for name, value in record.items() if isinstance(value, Mapping)]
    answers = {"": record} if "score" in record else {f"{role}_": record[role] for role in roles}
    return {"row": record["row"], **carried} | {
        f"{prefix}{name}": _cell(answer.get(name)) for prefix, answer in answers.items() for name in _FIELDS
    }


def _cell(value: Any) -> Any:
    return orjson.dumps(value).decode() if isinstance(value, Mapping) else value


def _type(pyarrow: Any, name: str) -> Any:
    if name == "row":
        return pyarrow.int64()
    return pyarrow.float64() if name.endswith("score") or name == BEFORE else pyarrow.string()
