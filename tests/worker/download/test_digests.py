"""Digests as the servers compute them."""

import hashlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewardpool_worker.engine_side.download import digests


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("git", "git:9daeafb9864cf43055ae93beb0afd6c7d144bfa4"),
        ("md5", "md5:d8e8fca2dc0f896fd7cb4cb0031ba249"),
        ("sha256", "sha256:f2ca1bb6c7e907d06dafe4687e579fce76b37e4e93b7605022da52e6ccc26fd2"),
    ],
)
def test_a_digest_is_what_git_and_coreutils_say(tmp_path: Path, kind: str, expected: str) -> None:
    (tmp_path / "file").write_bytes(b"test\n")
    assert digests.digest_of(tmp_path / "file", 5, kind, lambda _: None) == expected


@given(content=st.binary(max_size=200), piece=st.integers(1, 80), chunk=st.integers(1, 70))
def test_pieces_are_those_of_the_upload_however_the_file_is_read(content: bytes, piece: int, chunk: int) -> None:
    pieces = [content[start : start + piece] for start in range(0, len(content), piece)]
    expected = hashlib.md5(b"".join(hashlib.md5(one).digest() for one in pieces)).hexdigest()
    chunks = (content[start : start + chunk] for start in range(0, len(content), chunk))
    assert digests._of_pieces(chunks, piece) == expected
