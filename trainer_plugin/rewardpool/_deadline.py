"""Part of its deadline that a sample has used up before the client sees it, such as while its pool was being opened."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_WAITED: ContextVar[float] = ContextVar("rewardpool_waited", default=0.0)


def already_waited() -> float:
    """Seconds that the samples of this context have waited already."""
    return _WAITED.get()


@contextmanager
def waited(seconds: float) -> Iterator[None]:
    """Within this block, samples that are given to the client have waited so many seconds more."""
    token = _WAITED.set(_WAITED.get() + seconds)
    try:
        yield
    finally:
        _WAITED.reset(token)
