"""A ledger's closed files in a bucket of S3, or of a store that speaks its protocol ($AWS_ENDPOINT_URL), by boto3."""

import os
import threading
from pathlib import Path
from typing import Any, Final

TARGET: Final = r"^s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[^/]+)*/?$"
# Limit of an upload, whatever the file's size; larger files have more.
LEAST_SECONDS: Final = 60.0
# The slowest store that keeps a ledger.
MIB_A_SECOND: Final = 1.0


def seconds_for(mib: float) -> float:
    return max(LEAST_SECONDS, mib / MIB_A_SECOND)


def move(file: Path, target: str, *, seconds: float) -> None:
    """Put a file below a prefix, and remove it here.

    Raises:
        OSError: The store refuses it, or takes longer than that; the file is still there.
    """
    problems: list[Exception] = []

    def put() -> None:
        try:
            _put(file, target)
        except Exception as error:  # boto3's, which have no name in common
            problems.append(error)

    # A store that hangs keeps the thread, and no process from its end.
    thread = threading.Thread(target=put, name="rewardpool-ledger-upload", daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        raise OSError(f"{target} takes longer than {seconds:g} s for a file")
    if problems:
        raise OSError(f"{target} takes no file: {problems[0]}")
    file.unlink()


def client() -> Any:
    """Return boto3's client, with credentials, region and endpoint of the environment."""
    import boto3  # an extra
    from botocore.config import Config

    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    # Amazon puts the bucket into the host's name; other stores hardly have a name for each bucket.
    settings = Config(connect_timeout=10, s3={"addressing_style": "path" if endpoint else "auto"})
    return boto3.client("s3", config=settings)


def bucket_and_prefix(target: str) -> tuple[str, str]:
    """Return both of `s3://BUCKET/PREFIX`; the prefix may be empty, and ends in no slash."""
    bucket, _, prefix = target.removeprefix("s3://").rstrip("/").partition("/")
    return bucket, prefix


def _put(file: Path, target: str) -> None:
    from boto3.s3.transfer import TransferConfig

    bucket, prefix = bucket_and_prefix(target)
    key = f"{prefix}/{file.name}" if prefix else file.name
    client().upload_file(str(file), bucket, key, Config=TransferConfig(use_threads=False))
