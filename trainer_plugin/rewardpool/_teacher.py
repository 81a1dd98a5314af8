"""The front door of teachers: log-probabilities of given tokens by pools of type Teacher.

import rewardpool

teacher = rewardpool.Teacher("rl/teacher")
logprobs = teacher([[9, 4, 7], [9, 4]], top_k=8)
"""

import asyncio
import concurrent.futures
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from rewardpool._client.pool import Pool
from rewardpool._client.threads.front_door import FrontDoor
from rewardpool._client.threads.loop_thread import LoopThread
from rewardpool._client.threads.per_process import PerProcess
from rewardpool._client.wake_lock import WITHIN_SECONDS
from rewardpool._config import RewardConfig, pool_fields
from rewardpool._logprobs import Logprobs
from rewardpool._mistakes import Mistakes, did_you_mean, unknown_key
from rewardpool._rewards.cross_loop import awake_elsewhere
from rewardpool._vocabulary import check_vocabulary, digest_of
from rewardpool.errors import ConfigError, LogprobsMissingError, SampleError

Name = str | None  # of one of several teachers; None of the only one
Pools = Mapping[Name, Pool]


class Teacher(FrontDoor[LoopThread[Pools]]):
    """Gives log-probabilities of token ids; any thread and any event loop may use it.

    It is opened when it is first used, or by `with`, and closed for good by `close` or the end of `with`; copies in
    other processes (pickled, forked) open their own.

    Args:
        teacher: `namespace/name` of a pool of type Teacher; the URL of its router; or the fields of a `RewardConfig`.
            Several: a mapping from names, none of which is such a field, to these.
        tokenizer: The student's: one of transformers', or its folder or hub name. Its vocabulary is compared with each
            teacher's when the pools are opened, and with each answer's; without one it is not.
        settings: Fields that win over those, such as `timeout` (seconds for one sequence).

    Raises:
        ConfigError: Fields are wrong; it names them all.
    """

    _lazy: "_LazyPools"

    def __init__(
        self, teacher: str | Mapping[str, Any] | RewardConfig, *, tokenizer: Any = None, **settings: Any
    ) -> None:
        self._lazy = _LazyPools(_configs(teacher, settings), tokenizer)

    def __repr__(self) -> str:
        return repr(self._lazy)

    def __call__(
        self,
        sequences: Iterable[Any],
        *,
        start: int | Sequence[int] = 1,
        top_k: int = 0,
        ids: Iterable[Any] | None = None,
        teacher: str | Sequence[str] | None = None,
    ) -> list[Logprobs]:
        """Ask about a batch, and wait for all of it.

        Args:
            sequences: Token ids of each sequence, prompt and response together; shape (sequences, n) of any n.
            start: Position of the first token of interest, of all of them or of each; such as the prompt's length.
            top_k: Most likely tokens at each position.
            ids: Of each sequence, further tokens at each position; shape (sequences, n - start, m).
            teacher: Of several, the name of the one to ask, about all of them or about each.

        Returns:
            An answer for each sequence, in their order.

        Raises:
            ConfigError: The student's tokenizer has another vocabulary, or cannot be loaded.
            LogprobsMissingError: Sequences have no answer; it has their indices, and the answers of the others.
            PoolError: The pool cannot be used.
            ValueError: There are not as many of one as of the others, or no teacher of that name; nothing is asked.
            RuntimeError: It is closed.
        """
        given = list(sequences)
        starts = [start] * len(given) if isinstance(start, int) else list(start)
        further = [None] * len(given) if ids is None else list(ids)
        teachers = [teacher] * len(given) if teacher is None or isinstance(teacher, str) else list(teacher)
        if not len(starts) == len(further) == len(teachers) == len(given):
            raise ValueError(
                f"there are {len(given)} sequences, {len(starts)} of start, {len(further)} of ids and {len(teachers)}"
                " of teacher: give as many of each"
            )
        for one in dict.fromkeys(teachers):
            self._lazy.check(one)
        pools = self._opened()
        futures = [
            pools.start(
                pools.opened[name].logprobs(
                    tokens, start=first, top_k=top_k, ids=more, label=f"#{index}", vocabulary=self._lazy.vocabulary
                )
            )
            for index, (tokens, first, more, name) in enumerate(zip(given, starts, further, teachers, strict=True))
        ]
        return _results(futures)

    async def logprobs(
        self, token_ids: Any, *, start: int = 1, top_k: int = 0, ids: Any = None, teacher: str | None = None
    ) -> Logprobs:
        """Ask about one sequence, see `Pool.logprobs`; of several teachers, the one of that name.

        Raises:
            SampleError: The sequence has no answer.
            PoolError: The pool cannot be used.
            ValueError: There is no teacher of that name.
            RuntimeError: It is closed.
        """
        self._lazy.check(teacher)
        pools = await asyncio.to_thread(self._opened)
        asking = pools.opened[teacher].logprobs(
            token_ids, start=start, top_k=top_k, ids=ids, vocabulary=self._lazy.vocabulary
        )
        return await asyncio.wrap_future(pools.start(asking))

    @asynccontextmanager
    async def awake(
        self, *, within_seconds: float = WITHIN_SECONDS, teacher: str | None = None
    ) -> AsyncGenerator[None, None]:
        """Within this block, on any event loop, a pool that shares the trainer's GPUs is awake; see `Pool.awake`.

        A block that is cancelled or fails lets go of the pool and does not wait until it sleeps. Of several teachers
        it is the one of that name.
        """
        self._lazy.check(teacher)
        pools = await asyncio.to_thread(self._opened)
        async with awake_elsewhere(pools.start, [pools.opened[teacher].awake(within_seconds=within_seconds)]):
            yield

    def sleeping_folder(self) -> Path | None:
        """The folder of its only pool, if that sleeps on this machine; see `Pool.sleeping_folder`."""
        return self._opened().run(self.pool.sleeping_folder())

    @property
    def pool(self) -> Pool:
        """The only pool, open; its `report`, `demand` and `endpoint` may be used from any thread."""
        self._lazy.check(None)
        return self._opened().opened[None]

    @property
    def pools(self) -> Mapping[str, Pool]:
        """The open pools of several teachers by their names; empty with one."""
        return {name: pool for name, pool in self._opened().opened.items() if name is not None}


