"""A key file that cannot be read is told by its path, in words."""

from collections.abc import Callable
from pathlib import Path

import pytest

from rewardpool._discovery.pool_sources import read_key_files
from rewardpool.errors import PoolAccessError


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda _: None, "key cannot be read: No such file or directory"),
        (lambda path: path.write_bytes(b"\xff"), "key is not text"),
        (lambda path: path.write_text("\n"), "key is empty"),
    ],
    ids=["absent", "binary", "empty"],
)
def test_a_key_file_that_cannot_be_read_is_told(tmp_path: Path, make: Callable[[Path], object], words: str) -> None:
    make(tmp_path / "key")
    with pytest.raises(PoolAccessError) as raised:
        read_key_files(tmp_path / "key")
    assert words in str(raised.value)
    assert "[Errno" not in str(raised.value)
