"""Announcements of training jobs on this machine: `demands/JOB.json` in the pool's folder, renewed by writing it anew.

    {"leaseSeconds": 15, "demand": {...}}          the demand as in `rewardpool_api.demand`

A job replaces its file as a whole, so it is never read half written; when the job dies, it lapses. The
folder is listed in every pass, so a file that is as it was is not read again.
"""

import json
import logging
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from rewardpool_api.demand import MAX_BYTES, Demand, DemandError, parse_demand
from rewardpool_control.announcements import MOST, Renewals, UnreadAnnouncement, announcements, is_over
from rewardpool_control.autoscaler.signals import Announcement

log = logging.getLogger(__name__)

ENDING: Final = ".json"
LOOKED_AT: Final = 1000  # who has the owner's rights may put any number of files there
MAX_FILE_BYTES: Final = 2 * MAX_BYTES  # room for indentation around a demand


@dataclass(frozen=True)
class _File:
    stamp: tuple[int, int, int]
    """Changes when it is replaced: inode, time in nanoseconds, size."""
    written: datetime
    stated: object
    said: Demand | str

    def demand(self) -> Demand:
        if isinstance(self.said, str):
            raise DemandError(self.said)
        return self.said


class DemandFiles:
    """The announcements of one pool's folder, which need not exist."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[str, _File] = {}
        self._renewals = Renewals()
        self._announcements: tuple[Announcement, ...] = ()
        self._warned: set[str] = set()

    def observe(self, *, now: datetime) -> tuple[Announcement, ...]:
        """Return the present announcements, by name; the last known ones while the folder cannot be read."""
        try:
            self._files = {path.name: file for path in self._paths() if (file := self._file(path)) is not None}
        except OSError as error:
            self._warn_once(f"demands cannot be read: {error}")
        renewed = self._renewals.observe({name: file.written for name, file in self._files.items()}, now=now)
        unread = [
            # A file has no time of its making that outlives its renewals, so of too many the first names count.
            UnreadAnnouncement(name=name, made="", renewal=renewed[name], stated=file.stated, read=file.demand)
            for name, file in self._files.items()
        ]
        self._announcements = announcements(unread, now=now)
        if len(unread) > MOST:
            self._warn_once(f"of {len(unread)} demands, {MOST} count")
        return self._announcements

    def remove_old(self, *, now: datetime) -> None:
        for one in self._announcements:
            path = self._folder / one.name
            try:
                # One that was written anew meanwhile stays.
                if is_over(one, now=now) and _stamp_of(path) == self._files[one.name].stamp:
                    path.unlink(missing_ok=True)
            except OSError as error:
                self._warn_once(f"a demand that is over cannot be removed: {error}")

    def _warn_once(self, problem: str) -> None:
        if problem not in self._warned:
            log.warning("%s", problem)
            self._warned.add(problem)

    def _paths(self) -> Iterator[Path]:
        try:
            found = os.scandir(self._folder)
        except FileNotFoundError:
            return
        with found as entries:
            names = sorted(entry.name for entry, _ in zip(entries, range(LOOKED_AT), strict=False))
        for name in names:
            if name.endswith(ENDING) and not name.startswith("."):
                yield self._folder / name

    def _file(self, path: Path) -> _File | None:
        """The file, read anew if it is another one than before; None where it is none, or gone."""
        stamp, known = _stamp_of(path), self._files.get(path.name)
        if stamp is None or (known is not None and known.stamp == stamp):
            return known if stamp is not None else None
        written = datetime.fromtimestamp(stamp[1] / 1e9, UTC)
        stated: object = None
        said: Demand | str
        try:
            stated, said = _read(path)
        except DemandError as error:
            said = str(error)
        except FileNotFoundError:
            return None
        except OSError as error:
            said = f"it cannot be read: {error.strerror}"
        return _File(stamp=stamp, written=written, stated=stated, said=said)


def _stamp_of(path: Path) -> tuple[int, int, int] | None:
    """Return the identity of a plain file; None for anything else: reading a pipe would wait for ever."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return None
    return (found.st_ino, found.st_mtime_ns, found.st_size) if stat.S_ISREG(found.st_mode) else None


def _read(path: Path) -> tuple[object, Demand]:
    with path.open("rb") as file:
        raw = file.read(MAX_FILE_BYTES + 1)
    if len(raw) > MAX_FILE_BYTES:
        raise DemandError(f"it has more than {MAX_FILE_BYTES} bytes")
    try:
        content = json.loads(raw)
    except (ValueError, RecursionError):
        raise DemandError("it is no JSON") from None
    if not isinstance(content, dict) or "demand" not in content:
        raise DemandError('it is no object with an entry "demand"')
    demand = parse_demand(json.dumps(content["demand"]))
    if f"{demand.job}{ENDING}" != path.name:
        raise DemandError(f"job: the file of job {demand.job} is called {demand.job}{ENDING}")
    return content.get("leaseSeconds"), demand
