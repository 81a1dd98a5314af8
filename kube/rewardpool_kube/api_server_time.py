"""Share of a pass that is the API server's: the seconds in which the pass had a call to it under way.

Calls of one pass run beside each other, so what is summed up is time with any of them, and not their own times.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from time import monotonic


@dataclass
class ApiServerTime:
    """Seconds of one pass."""

    clock: Callable[[], float] = monotonic
    _calls: int = 0
    _since: float = 0.0
    _seconds: float = 0.0

    @property
    def seconds(self) -> float:
        """With a call under way, until now."""
        return self._seconds + (self.clock() - self._since if self._calls else 0.0)

    @contextmanager
    def call(self) -> Iterator[None]:
        if not self._calls:
            self._since = self.clock()
        self._calls += 1
        try:
            yield
        finally:
            self._calls -= 1
            if not self._calls:
                self._seconds += self.clock() - self._since


_of_pass: ContextVar[ApiServerTime | None] = ContextVar("api_server_time", default=None)


def begin() -> ApiServerTime:
    """Count the calls of this task, and of those that it begins, from now on."""
    counted = ApiServerTime()
    _of_pass.set(counted)
    return counted


@contextmanager
def calling() -> Iterator[None]:
    """A call to the API server; counted where somebody counts."""
    counted = _of_pass.get()
    if counted is None:
        yield
        return
    with counted.call():
        yield
