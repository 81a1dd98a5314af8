"""Downloads from S3: moto's server speaks the protocol on a loopback port."""

from collections.abc import Iterator
from typing import Any

import pytest
from support.downloads import Make, content
from support.object_store import object_store

from rewardpool_worker.engine_side.download.errors import DownloadError
from rewardpool_worker.engine_side.download.s3 import S3Source

FILES = {"config.json": b"{}", "weights/model.safetensors": bytes(range(256)) * 50_000}
MODEL = ("models", "team/rm")
PIECE_BYTES = 5 * 1024 * 1024


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A client of a store in which `FILES` are a model, the large one uploaded in pieces."""
    with object_store(monkeypatch, bucket="models") as client:
        for path, body in FILES.items():
            put(client, f"team/rm/{path}", body)
        yield client


def put(client: Any, key: str, body: bytes) -> None:
    if len(body) < PIECE_BYTES:
        client.put_object(Bucket="models", Key=key, Body=body)
        return
    upload = client.create_multipart_upload(Bucket="models", Key=key)["UploadId"]
    same = {"Bucket": "models", "Key": key, "UploadId": upload}
    parts = []
    for number, start in enumerate(range(0, len(body), PIECE_BYTES), 1):
        part = client.upload_part(PartNumber=number, Body=body[start : start + PIECE_BYTES], **same)
        parts.append({"PartNumber": number, "ETag": part["ETag"]})
    client.complete_multipart_upload(MultipartUpload={"Parts": parts}, **same)


def test_the_objects_below_a_prefix_are_the_model(download: Make, bucket: Any) -> None:
    bucket.put_object(Bucket="models", Key="team/rm-2/config.json", Body=b"another model")
    one = download(source=S3Source(*MODEL))
    outcome = one.run()
    assert content(one) == FILES
    assert outcome.files == 2


def test_every_object_is_checked_against_its_etag(bucket: Any) -> None:
    source = S3Source(*MODEL)
    kinds = {file.path: source.digest(file).partition(":")[0] for file in source.release(None).files}  # type: ignore[union-attr]
    assert kinds == {"config.json": "md5", "weights/model.safetensors": f"md5-{PIECE_BYTES}"}


@pytest.mark.parametrize("path", FILES)
def test_bytes_that_rotted_before_the_rest_came_are_caught(download: Make, bucket: Any, path: str) -> None:
    one = download(source=S3Source(*MODEL))
    (file,) = (file for file in one.source.release(None).files if file.path == path)
    part = one.cache.folder / "blobs" / f"{file.name}.incomplete"
    part.parent.mkdir(parents=True)
    part.write_bytes(b"?")
    one.run()
    assert content(one) == FILES


def test_an_object_that_broke_off_is_gone_on_with(download: Make, bucket: Any) -> None:
    one = download(source=S3Source(*MODEL))
    (file,) = (file for file in one.source.release(None).files if file.path.endswith("safetensors"))
    part = one.cache.folder / "blobs" / f"{file.name}.incomplete"
    part.parent.mkdir(parents=True)
    part.write_bytes(FILES[file.path][:7_000_000])
    offsets: list[int] = []
    fetch = one.source.fetch
    one.source.fetch = lambda *call: (offsets.append(call[-1]), fetch(*call))[1]  # type: ignore[method-assign]
    one.run()
    assert sorted(offsets) == [0, 7_000_000]
    assert content(one) == FILES


def test_changed_objects_are_refused_while_a_revision_is_pinned(download: Make, bucket: Any) -> None:
    first = download(source=S3Source(*MODEL)).run().commit
    put(bucket, "team/rm/config.json", b'{"new": 1}')
    elsewhere = download(source=S3Source("models", "team/rm"), pin="0" * 40)
    with pytest.raises(DownloadError, match=r"rewardpool restart") as caught:
        elsewhere.run()
    assert caught.value.reason == "ModelChanged"
    assert download(source=S3Source(*MODEL), pin=first).run().commit == first
    assert download(source=S3Source(*MODEL)).run().commit != first


def test_an_empty_prefix_names_the_field(download: Make, bucket: Any) -> None:
    with pytest.raises(DownloadError, match=r"no object below s3://models/none/.*spec\.model\.source") as caught:
        download(source=S3Source("models", "none")).run()
    assert caught.value.reason == "ModelNotFound"


def test_a_bucket_that_is_not_there_names_the_field(download: Make, bucket: Any) -> None:
    with pytest.raises(DownloadError, match=r"spec\.model\.source") as caught:
        download(source=S3Source("nobodys", "x")).run()
    assert caught.value.reason == "ModelNotFound"


def test_missing_credentials_name_the_field(
    download: Make, bucket: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(DownloadError, match=r"spec\.model\.credentialsSecretRef") as caught:
        download(source=S3Source(*MODEL)).run()
    assert caught.value.reason == "ModelUnauthorized"
