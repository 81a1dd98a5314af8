"""Holding a pool awake: files and a status that the test writes in the supervisor's place."""

import asyncio
import fcntl
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.local_pool import POOL, environ_of, write_local_pool

from rewardpool._client.wake_lock import Awake, Hold
from rewardpool._discovery.endpoint import Endpoint
from rewardpool._discovery.pool_sources import KubernetesSource, LocalSource
from rewardpool.errors import ConfigError, PoolAccessError, PoolNotReadyError
from rewardpool_api import names
from rewardpool_runtime.state_files import AWAKE_DIR


class Folder:
    """A pool's folder, and what its supervisor would do with it."""

    def __init__(self, state_dir: Path) -> None:
        self.path = write_local_pool(state_dir)
        (self.path / AWAKE_DIR).mkdir()
        self.say(state="Asleep")
        source = LocalSource(environ_of(state_dir))
        self.endpoint = Endpoint(url="http://127.0.0.1:9", pool=POOL, served_name="rm", origin="test", source=source)

    def holders(self) -> list[str]:
        return sorted(path.name for path in (self.path / AWAKE_DIR).iterdir())

    def say(self, *, state: str, sleeps: bool = True) -> None:
        file = self.path / names.STATE_FILE
        pool: dict[str, Any] = json.loads(file.read_text())
        pool["spec"]["engine"] = {"name": "vllm", "sleep": {"enabled": sleeps}}
        pool["status"]["sleep"] = {"state": state, "holders": self.holders()}
        file.write_text(json.dumps(pool))

    async def obey(self, _: float) -> None:
        """Be the supervisor for a moment."""
        self.say(state="Awake" if self.holders() else "Asleep")
        await asyncio.sleep(0)

    async def ignore(self, _: float) -> None:
        """A supervisor that does nothing."""
        await asyncio.sleep(0)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


async def test_blocks_that_overlap_are_one_hold(folder: Folder) -> None:
    awake = Awake(sleep=folder.obey)
    async with awake.hold(folder.endpoint, within_seconds=5):
        (held,) = folder.holders()
        async with awake.hold(folder.endpoint, within_seconds=5):
            assert folder.holders() == [held]
        assert folder.holders() == [held]
    assert folder.holders() == []


async def test_a_hold_is_let_go_when_the_block_fails(folder: Folder) -> None:
    with pytest.raises(ZeroDivisionError):
        async with Awake(sleep=folder.obey).hold(folder.endpoint, within_seconds=5):
            raise ZeroDivisionError
    assert folder.holders() == []


async def test_a_pool_that_does_not_wake_is_an_error_and_nothing_is_held(folder: Folder) -> None:
    ticks = iter(range(100))
    awake = Awake(clock=lambda: float(next(ticks)), sleep=folder.ignore)
    with pytest.raises(PoolNotReadyError, match="did not wake within 3 s"):
        async with awake.hold(folder.endpoint, within_seconds=3):
            pass
    assert folder.holders() == []


async def test_an_earlier_status_is_no_answer(folder: Folder) -> None:
    folder.say(state="Awake")
    ticks = iter(range(100))
    awake = Awake(clock=lambda: float(next(ticks)), sleep=folder.ignore)
    with pytest.raises(PoolNotReadyError):
        async with awake.hold(folder.endpoint, within_seconds=3):
            pass


async def test_a_pool_that_does_not_sleep_is_always_awake(folder: Folder) -> None:
    folder.say(state="Awake", sleeps=False)
    async with Awake(sleep=folder.ignore).hold(folder.endpoint, within_seconds=1):
        assert folder.holders() == []


async def test_a_url_alone_cannot_be_held(folder: Folder) -> None:
    with pytest.raises(ConfigError, match="pool: name the pool"):
        async with Awake().hold(replace(folder.endpoint, source=None), within_seconds=1):
            pass


async def test_a_pool_in_a_cluster_cannot_be_held(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = KubernetesSource({"KUBECONFIG": "/none"})
    source = folder.endpoint.source
    assert source is not None
    monkeypatch.setattr(cluster, "read_pool", source.read_pool)
    with pytest.raises(ConfigError, match="nobody wakes engines"):
        async with Awake().hold(replace(folder.endpoint, source=cluster), within_seconds=1):
            pass


def test_a_hold_is_locked_from_the_moment_it_has_its_name(folder: Folder) -> None:
    hold = Hold(folder.path)
    with (folder.path / AWAKE_DIR / hold.name).open("rb") as file, pytest.raises(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    hold.release()
    assert folder.holders() == []


def test_a_pool_without_a_folder_for_it_cannot_be_held(tmp_path: Path) -> None:
    with pytest.raises(PoolAccessError, match="cannot be kept awake"):
        Hold(tmp_path)
