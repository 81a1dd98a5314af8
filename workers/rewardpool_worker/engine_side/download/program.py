"""The command line of a download, and its report: one JSON object where Kubernetes keeps a container's last words.

On one machine it becomes the engine when the model is there (`--then`), and its last line says why it is not.

{"commit": …, "bytes": …, "files": …}    the model is there
{"reason": …, "message": …}              why it is not; exit code 1, and Kubernetes tries again, ever less often
"""

import argparse
import json
import os
import secrets
import signal
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from rewardpool_api.names import ENV_REVISION
from rewardpool_worker.engine_side.download.cache import ModelFolder
from rewardpool_worker.engine_side.download.errors import DownloadError
from rewardpool_worker.engine_side.download.lock import CacheLock, LostLockError
from rewardpool_worker.engine_side.download.progress import DownloadProgress, ProgressMonitor, end_at_once, serve
from rewardpool_worker.engine_side.download.release import RemoteModel
from rewardpool_worker.engine_side.download.run import DownloadJob

MAX_MESSAGE = 2000  # characters; Kubernetes keeps 4096 bytes


def main(argv: Sequence[str]) -> int:
    """Download the model and link it; returns the exit code, unless the process becomes the engine or fails."""
    wanted = _arguments(argv)
    given = dict(os.environ)
    # Bars are for terminals, the lines of the log come from the watch; and nobody learns who downloads what.
    os.environ.update(HF_HUB_DISABLE_PROGRESS_BARS="1", HF_HUB_DISABLE_TELEMETRY="1")
    try:
        source = _source(wanted.source, wanted.revision)
    except DownloadError as error:
        _fail(wanted.report, error.reason, str(error))
    cache = ModelFolder(
        (wanted.cache or _hub_cache()) / source.folder, wanted.records and wanted.records / source.folder
    )
    lock = CacheLock(cache.own, host=socket.gethostname(), process=secrets.token_hex(4))
    progress = DownloadProgress()

    def leave(*_: object) -> NoReturn:
        # A container's first process is not ended by SIGTERM unless it says so.
        lock.release()
        end_at_once(128 + signal.SIGTERM)

    def give_up(message: str) -> NoReturn:
        _fail(wanted.report, "DownloadStalled", message)

    signal.signal(signal.SIGTERM, leave)
    if wanted.port is not None:
        serve(progress, wanted.host, wanted.port)
    watch = ProgressMonitor(
        progress,
        beat=_beating(lock, give_up),
        holder_report=lock.report,
        give_up=give_up,
        stall_seconds=wanted.stall_seconds,
        say=_print,
    )
    threading.Thread(target=watch.run, name="watch", daemon=True).start()
    download = DownloadJob(
        source=source,
        cache=cache,
        lock=lock,
        progress=progress,
        pinned=lambda: _pin(wanted.pins),
        link=wanted.link,
    )
    try:
        outcome = download.run()
    except DownloadError as error:
        _fail(wanted.report, error.reason, str(error))
    except OSError as error:
        _fail(wanted.report, "CacheUnusable", f"the cache cannot be used: {error}")
    _print(f"{outcome.commit} is there: {outcome.files} files, {outcome.size / 1e9:.2f} GB")
    _report(wanted.report, {"commit": outcome.commit, "bytes": outcome.size, "files": outcome.files})
    if wanted.then:
        # All is there: looking for newer files on a hub costs an engine seconds, or minutes without a network.
        os.execvpe(wanted.then[0], wanted.then, {"HF_HUB_OFFLINE": "1", **given})  # noqa: S606 - as it was given
    return 0


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Download a model into a cache, and link its files.")
    parser.add_argument("--source", required=True, help="hf://ORG/NAME or s3://BUCKET/PREFIX")
    parser.add_argument("--revision", default="main", help="branch, tag or commit of a hub's model")
    parser.add_argument("--cache", type=Path, help="folder that may be shared by many pods; the hub's library's else")
    parser.add_argument("--records", type=Path, help="folder of records and locks; in the cache else")
    parser.add_argument("--link", type=Path, required=True, help="what shall lead to the files")
    parser.add_argument("--pins", type=Path, help="JSON file: revision of workers -> commit")
    parser.add_argument("--host", help="address that serves the progress")
    parser.add_argument("--port", type=int, help="port that serves the progress; none else")
    parser.add_argument("--report", type=Path, help="file that gets the result; none else")
    parser.add_argument("--stall-seconds", type=float, default=600.0, help="end when nothing moves for so long")
    parser.add_argument(
        "--then", nargs=argparse.REMAINDER, help="program to become, with its arguments: the last option"
    )
    return parser.parse_args(argv)


def _hub_cache() -> Path:
    # Images for s3://, for which a folder is named, need not have it.
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE)


def _source(url: str, revision: str) -> RemoteModel:
    scheme, _, where = url.rstrip("/").partition("://")
    try:
        if scheme == "s3":
            from rewardpool_worker.engine_side.download.s3 import S3Source

            bucket, _, prefix = where.partition("/")
            return S3Source(bucket, prefix)
        from rewardpool_worker.engine_side.download.hub import HubSource

        return HubSource(where, revision)
    except ImportError as error:
        raise DownloadError(
            "DownloaderMissing",
            f"the image has no {error.name}, which {scheme}:// takes: give the init container `download` an image that "
            "has it (RewardPool's own does) in spec.worker.podTemplate",
        ) from error


def _pin(pins: Path | None) -> str | None:
    if pins is None or not pins.is_file():
        return None
    commit = json.loads(pins.read_text()).get(os.environ.get(ENV_REVISION))
    return None if commit is None else str(commit)


def _beating(lock: CacheLock, give_up: Callable[[str], object]) -> Callable[[dict[str, Any]], None]:
    def beat(report: dict[str, Any]) -> None:
        try:
            lock.heartbeat(report)
        except LostLockError:
            give_up("this process was stopped for so long that another one took over")

    return beat


def _fail(report: Path | None, reason: str, message: str) -> NoReturn:
    _print(f"{reason}: {message}")
    _report(report, {"reason": reason, "message": message[:MAX_MESSAGE]})
    end_at_once(1)


def _report(path: Path | None, content: dict[str, Any]) -> None:
    if path is not None:
        path.write_text(json.dumps(content))


def _print(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
