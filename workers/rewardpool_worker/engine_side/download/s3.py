"""Models of a bucket of S3 or of a store that speaks its protocol ($AWS_ENDPOINT_URL), with boto3.

All objects below a prefix are one model. A bucket has no commits, so the digest of the listing takes their place: while
a revision of workers is pinned to one, changed objects are refused, or two workers would serve two models.
"""

import hashlib
import math
import os
import re
from typing import Any, BinaryIO

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, PartialCredentialsError

from rewardpool_worker.engine_side.download.errors import PASSING_ATTEMPTS, DownloadError
from rewardpool_worker.engine_side.download.release import Release, RemoteFile

CHUNK_BYTES = 1024 * 1024
COMMIT_DIGITS = 40  # as many as a commit of the hub has
_CREDENTIALS = "check the Secret of spec.model.credentialsSecretRef and what its key may read"
_REFUSED = {"401", "403", "AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken"}
_MISSING = {"404", "NoSuchBucket", "NoSuchKey"}
_BUSY = {"429", "503", "SlowDown", "Throttling", "ThrottlingException", "RequestLimitExceeded", "ServiceUnavailable"}
_CHANGED = {"412", "PreconditionFailed"}


class S3Source:
    """All objects below one prefix of a bucket."""

    revision = "current"

    def __init__(self, bucket: str, prefix: str) -> None:
        """Ask nothing yet; credentials, region and endpoint come from the environment, as boto3 reads it."""
        self.bucket = bucket
        self.prefix = prefix.rstrip("/")
        endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
        region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
        self._client = boto3.Session().client(
            "s3",
            region_name=region or ("us-east-1" if endpoint else None),
            config=Config(
                connect_timeout=10,
                read_timeout=60,
                max_pool_connections=32,
                retries={"mode": "standard", "max_attempts": 4},
                # Amazon puts the bucket into the host's name; other stores hardly have a name for each bucket.
                s3={"addressing_style": "path" if endpoint else "auto"},
            ),
        )

    @property
    def folder(self) -> str:
        # A prefix may have any character, so the name ends in its hash.
        where = f"{self.bucket}/{self.prefix}"
        return f"s3--{self.bucket}--{hashlib.sha256(where.encode()).hexdigest()[:12]}"

    def release(self, commit: str | None) -> Release:
        """All objects below the prefix, as they are now; refused when a commit is pinned and they are another one."""
        files = []
        try:
            pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=f"{self.prefix}/")
            for page in pages:
                files += [self._file(entry) for entry in page.get("Contents", []) if not entry["Key"].endswith("/")]
        except (BotoCoreError, ClientError) as error:
            raise self._explained(error) from error
        if not files:
            message = f"there is no object below s3://{self.bucket}/{self.prefix}/: check spec.model.source"
            raise DownloadError("ModelNotFound", message)
        listing = "\n".join(sorted(f"{file.path} {file.name}" for file in files))
        found = hashlib.sha256(listing.encode()).hexdigest()[:COMMIT_DIGITS]
        if commit not in (None, found):
            raise self._changed()
        return Release(found, tuple(files))

    def digest(self, file: RemoteFile) -> str | None:
        """The MD5 that S3 keeps as an object's ETag, whole or of its pieces; with keys of KMS the ETag is no MD5."""
        etag = file.name.rpartition("-")[0]
        try:
            head = self._client.head_object(Bucket=self.bucket, Key=self._key(file), PartNumber=1)
        except (BotoCoreError, ClientError) as error:
            raise self._explained(error) from error
        if head.get("ServerSideEncryption", "").startswith("aws:kms") or "SSECustomerAlgorithm" in head:
            return None
        if re.fullmatch(r"[0-9a-f]{32}", etag):
            return f"md5:{etag}"
        md5, _, pieces = etag.partition("-")
        piece = head["ContentLength"]
        if not (re.fullmatch(r"[0-9a-f]{32}", md5) and pieces.isdigit() and piece):
            return None
        # Pieces of unequal size would need a question for each; uploaders make them equal.
        return f"md5-{piece}:{md5}" if math.ceil(file.size / piece) == int(pieces) else None

    def fetch(self, commit: str, file: RemoteFile, target: BinaryIO, offset: int) -> None:
        etag = f'"{file.name.rpartition("-")[0]}"'
        try:
            answer = self._client.get_object(
                Bucket=self.bucket, Key=self._key(file), Range=f"bytes={offset}-", IfMatch=etag
            )
            for chunk in answer["Body"].iter_chunks(CHUNK_BYTES):
                target.write(chunk)
        except (BotoCoreError, ClientError) as error:
            raise self._explained(error) from error

    def _file(self, entry: dict[str, Any]) -> RemoteFile:
        etag = entry["ETag"].strip('"')
        return RemoteFile(entry["Key"].removeprefix(f"{self.prefix}/"), entry["Size"], f"{etag}-{entry['Size']}")

    def _key(self, file: RemoteFile) -> str:
        return f"{self.prefix}/{file.path}"

    def _changed(self) -> DownloadError:
        return DownloadError(
            "ModelChanged",
            f"the objects below s3://{self.bucket}/{self.prefix}/ are not those that this revision of workers began "
            "with: put those back, or take the new ones with `rewardpool restart`",
        )

    def _explained(self, error: BotoCoreError | ClientError) -> DownloadError:
        where = f"s3://{self.bucket}/{self.prefix}"
        if isinstance(error, NoCredentialsError | PartialCredentialsError):
            return DownloadError("ModelUnauthorized", f"there are no credentials for {where}: {_CREDENTIALS}")
        if not isinstance(error, ClientError):
            message = f"the store of {where} cannot be reached ({type(error).__name__}: {error})"
            return DownloadError("SourceUnreachable", message, attempts=PASSING_ATTEMPTS)
        code = str(error.response["Error"]["Code"])
        if code in _REFUSED:
            return DownloadError("ModelUnauthorized", f"the store refuses {where} ({code}): {_CREDENTIALS}")
        if code in _MISSING:
            return DownloadError("ModelNotFound", f"there is no {where} ({code}): check spec.model.source")
        if code in _CHANGED:
            return self._changed()
        if code in _BUSY:
            return DownloadError(
                "DownloadThrottled", f"the store wants fewer requests ({code})", attempts=PASSING_ATTEMPTS
            )
        return DownloadError("SourceUnreachable", f"the store answers {code} for {where}", attempts=PASSING_ATTEMPTS)
