"""The front door: score responses by a pool, a function or a mixture.

    columns, or rows -> episodes -> `LazyReward`, on a thread of its own -> ratings -> scores

The thread is why one reward serves plain code, async code and notebooks, whose event loop runs already.
"""

import asyncio
import concurrent.futures
import dataclasses
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import aclosing, nullcontext
from pathlib import Path
from typing import Any, Unpack

from rewardpool._client.pool import Pool
from rewardpool._client.stream import Stream
from rewardpool._client.threads.front_door import FrontDoor
from rewardpool._deadline import waited
from rewardpool._demand.handle import JobDemand
from rewardpool._files.progress import bar, silent
from rewardpool._files.score import FileReport, identity_of, score_file
from rewardpool._files.source import open_source
from rewardpool._files.window import WINDOW
from rewardpool._rewards.blocking import BlockingReward
from rewardpool._rewards.config import RewardLike
from rewardpool._rewards.episode import Episode
from rewardpool._rewards.groups import compared, siblings
from rewardpool._rewards.keywords import RewardSettings
from rewardpool._rewards.lazy import LazyReward
from rewardpool._rewards.ledger.writer import LedgerReport
from rewardpool._rewards.one_revision import differ
from rewardpool._rewards.opened import OpenReward
from rewardpool._rewards.rating import Rating
from rewardpool._rewards.reward_function import gathered
from rewardpool._rewards.rows import Info, Row, Text, episode_of, episodes_of, row_episode, rows_of
from rewardpool.errors import ConfigError, GroupAbortedError, RewardPoolError, SampleError, ScoreError, UnscoredError
from rewardpool_runtime.functions.load import FunctionLoadError

# Rows of a stream that are begun and not yet taken, at most.
AHEAD = 1024
# Shorter waits need no bar.
BAR_AFTER_SECONDS = 2.0


