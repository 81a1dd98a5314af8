"""What the processes take of memory over time, read from /proc on a thread of its own."""

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from cluster.breaking import processes
from cluster.processes import ClusterError

EVERY_SECONDS = 5.0
WARM_SECONDS = 30.0
"""For which a process has been seen when its growth begins: starting is not growing."""
MIB = 2**20


@dataclass(kw_only=True)
class Course:
    """The memory of one process, in bytes: when it was warm, and when it was last seen."""

    began: float
    warm: int | None = None
    last: int = 0

    @property
    def growth(self) -> int:
        """Bytes that it grew by since it was warm."""
        return 0 if self.warm is None else self.last - self.warm


@dataclass(kw_only=True)
class Memory:
    """All processes, by their name and what tells one from the next of that name."""

    courses: dict[tuple[str, str], Course] = field(default_factory=dict)

    def see(self, name: str, life: str, size: int, *, at: float) -> None:
        """Note the size of a process, in bytes, at a time in seconds."""
        course = self.courses.setdefault((name, life), Course(began=at))
        if course.warm is None and at - course.began >= WARM_SECONDS:
            course.warm = size
        course.last = size

    def growth_mb(self) -> dict[str, float]:
        """By the processes' name, what the one grew by that grew most, in MiB."""
        grown: dict[str, int] = {}
        for (name, _), course in self.courses.items():
            grown[name] = max(grown.get(name, course.growth), course.growth)
        return {name: round(size / MIB, 1) for name, size in sorted(grown.items())}


class Watch:
    """Looks at the containers' processes until it is left; `names` gives the name of each container by its id."""

    def __init__(self, names: Callable[[], Mapping[str, str]]) -> None:
        self.memory = Memory()
        self._names = names
        self._known: Mapping[str, str] = {}
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="memory", daemon=True)

    def __enter__(self) -> "Watch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._end.wait(EVERY_SECONDS):
            self._look()

    def _look(self) -> None:
        # A sandbox does nothing but sleep.
        found = [(one, size) for one in processes() if (size := resident_bytes(one.pid)) > MIB]
        if {process.container for process, _ in found} - self._known.keys():
            with suppress(ClusterError):  # the API server may be what is broken
                self._known = {**self._known, **self._names()}
        for process, size in found:
            if (name := self._known.get(process.container)) is not None:
                self.memory.see(name, f"{process.container}/{process.pid}", size, at=time.monotonic())


def resident_bytes(pid: int) -> int:
    """What a process has in memory; 0 where it is gone."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return pages * 4096
