"""The demands of one job for several pools: what it does is announced to all of them."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from rewardpool._demand.handle import JobDemand


class JointDemand:
    """Demands that announce the same; ends them all at the end of its `with` block."""

    def __init__(self, demands: Sequence[JobDemand]) -> None:
        self._demands = tuple(demands)

    def rollout(self) -> None:
        for demand in self._demands:
            demand.rollout()

    def update(self) -> None:
        for demand in self._demands:
            demand.update()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        with ExitStack() as stack:
            for demand in self._demands:
                stack.enter_context(demand.waiting())
            yield

    def __enter__(self) -> "JointDemand":
        return self

    def __exit__(self, *_: object) -> None:
        for demand in self._demands:
            demand.end()
