"""Moto's server, which speaks the protocol of S3 on a loopback port, as the store of this process's environment."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import boto3
import pytest
from moto.server import ThreadedMotoServer


@contextmanager
def object_store(monkeypatch: pytest.MonkeyPatch, *, bucket: str) -> Iterator[Any]:
    """A client of a store with a bucket."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        use(monkeypatch, "http://{}:{}".format(*server.get_host_and_port()))
        client = boto3.client("s3", region_name="us-east-1")
        client.create_bucket(Bucket=bucket)
        yield client
    finally:
        server.stop()


def use(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    """Set the store's address, and credentials that it does not read."""
    settings = {"AWS_ENDPOINT_URL": url, "AWS_REGION": "eu-central-1"}
    for name, value in {**settings, "AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "secret"}.items():
        monkeypatch.setenv(name, value)
