"""asyncio on a simulated clock: an event loop that jumps to its next timer instead of waiting for it."""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _Jumping(selectors.DefaultSelector):  # type: ignore[misc,valid-type]
    """Waits for nothing: what it would have waited is how far the clock goes on."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None:
            raise RuntimeError("every task waits for something that will never happen")
        self.now += max(0.0, timeout)
        return super().select(0)


class SimulatedLoop(asyncio.SelectorEventLoop):
    """`time()` begins at 0 and counts simulated seconds. For tasks and timers, not for sockets or threads."""

    def __init__(self) -> None:
        self._jumping = _Jumping()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, as `asyncio.run` does. Raises RuntimeError on a deadlock."""
    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        return runner.run(main)