class Reward(FrontDoor[BlockingReward]):
    """Rates responses by a pool, a function or a mixture; any thread and any event loop may use it.

    It is opened when it is first used, or by `with`, and closed for good by `close` or the end of `with`; copies in
    other processes (pickled, forked) open their own. An open one has a thread and connections: one that is forgotten
    open warns by a ResourceWarning.

    Args:
        reward: `namespace/name` of a pool; the URL of its router; `python://module:function`, or a function; a mapping
            with the fields that docs/rewards.md has, such as `rewards`, the parts of a mixture.
        tokenizer: A loaded tokenizer of the reward model, instead of the one that the pool names.
        progress: Whether calls that take more than two seconds show a bar, where stderr is a terminal.
        settings: Fields that win over those of `reward`, such as `timeout` (seconds for one sample) and `on_failure`.

    Raises:
        ConfigError: Fields are wrong; it names them all.
    """

    _lazy: LazyReward

    def __init__(
        self,
        reward: RewardLike,
        *,
        tokenizer: Any = None,
        progress: bool = True,
        **settings: Unpack[RewardSettings],
    ) -> None:
        try:
            self._lazy = LazyReward(reward, tokenizer=tokenizer, who=None, **settings)
        except RewardPoolError as error:
            raise error.with_traceback(None) from users_cause(error)
        self._progress = progress

    def __repr__(self) -> str:
        opened = self._lazy.if_open
        if opened is not None:
            urls = ", ".join(sorted({pool.endpoint.url for pool in opened.pools.values()}))
            state = f"open at {urls}" if urls else "open"
        else:
            state = "closed" if self._lazy.is_closed else "not open"
        return f"<Reward by {', '.join(part.scorer for part in self._lazy.spec.parts)}: {state}>"

    @property
    def pools(self) -> Mapping[str, Pool]:
        """The open pools by their name; their `report`, `demand` and `endpoint` may be used from any thread."""
        return self._opened().pools

    @property
    def ledger(self) -> LedgerReport | None:
        """State of the ledger; None where no `ledger` is set."""
        return self._opened().ledger

    def _opened(self) -> BlockingReward:
        try:
            return self._lazy.opened()
        except RewardPoolError as error:
            raise error.with_traceback(None) from users_cause(error)

    def __call__(
        self,
        prompts: Iterable[Text],
        responses: Iterable[Text],
        *,
        ground_truth: Iterable[Any] | None = None,
        data_source: str | Iterable[str | None] = "",
        extra_info: Iterable[Info | None] | Info | None = None,
        groups: Iterable[Any] | None = None,
    ) -> list[float | None]:
        """Score a batch, and wait for it.

        Args:
            prompts: Texts, or lists of chat messages, without a chat template; shape (rows,).
            responses: The same for what the policy wrote.
            ground_truth: Right answers, for functions and judges; shape (rows,).
            data_source: Where the prompts are from, or where each is; for functions.
            extra_info: What else is known, of all of them or of each: mappings, or their JSON texts.
            groups: Names of the rows' groups, for rewards that compare the responses to a problem; shape (rows,).
                Default: rows that are equal in everything but the response are a group.

        Returns:
            The scores, shape (rows,); None only where a response has none under `on_failure="skip"`.

        Raises:
            UnscoredError: Responses have no score under `on_failure="raise"`, the default; it has their indices, and
                the scores of the others.
            PoolError: A pool cannot be used.
            ConfigError: A tokenizer or function cannot be loaded.
            InvalidSampleError: A row is in a form that is not accepted; nothing is scored.
            TypeError: A single text or conversation is where a list belongs.
            ValueError: There are not as many of one as of the others.
            RuntimeError: It is closed.
        """
        try:
            episodes = episodes_of(
                prompts,
                responses,
                ground_truth=ground_truth,
                data_source=data_source,
                extra_info=extra_info,
                groups=groups,
            )
            return [rating.total for rating in self._rated(episodes)]
        except RewardPoolError as error:
            raise error.with_traceback(None) from users_cause(error)

    def rate(self, rows: Iterable[Row]) -> list[Rating]:
        """Rate a batch, and wait for it: each rating has the total, and what it is made of.

        Args:
            rows: Mappings with `prompt`, `response` (or `completion`) and further fields of `Episode`; pairs of a
                prompt and a response; or episodes.

        Raises:
            UnscoredError: As for a call; the same for the other errors.
        """
        try:
            return self._rated([row_episode(one, index) for index, one in enumerate(rows_of(rows))])
        except RewardPoolError as error:
            raise error.with_traceback(None) from users_cause(error)

    def _rated(self, episodes: Sequence[Episode]) -> list[Rating]:
        began = time.monotonic()
        opened = self._lazy.opened()
        work = _Batch(opened.opened, episodes)
        with waited(time.monotonic() - began):
            future = opened.start(work.rated())
        outcomes = self._result(future, work)
        if errors := {row: one for row, one in enumerate(outcomes) if isinstance(one, SampleError)}:
            raise UnscoredError(errors, [one.total if isinstance(one, Rating) else None for one in outcomes])
        return [one for one in outcomes if isinstance(one, Rating)]

    async def score(self, prompt: Text, response: Text, **fields: Any) -> float:
        """Score one response; `fields` are further ones of `Episode`, such as `ground_truth`.

        Raises:
            SampleError: It has no score, and `on_failure` names no penalty for it.
            PoolError: A pool cannot be used.
            ConfigError: A part compares the responses to a prompt, or a tokenizer or function cannot be loaded.
            RuntimeError: It is closed.
        """
        try:
            episode = episode_of(prompt, response, **fields)
            began = time.monotonic()
            opened = await asyncio.to_thread(self._lazy.opened)
            with waited(time.monotonic() - began):
                rating = await asyncio.wrap_future(opened.submit(episode))
        except RewardPoolError as error:
            raise error.with_traceback(None) from users_cause(error)
        if rating.total is None:
            raise rating.error or ScoreError(episode.label, "is explicitly unscored", fault="verifier")
        return rating.total

    async def stream(self, rows: Iterable[Row] | AsyncIterable[Row]) -> AsyncGenerator[tuple[int, Rating], None]:
        """Rate rows as they come, and yield `(index, rating)` as they are ready; every index comes once.

        The first row of a group that is scored decides which revision of a pool scores the others; where that one
        serves no more, they have no score. At most 1,024 rows are begun and not yet taken. Leaving the loop early gives
        up what is begun; wrap the stream in
        `contextlib.aclosing` to have that happen at once.

        Raises:
            SampleError: A response has no score and `on_failure` is `raise`.
            PoolError: A pool cannot be used.
            ConfigError: A part compares the responses to a prompt, or a tokenizer or function cannot be loaded.
            RuntimeError: It is closed.
        """
        opened = await asyncio.to_thread(self._opened)
        if opened.needs_group:
            raise ConfigError("reward", "compares the responses to a prompt; call it with whole batches instead")
        loop = asyncio.get_running_loop()
        this_stream = object()  # in another one the groups of the same names are others

        def begin(row: Row, index: int) -> _Begun:
            episode = row_episode(row, index)
            if episode.group is not None:
                episode = dataclasses.replace(episode, group=(this_stream, episode.group))
            return _Begun(opened, episode, index, course.deliver, loop)

        silent = JobDemand.silent("a stream of rows says nothing of steps")
        course: Stream[Row, Rating] = Stream(begin, ahead=AHEAD, demand=silent, waited=lambda seconds: None)
        try:
            async with aclosing(course.outcomes(rows)) as outcomes:
                async for item in outcomes:
                    yield item
        except RewardPoolError as error:
            raise error.with_traceback(None) from users_cause(error)

    def score_file(
        self, file: str | Path, out: str | Path, *, ignore: Collection[str] = (), window: int = WINDOW
    ) -> FileReport:
        """Score the rows of a file, and wait for it; a call that is interrupted or killed goes on when it is repeated.

        What is scored is at once in a journal beside `out`, and `out` is there when it has every row, once and in the
        order of the file. A row without a score has its fault there, whatever `on_failure` says.

        Args:
            file: JSON lines or Parquet, by its name, in one of the forms of docs/score-files.md.
            out: Where the scores go: JSON lines or Parquet, by its name.
            ignore: Columns that are not read.
            window: Most rows in flight; requests in flight are the `concurrency` of the reward's settings.

        Raises:
            ConfigError: The file has a row in no accepted form, `out` is there or was begun for another file or reward,
                or a part compares the responses to a prompt; nothing is scored.
            PoolError: A pool cannot be used.
            OSError: A file cannot be read or written.
            RuntimeError: It is closed.
        """
        source = open_source(Path(file), ignore=ignore)
        try:
            with bar() if self._progress and sys.stderr.isatty() else nullcontext(silent) as show:
                return score_file(
                    self._lazy.opened,
                    source,
                    Path(out),
                    about=identity_of(self._lazy.spec),
                    window=window,
                    show=show,
                )
        except RewardPoolError as error:
            raise error.with_traceback(None) from users_cause(error)

    def _result(
        self, future: "concurrent.futures.Future[list[Rating | SampleError]]", work: "_Batch"
    ) -> list[Rating | SampleError]:
        """Return the future's result; with Ctrl-C in the meantime, its work is given up."""
        try:
            if self._progress and sys.stderr.isatty():
                _show(future, work, what=", ".join(self._lazy.names))
            return future.result()
        except concurrent.futures.CancelledError:
            raise RuntimeError(f"{self!r}: it was closed while it scored") from None
        except BaseException:
            future.cancel()
            raise


