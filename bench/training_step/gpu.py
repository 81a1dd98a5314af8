"""StandInGpu: takes the time of rollouts and updates, on a thread of its own as real ones do, and computes nothing."""

import asyncio
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager


class StandInGpu:
    """One set of GPUs: what it is asked to do, it does one after the other.

    Attributes:
        busy_seconds: It was at work so far.
    """

    def __init__(self, name: str) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)
        self.busy_seconds = 0.0

    async def work(self, seconds: float) -> None:
        """Be at work for so long, after what it was asked before."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._work, seconds)

    def _work(self, seconds: float) -> None:
        began = time.perf_counter()
        time.sleep(seconds)
        self.busy_seconds += time.perf_counter() - began

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown()


@contextmanager
def gpus(*, disaggregated: bool) -> Iterator[tuple[StandInGpu, StandInGpu]]:
    """Yield the GPUs that roll out and those that train: the same ones, or some of them each."""
    rolling = StandInGpu("rollout")
    training = StandInGpu("training") if disaggregated else rolling
    try:
        yield rolling, training
    finally:
        rolling.close()
        training.close()
