"""Progress of a download: for the operator over HTTP, for people in the log, and for the lock's heartbeat.

The bytes on the disk are the measure, so whoever waits for another one's download sees the same numbers. What moves no
more is ended: the process goes, its lock with it, and the next one goes on from the bytes there are.
"""

import json
import os
import socket
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NoReturn

from rewardpool_api.names import DOWNLOAD_PATH

TICK_SECONDS = 1.0
LINE_SECONDS = 10.0


class DownloadProgress:
    """State of the download; written by its threads, read by the watch."""

    def __init__(self) -> None:
        self.phase = "Resolving"
        """Resolving, Waiting (for another pod's download), or Downloading (Verifying, when no byte is missing)."""
        self.commit: str | None = None
        self.note: str | None = None
        self.total_bytes: int | None = None
        self._measure: Callable[[], int] = lambda: 0
        self._read = 0
        self._lock = threading.Lock()

    def begin(self, commit: str, total_bytes: int, measure: Callable[[], int]) -> None:
        """A release is to be had; `measure` tells its bytes on the disk."""
        self.commit, self.total_bytes, self._measure = commit, total_bytes, measure

    def read(self, count: int) -> None:
        with self._lock:
            self._read += count

    def report(self) -> dict[str, Any]:
        downloaded = self._measure()
        checking = self.phase == "Downloading" and downloaded == self.total_bytes
        return {
            "phase": "Verifying" if checking else self.phase,
            "commit": self.commit,
            "downloadedBytes": downloaded,
            "totalBytes": self.total_bytes,
            "verifiedBytes": self._read,
            "note": self.note,
        }


class ProgressMonitor:
    """Looks at the progress every second: heartbeat, a line in the log now and then, an end when nothing moves."""

    def __init__(
        self,
        progress: DownloadProgress,
        *,
        beat: Callable[[dict[str, Any]], object],
        holder_report: Callable[[], object],
        give_up: Callable[[str], object],
        stall_seconds: float,
        say: Callable[[str], object],
    ) -> None:
        """Watch nothing yet.

        Args:
            beat: given the state every time, to show others that we live.
            holder_report: what the one who downloads says, which may be somebody else.
            give_up: called with a sentence when nothing has moved for `stall_seconds`.
            say: writes a line to the log.
        """
        self._progress = progress
        self._beat = beat
        self._holder_report = holder_report
        self._give_up = give_up
        self._stall_seconds = stall_seconds
        self._say = say
        self._moved: tuple[object, float] | None = None
        self._said: tuple[float, int] | None = None

    def run(self) -> None:
        """Look until the process ends; for a thread of its own."""
        while True:
            try:
                self.check(time.monotonic())
            except OSError as error:
                # A full or a stale disk; the download itself will say so.
                self._say(f"cannot look at the cache: {error}")
            time.sleep(TICK_SECONDS)

    def check(self, now: float) -> None:
        """One look, at `now` in monotonic seconds."""
        report = self._progress.report()
        self._beat(report)
        state = (report, self._holder_report())
        if self._moved is None or self._moved[0] != state:
            self._moved = (state, now)
        elif now - self._moved[1] >= self._stall_seconds:
            self._give_up(f"nothing moved for {self._stall_seconds:.0f} s: {line(report, None)}")
        if self._said is None or now - self._said[0] >= LINE_SECONDS:
            self._say(line(report, self._rate(report, now)))
            self._said = (now, report["downloadedBytes"])

    def _rate(self, report: dict[str, Any], now: float) -> float | None:
        return None if self._said is None else (report["downloadedBytes"] - self._said[1]) / (now - self._said[0])


def line(report: dict[str, Any], bytes_per_second: float | None) -> str:
    """The state for people."""
    text = str(report["phase"]).lower()
    if report["totalBytes"] is not None:
        text += f" {report['downloadedBytes'] / 1e9:.2f} of {report['totalBytes'] / 1e9:.2f} GB"
    if bytes_per_second:
        text += f", {bytes_per_second / 1e6:.0f} MB/s"
    return f"{text}, {report['note']}" if report["note"] else text


def serve(progress: DownloadProgress, host: str, port: int) -> None:
    """Answer `GET /rewardpool/download` in the background until the process ends.

    Raises:
        OSError: the port is taken.
    """

    # Byte counts and nothing secret, so without a key.
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(
                progress.report() if self.path == DOWNLOAD_PATH else {"error": f"only {DOWNLOAD_PATH} is here"}
            ).encode()
            self.send_response(200 if self.path == DOWNLOAD_PATH else 404)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as the base class has it
            """Say nothing: the operator asks every few seconds."""

    class Server(ThreadingHTTPServer):
        address_family = socket.AF_INET6 if ":" in host else socket.AF_INET

    server = Server((host, port), Handler)
    threading.Thread(target=server.serve_forever, name="progress", daemon=True).start()


def end_at_once(code: int) -> NoReturn:
    """End the process with all its threads, whatever they wait for."""
    os._exit(code)