def users_cause(error: BaseException) -> BaseException | None:
    """Return what of an error's causes adds to its message: an exception of the user's own module, if there is one."""
    cause = error.__cause__
    return cause.__cause__ if isinstance(cause, FunctionLoadError) else None


class _Batch:
    """Rows that are rated together, whatever becomes of each; on the reward's loop."""

    def __init__(self, reward: OpenReward, episodes: Sequence[Episode]) -> None:
        self._reward = reward
        self._episodes = episodes
        self._outcomes: list[Rating | SampleError | None] = [None] * len(episodes)
        self.rows = len(episodes)
        self.done = 0

    async def rated(self) -> list[Rating | SampleError]:
        """Rate all of them; one without a score stops no other. Raises PoolError."""
        groups = compared(self._episodes) if self._reward.needs_group else [[row] for row in range(self.rows)]
        await gathered([self._rate(rows) for rows in groups])
        if not self._reward.needs_group:
            await self._settle()
        return [one for one in self._outcomes if one is not None]

    async def _rate(self, rows: Sequence[int]) -> None:
        await self._enter(rows, self._reward.rate_group([self._episodes[row] for row in rows]))
        self.done += len(rows)

    async def _settle(self) -> None:
        """Bring the ratings of each group to one revision of each pool."""
        rated = {row: one for row, one in enumerate(self._outcomes) if isinstance(one, Rating)}
        if not differ(one.revisions for one in rated.values()):
            return
        groups = [[row for row in rows if row in rated] for rows in siblings(self._episodes)]
        settling = [
            (rows, self._reward.settled([self._episodes[row] for row in rows], [rated[row] for row in rows]))
            for rows in groups
        ]
        await gathered([self._enter(rows, ratings) for rows, ratings in settling])

    async def _enter(self, rows: Sequence[int], rating: Awaitable[Sequence[Rating]]) -> None:
        try:
            ratings: Sequence[Rating | SampleError] = await rating
        except SampleError as error:
            # An error that names none of them is of the whole group, such as that of post_process.
            named = {row for row in rows if self._episodes[row].label == error.sample} or set(rows)
            ratings = [error if row in named else GroupAbortedError(self._episodes[row].label, error) for row in rows]
        for row, outcome in zip(rows, ratings, strict=True):
            self._outcomes[row] = outcome


class _Begun:
    """One row of a stream, under way on the reward's loop; its end reaches the stream on its own."""

    def __init__(
        self,
        opened: BlockingReward,
        episode: Episode,
        index: int,
        deliver: Callable[[int, Rating | BaseException], None],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._future = opened.submit_next(episode)

        def ended(future: "concurrent.futures.Future[Rating]") -> None:
            if future.cancelled():
                outcome: Rating | BaseException = RuntimeError("the reward was closed")
            else:
                outcome = future.exception() or future.result()
            if not loop.is_closed():
                loop.call_soon_threadsafe(deliver, index, outcome)

        self._future.add_done_callback(ended)

    def cancel(self) -> set[asyncio.Task[Any]]:
        """Cancel it; nothing runs on this event loop."""
        self._future.cancel()
        return set()


def _show(future: "concurrent.futures.Future[Any]", work: _Batch, *, what: str) -> None:
    """A bar until the future is done, if that takes longer."""
    concurrent.futures.wait([future], timeout=BAR_AFTER_SECONDS)
    if future.done():
        return
    from rewardpool._client.progress import scoring_bar  # rich is slow to import, and most calls need no bar

    with scoring_bar(what, total=work.rows) as bar:
        while not future.done():
            bar.update(bar.task_ids[0], completed=work.done)
            concurrent.futures.wait([future], timeout=0.1)
        bar.update(bar.task_ids[0], completed=work.done)
