"""Where the machine's time goes: CPU seconds of every program of the run, over a stretch of it."""

import os

import psutil


class Programs:
    """The running process and the programs it started.

    Args:
        names: process id -> what to call it, where the program's own name says too little.
    """

    def __init__(self, names: dict[int, str]) -> None:
        self._names = {os.getpid(): "bench", **names}
        self._before = self._seconds()

    def cpu_seconds(self) -> dict[str, float]:
        """CPU seconds of each since the last call, or since the start."""
        now = self._seconds()
        since = {name: seconds - self._before.get(name, 0.0) for name, seconds in now.items()}
        self._before = now
        return since

    def _seconds(self) -> dict[str, float]:
        own = psutil.Process()
        seconds = {}
        for process in [own, *own.children()]:
            times = process.cpu_times()
            seconds[self._names.get(process.pid, process.name())] = times.user + times.system
        return seconds
