"""Pool for code that is not async: an event loop on a thread of its own."""

import concurrent.futures
import itertools
import queue
import time
from collections.abc import Generator, Iterable, Iterator, Mapping, Sized
from contextlib import closing, contextmanager, nullcontext
from typing import Any

from rewardpool._client.pool import Pool, Scoring
from rewardpool._client.progress import scoring_bar
from rewardpool._client.report import Report
from rewardpool._client.threads.loop_thread import LoopThread
from rewardpool._client.wake_lock import WITHIN_SECONDS
from rewardpool._config import RewardConfig
from rewardpool._demand.handle import JobDemand
from rewardpool._discovery.endpoint import Endpoint
from rewardpool._logprobs import Logprobs
from rewardpool._sample import Outcome, Sample


class BlockingPool(LoopThread[Pool]):
    """A `Pool` behind plain function calls; any thread may call it, as any `LoopThread`.

    Raises:
        RewardPoolError: On construction, what `discover` raises.
    """

    def __init__(self, pool: str | Mapping[str, Any] | RewardConfig) -> None:
        self._config = RewardConfig.of(pool)
        super().__init__(Pool(self._config), what="the pool")

    @property
    def endpoint(self) -> Endpoint:
        """The present address of the pool, and its model."""
        return self.opened.endpoint

    def submit(self, sample: Sample) -> concurrent.futures.Future[Outcome]:
        """Start scoring a sample; at most `concurrency` are at the pool at once, further ones wait their turn.

        Under the policy `raise` the future has the sample's error; the other futures go on. Cancelling the future
        gives the sample up. A PoolError is in the future under every policy.
        """
        return self.hand_over(Scoring(self.opened, sample))

    def score(self, sample: Sample) -> float:
        """The raw score of one sample. Raises SampleError or PoolError, as `Pool.score` does."""
        return self.run(self.opened.score(sample))

    def judge(self, messages: list[dict[str, Any]], **sampling: Any) -> str:
        """Return what a Generative pool writes about a conversation, see `Pool.judge`."""
        return self.run(self.opened.judge(messages, **sampling))

    def logprobs(self, token_ids: Any, *, start: int = 1, top_k: int = 0, ids: Any = None) -> Logprobs:
        """Return the log-probabilities that a Teacher gives to a sequence's tokens, see `Pool.logprobs`."""
        return self.run(self.opened.logprobs(token_ids, start=start, top_k=top_k, ids=ids))

    def stream(self, samples: Iterable[Sample], *, progress: bool = False) -> Iterator[tuple[int, Outcome]]:
        """Score samples and yield `(index, outcome)` as they complete; the input is read in this thread.

        It is read as there is room: at most twice `concurrency` times `batch` samples are started and not yet taken.

        Args:
            samples: What to score.
            progress: Show a bar on stderr.

        Raises:
            SampleError: A sample has no score and the policy is `raise`; what is in flight is cancelled first.
            PoolError: The pool cannot be used, whatever the policy.
        """
        with closing(self._stream(samples)) as outcomes:
            if not progress:
                yield from outcomes
                return
            with scoring_bar(self.endpoint.pool, total=len(samples) if isinstance(samples, Sized) else None) as bar:
                for item in outcomes:
                    bar.advance(bar.task_ids[0])
                    yield item

    def _stream(self, samples: Iterable[Sample]) -> Generator[tuple[int, Outcome], None, None]:
        source = enumerate(samples)
        demand = self.opened.job_demand
        flying: dict[concurrent.futures.Future[Outcome], int] = {}
        # Each future says once that it is done; `concurrent.futures.wait` asks all that are not, at each outcome.
        ready: queue.SimpleQueue[concurrent.futures.Future[Outcome]] = queue.SimpleQueue()
        try:
            while True:
                room = self._config.ahead - len(flying)
                for index, sample in itertools.islice(source, room):
                    future = self.submit(sample)
                    flying[future] = index
                    future.add_done_callback(ready.put)
                if not flying:
                    return
                is_full = len(flying) == self._config.ahead
                began = time.monotonic()
                with demand.waiting(), demand.holding_back() if is_full else nullcontext():
                    done = [ready.get()]
                self.opened.waited(time.monotonic() - began)
                done += [ready.get() for _ in range(ready.qsize())]
                for future in done:
                    yield flying.pop(future), future.result()
        finally:
            for future in flying:
                future.cancel()

    def demand(
        self,
        *,
        samples: int | None = None,
        steps: int | None = None,
        every_seconds: float | None = None,
        rank: int | None = None,
        ranks: int | None = None,
    ) -> JobDemand:
        """Announce to the pool what this job is going to ask, as `Pool.demand` does."""
        return self.opened.demand(samples=samples, steps=steps, every_seconds=every_seconds, rank=rank, ranks=ranks)

    @contextmanager
    def awake(self, *, within_seconds: float = WITHIN_SECONDS) -> Iterator[None]:
        """Within this block the engines of a pool that shares the trainer's GPUs are awake, as with `Pool.awake`."""
        context = self.opened.awake(within_seconds=within_seconds)
        self.run(context.__aenter__())
        try:
            yield
        finally:
            self.run(context.__aexit__(None, None, None))

    def report(self) -> Report:
        """Counts and latencies so far."""
        return self.opened.report()
