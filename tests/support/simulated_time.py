"""asyncio on a simulated clock: `asyncio.run` in which an hour of waiting takes no time."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from simulation.virtual_time import Clock, VirtualLoop

T = TypeVar("T")


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end; `time()` of the loop begins at 0. Raises RuntimeError on a deadlock."""
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(Clock())) as runner:
        return runner.run(main)
