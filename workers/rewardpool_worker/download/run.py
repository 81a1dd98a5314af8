"""One run of a download, from a pin to a link; see the package for the way."""

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Event
from typing import TypeVar

from .cache import ModelCache, StoppedError
from .errors import DownloadError, disk_error
from .lock import CacheLock
from .progress import Progress
from .release import Release, RemoteFile, Source

THREADS = 8
"""Files fetched side by side."""
LONGEST_PAUSE_SECONDS = 60.0
LONGEST_ASKED_PAUSE_SECONDS = 300.0
"""A server that asks for a longer pause is asked again after this one."""
POLL_SECONDS = 1.0
"""Between two looks at a lock that another one holds."""

Result = TypeVar("Result")


@dataclass(frozen=True)
class Outcome:
    """What is there now."""

    commit: str
    size: int
    """Bytes."""
    files: int


@dataclass(frozen=True)
class Download:
    """What to have, and where."""

    source: Source
    cache: ModelCache
    lock: CacheLock
    progress: Progress
    pinned: Callable[[], str | None]
    """The commit that this revision of workers is to serve, once somebody decided it."""
    link: Path
    """What shall lead to the files."""
    wait: Callable[[Event, float], object] = Event.wait
    """Waits so many seconds, or until the event."""

    def run(self) -> Outcome:
        """Have the model.

        Raises:
            DownloadError: it cannot be had.
            LostLockError: another process took this one for dead.
        """
        commit = self._have(self.pinned())
        pinned = self.pinned()
        if pinned not in (None, commit):
            # Another pod was first, and the branch moved between its look and ours.
            commit = self._have(pinned)
        self.link.parent.mkdir(parents=True, exist_ok=True)
        self.cache.link(self.link, commit)
        size, files = self.cache.size(commit)
        return Outcome(commit, size, files)

    def _have(self, pinned: str | None) -> str:
        if pinned is not None and self.cache.is_complete(pinned):
            return pinned
        try:
            release = self._patiently(lambda: self.source.release(pinned), Event())
        except DownloadError as error:
            known = self.cache.last_known(pinned or self.source.revision)
            if error.reason != "SourceUnreachable" or known is None:
                raise
            self.progress.note = f"{error}; going on with {known}, which is in the cache"
            return known
        self.progress.begin(release.commit, release.size, partial(self.cache.downloaded_bytes, release))
        while not self.cache.is_complete(release.commit):
            if not self.lock.try_acquire():
                self.progress.phase, self.progress.note = "Waiting", f"for {self.lock.holder()}"
                self.wait(Event(), POLL_SECONDS)
                continue
            try:
                if not self.cache.is_complete(release.commit):
                    self._download(release)
            finally:
                self.lock.release()
        self.cache.remember(self.source.revision, release.commit)
        return release.commit

    def _download(self, release: Release) -> None:
        self.progress.phase, self.progress.note = "Downloading", None
        self.cache.prepare(release)
        stop = Event()
        different = {file.name: file for file in release.files}
        with ThreadPoolExecutor(THREADS, thread_name_prefix="file") as threads:
            running = [threads.submit(self._file, release.commit, file, stop) for file in different.values()]
            errors = [error for future in running if (error := future.exception())]
        if errors:
            # Those that were told to stop are no cause.
            raise next((error for error in errors if not isinstance(error, StoppedError)), errors[0])
        self.cache.finish(release)

    def _file(self, commit: str, file: RemoteFile, stop: Event) -> None:
        read = self.progress.read
        try:
            self._patiently(lambda: self.cache.fetch(self.source, commit, file, stop=stop, read=read), stop)
        except BaseException:
            stop.set()
            raise

    def _patiently(self, step: Callable[[], Result], stop: Event) -> Result:
        """Do the step, again after a pause where that may help."""
        attempt = 1
        while True:
            if stop.is_set():
                raise StoppedError
            try:
                result = step()
            except OSError as error:
                raise disk_error(error) or error from error
            except DownloadError as error:
                if attempt >= error.attempts:
                    raise
                attempt += 1
                pause = min(LONGEST_PAUSE_SECONDS, 2.0**attempt) * random.uniform(0.5, 1.0)  # noqa: S311
                if error.wait_seconds is not None:
                    pause += min(LONGEST_ASKED_PAUSE_SECONDS, error.wait_seconds)
                said = f"{error.reason}: {error}; attempt {attempt} of {error.attempts} in {pause:.0f} s"
                self.progress.note = said
                self.wait(stop, pause)
            else:
                self.progress.note = None
                return result
