"""Revisions of a pool's workers that may answer within a block, and those that did.

A reward asks its pools in many ways: scorers, judges, comparisons. Their requests are pinned to a revision, and the
revisions that answered are noted, without a parameter in each of them.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from rewardpool_api.contract import Signature


@dataclass(frozen=True)
class Answering:
    """Revisions by the name of their pool; of a pool that is not in `wanted` any may answer."""

    wanted: Mapping[str, str]
    notes_workers: bool = False
    seen: dict[str, set[str]] = field(default_factory=dict)
    workers: dict[str, set[str]] = field(default_factory=dict)

    def answered(self, pool: str, by: Signature) -> None:
        """Note an answer; a server that names no revision leaves nothing to note."""
        if by.revision is not None:
            self.seen.setdefault(pool, set()).add(by.revision)
        if self.notes_workers and (name := by.worker.name) is not None:
            self.workers.setdefault(pool, set()).add(name)

    def add(self, other: "Answering") -> None:
        for pool, revisions in other.seen.items():
            self.seen.setdefault(pool, set()).update(revisions)


_current: ContextVar[Answering | None] = ContextVar("answering", default=None)


@contextmanager
def answering(noted: Answering) -> Iterator[None]:
    """Within this block, in its tasks too, pin what pools are asked, and note who answers."""
    token = _current.set(noted)
    try:
        yield
    finally:
        _current.reset(token)


def current() -> Answering | None:
    """Return that of the innermost block; None outside of any."""
    return _current.get()
