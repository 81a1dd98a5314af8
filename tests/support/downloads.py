"""A model at a hub, and what tests do with downloads of it."""

import threading
from collections.abc import Callable

from rewardpool_worker.engine_side.download.run import DownloadJob

REPO = "org/rm"
FILES = {"config.json": b"{}", "model.safetensors": bytes(range(256)) * 40}

Make = Callable[..., DownloadJob]
"""Makes a download into the test's one cache."""


def content(download: DownloadJob) -> dict[str, bytes]:
    """What an engine would read."""
    paths = [path for path in download.link.rglob("*") if path.is_file()]
    return {str(path.relative_to(download.link)): path.read_bytes() for path in paths}


def together(*downloads: DownloadJob) -> None:
    """Run them side by side, to the end."""
    threads = [threading.Thread(target=download.run) for download in downloads]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
