"""Progress of a file: rows done, rows a second and the time left, on a terminal as a bar, elsewhere as a line."""

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

# Shorter waits need no progress.
FIRST_AFTER_SECONDS: Final = 2.0
# What was scored before a pool grew says little of the present rate.
RATE_SECONDS: Final = 30.0
# Before that the time left would be that of a pool which has just been opened.
LEFT_AFTER_SECONDS: Final = 5.0
# Between two lines, without a terminal.
LINE_SECONDS: Final = 10.0


@dataclass(frozen=True, kw_only=True)
class FileProgress:
    """Progress of a file.

    Attributes:
        done: Rows that are done, those of earlier runs included.
        total: Rows that there are; None where that is not known.
        unscored: Of those that are done; of this run.
        rate: Rows a second, of the last half minute.
        seconds_left: Until all are done, at that rate; None where that is not known yet.
    """

    what: str
    done: int
    total: int | None
    unscored: int
    rate: float
    seconds_left: float | None

    def __str__(self) -> str:
        of = "" if self.total is None else f" of {self.total:,}"
        unscored = f", {self.unscored:,} without a score" if self.unscored else ""
        left = "" if self.seconds_left is None else f", {_duration(self.seconds_left)} left"
        return f"{self.what} {self.done:,}{of} rows, {self.rate:,.0f} rows/s{unscored}{left}"


class RateMeter:
    """Works out the rate of what is done.

    Args:
        before: Rows that earlier runs did.
        total: Rows that there are; None where that is not known.
        clock: Gives monotonic seconds.
    """

    def __init__(
        self, what: str, *, before: int = 0, total: int | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._what = what
        self._total = total
        self._clock = clock
        self._began = clock()
        # Time and rows done, at most one pair each second, of the last half minute.
        self._seen = deque([(self._began, before)])

    def progress(self, done: int, *, unscored: int = 0) -> FileProgress:
        """Return how far it is with so many rows done, those of earlier runs included."""
        now = self._clock()
        while len(self._seen) > 1 and self._seen[1][0] <= now - RATE_SECONDS:
            self._seen.popleft()
        since, before = self._seen[0]
        rate = (done - before) / (now - since) if now > since else 0.0
        if now >= self._seen[-1][0] + 1:
            self._seen.append((now, done))
        left = None
        if self._total is not None and rate > 0 and now >= self._began + LEFT_AFTER_SECONDS:
            left = (self._total - done) / rate
        return FileProgress(
            what=self._what, done=done, total=self._total, unscored=unscored, rate=rate, seconds_left=left
        )


Show = Callable[[FileProgress], None]


def silent(progress: FileProgress) -> None:
    """Show nothing."""


class Lines:
    """Shows progress as lines, the first after two seconds and then every ten."""

    def __init__(self, write: Callable[[str], None], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._write = write
        self._clock = clock
        self._next = clock() + FIRST_AFTER_SECONDS

    def __call__(self, progress: FileProgress) -> None:
        now = self._clock()
        if now >= self._next:
            self._next = now + LINE_SECONDS
            self._write(str(progress))


@contextmanager
def bar() -> Iterator[Show]:
    """Show progress as a bar on stderr, once it has taken two seconds."""
    from rich.console import Console  # slow to import, and short work needs none of it
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Bar

    shown = Bar(BarColumn(bar_width=24), TextColumn("{task.description}"), console=Console(stderr=True), transient=True)
    task = shown.add_task("", total=None)
    began = time.monotonic()

    def show(progress: FileProgress) -> None:
        if not shown.live.is_started and time.monotonic() - began >= FIRST_AFTER_SECONDS:
            shown.start()
        shown.update(task, completed=progress.done, total=progress.total, description=str(progress))

    try:
        yield show
    finally:
        shown.stop()


def _duration(seconds: float) -> str:
    """Seconds as a person reads them: `1 h 05 min`, `3 min 20 s`, `8 s`."""
    whole = round(seconds)
    if whole >= 3600:
        return f"{whole // 3600} h {whole % 3600 // 60:02} min"
    return f"{whole // 60} min {whole % 60:02} s" if whole >= 60 else f"{whole} s"
