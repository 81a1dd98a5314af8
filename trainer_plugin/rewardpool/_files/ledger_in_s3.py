"""A ledger in S3, copied to be read."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from rewardpool._files.ledger import SUFFIXES
from rewardpool._rewards.ledger import s3
from rewardpool.errors import ConfigError

SCHEME: Final = "s3://"


@contextmanager
def local(ledger: str) -> Iterator[Path]:
    """Yield the path of a ledger: its own, or while the block lasts that of a copy of `s3://BUCKET/PREFIX`.

    Raises:
        ConfigError: It is no such address, boto3 is missing, or the store has no files of a ledger there.
    """
    if not ledger.startswith(SCHEME):
        yield Path(ledger)
        return
    if re.match(s3.TARGET, ledger) is None:
        raise ConfigError(ledger, "is not s3://BUCKET/PREFIX, where a ledger's files are")
    if find_spec("boto3") is None:
        raise ConfigError(ledger, "takes boto3: pip install 'rewardpool[download]', or name a local folder")
    with TemporaryDirectory(prefix="rewardpool-ledger-") as folder:
        yield _fetched(ledger, Path(folder))


def _fetched(ledger: str, folder: Path) -> Path:
    """Copy the files below a prefix, or the one of that name; returns the folder or the file."""
    bucket, prefix = s3.bucket_and_prefix(ledger)
    try:
        store = s3.client()
        keys = [key for key in _keys(store, bucket, prefix) if key.endswith(SUFFIXES)]
        for key in keys:
            store.download_file(bucket, key, str(folder / key.rpartition("/")[2]))
    except Exception as error:  # boto3's, which have no name in common
        raise ConfigError(ledger, f"cannot be read: {error}") from error
    if not keys:
        raise ConfigError(ledger, f"has no files of a ledger, {' or '.join(f'*{suffix}' for suffix in SUFFIXES)}")
    return folder / keys[0].rpartition("/")[2] if keys == [prefix] else folder


def _keys(store: Any, bucket: str, prefix: str) -> Iterator[str]:
    """Keys of a prefix itself and of what is right below it."""
    for page in store.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix):
        for one in page.get("Contents", ()):
            key = one["Key"]
            if key == prefix or key.rpartition("/")[0] == prefix:
                yield key
