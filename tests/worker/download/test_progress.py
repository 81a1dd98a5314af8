"""What is told of a download, and when it is given up."""

import json
import urllib.error
import urllib.request
from typing import Any

import pytest

from rewardpool_api import names
from rewardpool_worker.engine_side.download import progress
from rewardpool_worker.engine_side.download.progress import DownloadProgress, ProgressMonitor, line


class Seen:
    """What a watch did, and the bytes it sees."""

    def __init__(self, *, stall_seconds: float = 60) -> None:
        self.bytes = 0
        self.holder: dict[str, Any] = {}
        self.given_up: list[str] = []
        self.lines: list[str] = []
        self.beats: list[dict[str, Any]] = []
        self.progress = DownloadProgress()
        self.progress.begin("abc", 10_000_000_000, lambda: self.bytes)
        self.progress.phase = "Downloading"
        self.watch = ProgressMonitor(
            self.progress,
            beat=self.beats.append,
            holder_report=lambda: dict(self.holder),
            give_up=self.given_up.append,
            stall_seconds=stall_seconds,
            say=self.lines.append,
        )


def test_a_download_that_moves_is_never_given_up() -> None:
    seen = Seen()
    for now in range(0, 600, 50):
        seen.bytes += 1
        seen.watch.check(now)
    assert seen.given_up == []


def test_a_download_in_which_nothing_moves_is_given_up() -> None:
    seen = Seen()
    seen.watch.check(0)
    seen.watch.check(60)
    assert seen.given_up == ["nothing moved for 60 s: downloading 0.00 of 10.00 GB"]


@pytest.mark.parametrize("moves", ["checking", "the holder"])
def test_checking_and_another_ones_work_count_as_moving(moves: str) -> None:
    seen = Seen()
    for now in range(0, 600, 50):
        if moves == "checking":
            seen.progress.read(1)
        else:
            seen.holder["verifiedBytes"] = now
        seen.watch.check(now)
    assert seen.given_up == []


def test_the_log_has_a_line_every_ten_seconds_with_the_rate() -> None:
    seen = Seen()
    for now in range(21):
        seen.bytes = now * 100_000_000
        seen.watch.check(now)
    assert seen.lines == [
        "downloading 0.00 of 10.00 GB",
        "downloading 1.00 of 10.00 GB, 100 MB/s",
        "downloading 2.00 of 10.00 GB, 100 MB/s",
    ]


def test_with_all_bytes_there_it_is_checking() -> None:
    seen = Seen()
    seen.bytes = 10_000_000_000
    assert seen.progress.report()["phase"] == "Verifying"
    assert line(seen.progress.report(), None).startswith("verifying 10.00 of 10.00 GB")


@pytest.mark.parametrize(("listens", "asked"), [("127.0.0.1", "127.0.0.1"), ("::", "[::1]")])
def test_the_operator_is_told_over_http(free_port: int, listens: str, asked: str) -> None:
    progress.serve(Seen().progress, listens, free_port)
    with urllib.request.urlopen(f"http://{asked}:{free_port}{names.DOWNLOAD_PATH}", timeout=5) as answer:
        told = json.load(answer)
    assert (told["commit"], told["totalBytes"]) == ("abc", 10_000_000_000)
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(f"http://{asked}:{free_port}/", timeout=5)
