"""The front door of teachers: log-probabilities of given tokens by a pool of type Teacher.

import rewardpool

teacher = rewardpool.Teacher("rl/teacher")
logprobs = teacher([[9, 4, 7], [9, 4]], top_k=8)
"""

import asyncio
import concurrent.futures
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from rewardpool._client.blocking import BlockingPool
from rewardpool._client.front_door import FrontDoor
from rewardpool._client.per_process import PerProcess
from rewardpool._client.pool import Pool
from rewardpool._client.wake_lock import WITHIN_SECONDS
from rewardpool._config import RewardConfig
from rewardpool._logprobs import Logprobs
from rewardpool._rewards.cross_loop import awake_elsewhere
from rewardpool._vocabulary import check_vocabulary, digest_of
from rewardpool.errors import LogprobsMissingError, SampleError


class Teacher(FrontDoor[BlockingPool]):
    """Gives log-probabilities of token ids; any thread and any event loop may use it.

    It is opened when it is first used, or by `with`, and closed for good by `close` or the end of `with`; copies in
    other processes (pickled, forked) open their own.

    Args:
        teacher: `namespace/name` of a pool of type Teacher; the URL of its router; or the fields of a `RewardConfig`.
        tokenizer: The student's: one of transformers', or its folder or hub name. Its vocabulary is compared with the
            teacher's when the pool is opened, and with each answer's; without one it is not.
        settings: Fields that win over those, such as `timeout` (seconds for one sequence).

    Raises:
        ConfigError: Fields are wrong; it names them all.
    """

    _lazy: "_LazyPool"

    def __init__(
        self, teacher: str | Mapping[str, Any] | RewardConfig, *, tokenizer: Any = None, **settings: Any
    ) -> None:
        config = RewardConfig.of(teacher)
        if settings:
            config = RewardConfig.parse({**config.model_dump(exclude_unset=True), **settings}, path="")
        self._lazy = _LazyPool(config, tokenizer)

    def __repr__(self) -> str:
        return repr(self._lazy)

    def __call__(
        self,
        sequences: Iterable[Any],
        *,
        start: int | Sequence[int] = 1,
        top_k: int = 0,
        ids: Iterable[Any] | None = None,
    ) -> list[Logprobs]:
        """Ask about a batch, and wait for all of it.

        Args:
            sequences: Token ids of each sequence, prompt and response together; shape (sequences, n) of any n.
            start: Position of the first token of interest, of all of them or of each; such as the prompt's length.
            top_k: Most likely tokens at each position.
            ids: Of each sequence, further tokens at each position; shape (sequences, n - start, m).

        Returns:
            An answer for each sequence, in their order.

        Raises:
            ConfigError: The student's tokenizer has another vocabulary, or cannot be loaded.
            LogprobsMissingError: Sequences have no answer; it has their indices, and the answers of the others.
            PoolError: The pool cannot be used.
            ValueError: There are not as many of one as of the others.
            RuntimeError: It is closed.
        """
        given = list(sequences)
        starts = [start] * len(given) if isinstance(start, int) else list(start)
        further = [None] * len(given) if ids is None else list(ids)
        if not len(starts) == len(further) == len(given):
            raise ValueError(
                f"there are {len(given)} sequences, {len(starts)} of start and {len(further)} of ids: give as many of"
                " each"
            )
        pool = self._opened()
        futures = [
            pool.start(
                pool.opened.logprobs(
                    tokens, start=first, top_k=top_k, ids=more, label=f"#{index}", vocabulary=self._lazy.vocabulary
                )
            )
            for index, (tokens, first, more) in enumerate(zip(given, starts, further, strict=True))
        ]
        return _results(futures)

    async def logprobs(self, token_ids: Any, *, start: int = 1, top_k: int = 0, ids: Any = None) -> Logprobs:
        """Ask about one sequence, see `Pool.logprobs`.

        Raises:
            SampleError: The sequence has no answer.
            PoolError: The pool cannot be used.
            RuntimeError: It is closed.
        """
        pool = await asyncio.to_thread(self._opened)
        asking = pool.opened.logprobs(token_ids, start=start, top_k=top_k, ids=ids, vocabulary=self._lazy.vocabulary)
        return await asyncio.wrap_future(pool.start(asking))

    @asynccontextmanager
    async def awake(self, *, within_seconds: float = WITHIN_SECONDS) -> AsyncGenerator[None, None]:
        """Within this block, on any event loop, a pool that shares the trainer's GPUs is awake; see `Pool.awake`.

        A block that is cancelled or fails lets go of the pool and does not wait until it sleeps.
        """
        pool = await asyncio.to_thread(self._opened)
        async with awake_elsewhere(pool.start, [pool.opened.awake(within_seconds=within_seconds)]):
            yield

    def sleeping_folder(self) -> Path | None:
        """The folder of its pool, if that sleeps on this machine; see `Pool.sleeping_folder`."""
        pool = self._opened()
        return pool.run(pool.opened.sleeping_folder())

    @property
    def pool(self) -> Pool:
        """The open pool; its `report`, `demand` and `endpoint` may be used from any thread."""
        return self._opened().opened


class _LazyPool(PerProcess[BlockingPool]):
    def __init__(self, config: RewardConfig, tokenizer: Any) -> None:
        self._config = config
        self._tokenizer = tokenizer
        self.vocabulary: str | None = None
        """Digest of the student's; None until it is opened, and without a tokenizer."""
        super().__init__()

    def __repr__(self) -> str:
        return f"<Teacher {self._config.pool or self._config.url}>"

    def __getstate__(self) -> dict[str, Any]:
        own = {"_config": self._config, "_tokenizer": self._tokenizer, "vocabulary": None}
        return {**super().__getstate__(), **own}

    def _open(self) -> BlockingPool:
        if self._tokenizer is not None:
            self.vocabulary = digest_of(self._tokenizer, field="tokenizer")
        pool = BlockingPool(self._config)
        try:
            if self.vocabulary is not None:
                check_vocabulary(self.vocabulary, pool.endpoint, field="tokenizer")
        except BaseException:
            pool.close()
            raise
        return pool

    @property
    def _called(self) -> str:
        return repr(self)


def _results(futures: Sequence["concurrent.futures.Future[Logprobs]"]) -> list[Logprobs]:
    """Return all results; when one fails by the pool's fault or this thread is interrupted, the others are given up."""
    answers: list[Logprobs | None] = []
    errors: dict[int, SampleError] = {}
    try:
        for index, future in enumerate(futures):
            try:
                answers.append(future.result())
            except SampleError as error:
                answers.append(None)
                errors[index] = error
    except BaseException:
        for future in futures:
            future.cancel()
        raise
    if errors:
        raise LogprobsMissingError(errors, answers)
    return [one for one in answers if one is not None]
