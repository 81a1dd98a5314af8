"""One holder at a time, with flock and without, and a lock that dies with its holder."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rewardpool_worker.engine_side.download.lock import DEAD_SECONDS, CacheLock, LostLockError


class Clock:
    """Monotonic seconds that pass when told."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def no_flock(*_: object) -> None:
    raise OSError(errno.ENOTSUP, "not supported")


def granted_to_everybody(*_: object) -> None:
    """As some shared file systems do."""


def a_lock(folder: Path, host: str, clock: Clock | None = None, **how: object) -> CacheLock:
    return CacheLock(folder, host=host, process=host, clock=clock or Clock(), sleep=lambda _: None, **how)  # type: ignore[arg-type]


HOLD_UNTIL_KILLED = """
import pathlib, signal, sys
from rewardpool_worker.engine_side.download.lock import CacheLock
lock = CacheLock(pathlib.Path(sys.argv[1]), host="node", process="first")
print(lock.try_acquire(), flush=True)
signal.pause()
"""


@pytest.mark.parametrize("how", [{}, {"flock": no_flock}, {"flock": granted_to_everybody}], ids=["flock", "no", "sham"])
def test_one_holds_it_and_the_next_gets_it_when_it_is_given_back(tmp_path: Path, how: dict[str, object]) -> None:
    first, second = a_lock(tmp_path, "a", **how), a_lock(tmp_path, "b", **how)
    assert first.try_acquire()
    assert not second.try_acquire()
    first.release()
    assert second.try_acquire()


@pytest.mark.parametrize("how", [{"flock": no_flock}, {"flock": granted_to_everybody}], ids=["no", "sham"])
def test_without_flock_a_heart_that_stops_is_noticed_and_one_that_beats_is_respected(
    tmp_path: Path, how: dict[str, object]
) -> None:
    clock = Clock()
    first, second = a_lock(tmp_path, "a", **how), a_lock(tmp_path, "b", clock, **how)
    first.try_acquire()
    for _ in range(3):
        first.heartbeat({})
        clock.now += DEAD_SECONDS - 1
        assert not second.try_acquire()
    clock.now += DEAD_SECONDS
    assert second.try_acquire()


def test_who_was_taken_for_dead_learns_it(tmp_path: Path) -> None:
    clock = Clock()
    first, second = a_lock(tmp_path, "a", flock=no_flock), a_lock(tmp_path, "b", clock, flock=no_flock)
    first.try_acquire()
    second.try_acquire()
    clock.now += DEAD_SECONDS
    second.try_acquire()
    with pytest.raises(LostLockError):
        first.heartbeat({})


def test_the_lock_of_a_killed_process_of_this_machine_is_free_at_once(tmp_path: Path) -> None:
    second = CacheLock(tmp_path, host="node", process="second")
    with subprocess.Popen([sys.executable, "-c", HOLD_UNTIL_KILLED, tmp_path], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        try:
            assert holder.stdout.readline() == b"True\n"
            assert not second.try_acquire()
        finally:
            holder.kill()
    assert second.try_acquire()


def test_those_who_wait_hear_from_the_holder(tmp_path: Path) -> None:
    first, second = a_lock(tmp_path, "pod-a"), a_lock(tmp_path, "pod-b")
    first.try_acquire()
    first.heartbeat({"verifiedBytes": 5})
    assert (second.holder(), second.report()) == ("pod-a", {"verifiedBytes": 5})


@pytest.mark.parametrize("what", ["pipe", "link"])
def test_a_pipe_or_link_in_the_place_of_a_lock_is_refused_at_once(tmp_path: Path, what: str) -> None:
    folder, elsewhere = tmp_path / "own", tmp_path / "elsewhere"
    folder.mkdir()
    if what == "pipe":
        os.mkfifo(folder / "lock")
    else:
        (folder / "lock").symlink_to(elsewhere)
    with pytest.raises(OSError, match="no file: remove it"):
        a_lock(folder, "a").try_acquire()
    assert not elsewhere.exists()
