"""One run of a download, from a pin to a link; see the package for the way."""

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Event
from typing import TypeVar

from rewardpool_worker.engine_side.download.cache import THREADS, ModelFolder, Record, StoppedError
from rewardpool_worker.engine_side.download.errors import DownloadError, disk_error
from rewardpool_worker.engine_side.download.lock import CacheLock
from rewardpool_worker.engine_side.download.progress import DownloadProgress
from rewardpool_worker.engine_side.download.release import Release, RemoteFile, RemoteModel

LONGEST_PAUSE_SECONDS = 60.0
LONGEST_ASKED_PAUSE_SECONDS = 300.0
ATTEMPTS_WITH_KNOWN = 2
NAMED = 5
POLL_SECONDS = 1.0

Result = TypeVar("Result")


@dataclass(frozen=True)
class DownloadOutcome:
    """Result of a download."""

    commit: str
    size: int
    """Bytes."""
    files: int


@dataclass(frozen=True)
class DownloadJob:
    """A download to make, and its destination."""

    source: RemoteModel
    cache: ModelFolder
    lock: CacheLock
    progress: DownloadProgress
    pinned: Callable[[], str | None]
    """The commit that this revision of workers is to serve, once somebody decided it."""
    link: Path
    wait: Callable[[Event, float], object] = Event.wait

    def run(self) -> DownloadOutcome:
        """Download the model.

        Raises:
            DownloadError: it cannot be had.
            LostLockError: another process took this one for dead.
        """
        commit, record = self._have(self.pinned())
        pinned = self.pinned()
        if pinned not in (None, commit):
            # Another pod was first, and the branch moved between its look and ours.
            commit, record = self._have(pinned)
        self.link.parent.mkdir(parents=True, exist_ok=True)
        # What was compared, and not what the record says by now.
        self.cache.link(self.link, commit, record)
        size, files = self.cache.size(commit, record)
        return DownloadOutcome(commit, size, files)

    def _have(self, pinned: str | None) -> tuple[str, Record | None]:
        if pinned is not None and self.cache.is_complete(pinned):
            return self._checked(pinned)
        known = self.cache.last_known(pinned or self.source.revision)
        try:
            # With something to go on with, nobody waits minutes for a server that is away.
            most = None if known is None else ATTEMPTS_WITH_KNOWN
            release = self._patiently(lambda: self.source.release(pinned), Event(), most=most)
        except DownloadError as error:
            if error.reason != "SourceUnreachable" or known is None:
                raise
            self.progress.note = f"{error}; going on with {known}, which is in the cache"
            return self._checked(known)
        self.progress.begin(release.commit, release.size, partial(self.cache.downloaded_bytes, release))
        fresh: Record | None = None
        while not self._is_there(release):
            if not self.lock.try_acquire():
                self.progress.phase, self.progress.note = "Waiting", f"for {self.lock.holder()}"
                self.wait(Event(), POLL_SECONDS)
                continue
            try:
                if not self._is_there(release):
                    fresh = self._download(release)
            finally:
                self.lock.release()
        self.cache.remember(self.source.revision, release.commit)
        return self._checked(release.commit) if fresh is None else (release.commit, fresh)

    def _is_there(self, release: Release) -> bool:
        """Return whether the release was checked, and not by somebody who wrote a record of other files."""

        def digest(file: RemoteFile) -> str | None:
            return self._patiently(lambda: self.source.digest(file), Event())

        return self.cache.is_complete(release.commit) and self.cache.agrees(release, digest)

    def _checked(self, commit: str) -> tuple[str, Record | None]:
        """The commit and its record, once its files were found to be those of the record; without one, at once.

        Raises:
            DownloadError: a file was changed since it was checked.
        """
        record = self.cache.record(commit)
        if record is None:
            return commit, None
        size, _ = self.cache.size(commit, record)
        self.progress.begin(commit, size, lambda: size)
        self.progress.phase = "Downloading"
        changed = self.cache.changed(record, read=self.progress.read)
        if changed:
            raise DownloadError(
                "CacheChanged",
                f"{', '.join(changed[:NAMED])}{' …' if len(changed) > NAMED else ''} in {self.cache.folder.name} of the"
                " cache: not what was downloaded. See who may write there, then remove"
                f" {self.cache.own}: the next start downloads it anew",
            )
        return commit, record

    def _download(self, release: Release) -> Record:
        self.progress.phase, self.progress.note = "Downloading", None
        self.cache.prepare(release)
        stop = Event()
        different = {file.name: file for file in release.files}
        with ThreadPoolExecutor(THREADS, thread_name_prefix="file") as threads:
            running = {name: threads.submit(self._file, release.commit, file, stop) for name, file in different.items()}
            errors = [error for future in running.values() if (error := future.exception())]
        if errors:
            # Those that were told to stop are no cause.
            raise next((error for error in errors if not isinstance(error, StoppedError)), errors[0])
        return self.cache.finish(release, {name: future.result() for name, future in running.items()})

    def _file(self, commit: str, file: RemoteFile, stop: Event) -> str:
        read = self.progress.read
        try:
            return self._patiently(lambda: self.cache.fetch(self.source, commit, file, stop=stop, read=read), stop)
        except BaseException:
            stop.set()
            raise

    def _patiently(self, step: Callable[[], Result], stop: Event, *, most: int | None = None) -> Result:
        """Do the step, again after a pause where that may help, and `most` times in all."""
        attempt = 1
        while True:
            if stop.is_set():
                raise StoppedError
            try:
                result = step()
            except OSError as error:
                raise disk_error(error) or error from error
            except DownloadError as error:
                attempts = min(error.attempts, most or error.attempts)
                if attempt >= attempts:
                    raise
                attempt += 1
                pause = min(LONGEST_PAUSE_SECONDS, 2.0**attempt) * random.uniform(0.5, 1.0)  # noqa: S311
                if error.wait_seconds is not None:
                    pause += min(LONGEST_ASKED_PAUSE_SECONDS, error.wait_seconds)
                said = f"{error.reason}: {error}; attempt {attempt} of {attempts} in {pause:.0f} s"
                self.progress.note = said
                self.wait(stop, pause)
            else:
                self.progress.note = None
                return result