class _LazyPools(PerProcess[LoopThread[Pools]]):
    def __init__(self, configs: Mapping[Name, RewardConfig], tokenizer: Any) -> None:
        self._configs = configs
        self._tokenizer = tokenizer
        self.vocabulary: str | None = None
        """Digest of the student's; None until it is opened, and without a tokenizer."""
        super().__init__()

    def __repr__(self) -> str:
        said = {name: config.pool or config.url for name, config in self._configs.items()}
        listed = ", ".join(f"{pool}" if name is None else f"{name}: {pool}" for name, pool in said.items())
        return f"<Teacher {listed}>"

    def __getstate__(self) -> dict[str, Any]:
        own = {"_configs": self._configs, "_tokenizer": self._tokenizer, "vocabulary": None}
        return {**super().__getstate__(), **own}

    def check(self, teacher: Name) -> None:
        """Raise ValueError unless there is a teacher of that name; None is that of the only one."""
        if teacher in self._configs:
            return
        if None in self._configs:
            raise ValueError(f"teacher is {teacher!r}, and there is one teacher, which has no name: leave it out")
        known = ", ".join(f"{name}" for name in self._configs)
        said = "is missing" if teacher is None else f"is {teacher!r}, which is not known"
        raise ValueError(f"teacher {said}: name one of {known}")

    def _open(self) -> LoopThread[Pools]:
        if self._tokenizer is not None:
            self.vocabulary = digest_of(self._tokenizer, field="tokenizer")
        return LoopThread(_open_pools(self._configs, self.vocabulary), what="the teacher")

    @property
    def _called(self) -> str:
        return repr(self)


@asynccontextmanager
async def _open_pools(configs: Mapping[Name, RewardConfig], vocabulary: str | None) -> AsyncGenerator[Pools, None]:
    async with AsyncExitStack() as stack:
        opened: list[tuple[RewardConfig, Pool]] = []
        pools: dict[Name, Pool] = {}
        for name, config in configs.items():
            # Each once: its questions are announced and reported as one pool's.
            pool = next((pool for known, pool in opened if known == config), None)
            if pool is None:
                pool = await stack.enter_async_context(Pool(config))
                opened.append((config, pool))
                if vocabulary is not None:
                    check_vocabulary(vocabulary, pool.endpoint, field="tokenizer")
            pools[name] = pool
        yield pools


def _configs(teacher: str | Mapping[str, Any] | RewardConfig, settings: Mapping[str, Any]) -> dict[Name, RewardConfig]:
    if not isinstance(teacher, Mapping) or not teacher or teacher.keys() & RewardConfig.model_fields.keys():
        return {None: _config(teacher, settings, path="")}
    mistakes = Mistakes()
    configs: dict[Name, RewardConfig] = {}
    for name, one in teacher.items():
        with mistakes.gather():
            if not isinstance(name, str):
                raise ConfigError(f"{name}", "must be a teacher's name, a text")
            if len(teacher) == 1 and did_you_mean(name, RewardConfig.model_fields):
                raise ConfigError(name, unknown_key(name, RewardConfig.model_fields))
            configs[name] = _config(one, settings, path=name)
    mistakes.check()
    return configs


def _config(teacher: Any, settings: Mapping[str, Any], *, path: str) -> RewardConfig:
    if isinstance(teacher, RewardConfig):
        teacher = teacher.model_dump(exclude_unset=True)
    fields = pool_fields(teacher) if isinstance(teacher, str) else teacher
    if not isinstance(fields, Mapping):
        raise ConfigError(
            path or "teacher", f"must be namespace/name of a pool, its URL, or its fields, not {fields!r:.60}"
        )
    return RewardConfig.parse({**fields, **settings}, path=path)


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
