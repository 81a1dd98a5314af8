"""The same bytes for the same commit, from tools that write the time of day into what they make."""

import gzip
import io
import json
import tarfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any


def date_archive(path: Path, epoch: int) -> None:
    """Write a `.tar.gz` anew with `epoch` (seconds since 1970) as the time of all that is in it, and of itself."""
    packed = io.BytesIO()
    with (
        tarfile.open(path, "r:gz") as source,
        gzip.GzipFile(filename="", fileobj=packed, mode="wb", mtime=epoch) as zipped,
        tarfile.open(fileobj=zipped, mode="w") as target,
    ):
        for member in source.getmembers():
            member.mtime = epoch
            target.addfile(member, source.extractfile(member) if member.isfile() else None)
    path.write_bytes(packed.getvalue())


def dated_bill_of_materials(document: dict[str, Any], epoch: int) -> str:
    """A CycloneDX document with `epoch` as its time, and without the number that is drawn for each."""
    kept = {key: value for key, value in document.items() if key != "serialNumber"}
    time = datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return json.dumps({**kept, "metadata": {**kept["metadata"], "timestamp": time}}, indent=1) + "\n"
