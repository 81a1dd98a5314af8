"""Ranks and engines by the locks of one file: GpuLock is the ranks' side, the test locks as a supervisor does."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rewardpool.errors import PoolAccessError
from rewardpool_runtime.state_files import GPU_FILE
from rewardpool_train.colocated import GpuLock


@contextmanager
def engine(folder: Path) -> Iterator[None]:
    """The claim of a supervisor whose engine is awake."""
    with (folder / GPU_FILE).open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield


@pytest.fixture
def folders(tmp_path: Path) -> list[Path]:
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()
    return folders


def test_ranks_compute_together_and_know_of_each_other(folders: list[Path]) -> None:
    first, second = GpuLock(folders), GpuLock(folders)
    assert not second.others_compute()
    assert first.try_acquire()
    assert second.others_compute()
    assert second.try_acquire()
    first.release()
    second.release()
    assert not first.others_compute()


def test_an_engine_waits_for_the_last_rank(folders: list[Path]) -> None:
    first, second = GpuLock(folders), GpuLock(folders)
    assert first.try_acquire()
    assert second.try_acquire()
    first.release()
    with pytest.raises(BlockingIOError), engine(folders[0]):
        pass
    second.release()
    with engine(folders[0]):
        assert not first.others_compute()


def test_a_rank_has_the_gpus_of_all_pools_or_of_none(folders: list[Path]) -> None:
    rank = GpuLock(folders)
    with engine(folders[1]):
        assert not rank.try_acquire()
        with engine(folders[0]):
            pass
    assert rank.try_acquire()


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(PoolAccessError, match="cannot be locked"):
        GpuLock([tmp_path / "none"]).try_acquire()
