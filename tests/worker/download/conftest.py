"""A hub, a cache, and a download between them."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.downloads import FILES, REPO, Make
from support.fake_hub import FakeHub
from support.ports import free_port

from rewardpool_worker.engine_side.download.cache import ModelFolder
from rewardpool_worker.engine_side.download.hub import HubSource
from rewardpool_worker.engine_side.download.lock import CacheLock
from rewardpool_worker.engine_side.download.progress import DownloadProgress
from rewardpool_worker.engine_side.download.release import RemoteModel
from rewardpool_worker.engine_side.download.run import DownloadJob


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    with FakeHub() as hub:
        hub.model(REPO, dict(FILES))
        yield hub


@pytest.fixture
def download(hub: FakeHub, tmp_path: Path) -> Make:
    """Downloads into the same cache, each with a link of its own; nothing waits."""
    numbers = itertools.count()

    def make(*, token: str | None = None, pin: str | None = None, source: RemoteModel | None = None) -> DownloadJob:
        number = next(numbers)
        source = source or HubSource(REPO, "main", endpoint=hub.url, token=token or "none")
        cache = ModelFolder(tmp_path / "cache" / source.folder)
        return DownloadJob(
            source=source,
            cache=cache,
            lock=CacheLock(cache.own, host=f"pod-{number}", process=str(number), sleep=lambda _: None),
            progress=DownloadProgress(),
            pinned=lambda: pin,
            link=tmp_path / f"pod-{number}" / "current",
            wait=lambda event, _: event.wait(0.01),
        )

    return make


@pytest.fixture(name="free_port")
def free_port_fixture() -> int:
    return free_port()
