"""A window of rows in flight: read as there is room, rated on the reward's loop, handed over here as they are done.

    this thread: read -> hand over -> ......................... -> take what is done -> write
    the loop:                         each row, all of them at once

Reading and writing are on the caller's thread, so that a slow disk holds back the next rows and no answer.
"""

import concurrent.futures
import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from rewardpool._files.forms import FileRow
from rewardpool._rewards.blocking import BlockingReward
from rewardpool._rewards.opened import OpenReward
from rewardpool._rewards.rating import Rating
from rewardpool._rewards.reward_function import gathered
from rewardpool.errors import SampleError

# Rows that are begun and not yet written, at most.
WINDOW: Final = 4096
# Rows that are handed over at a time, at most.
CHUNK: Final = 256
# Between two calls of `tick`, while nothing is done.
LOOK_SECONDS: Final = 0.25
# Answers within it are delivered together: a thread that wakes for each row would hold the interpreter's lock too
# often.
GATHER_SECONDS: Final = 0.01

Outcomes = Mapping[str, Rating | SampleError]
Done = tuple[FileRow, Outcomes]


class Window:
    """Rates rows by an open reward; at most `rows` are in flight."""

    def __init__(self, opened: BlockingReward, *, rows: int = WINDOW) -> None:
        self._opened = opened
        self._rows = rows
        self._done: deque[Done] = deque()
        self._chunks: set[concurrent.futures.Future[None]] = set()
        self._news = threading.Event()
        self._failed: BaseException | None = None
        self._in_flight = 0

    def run(
        self, rows: Iterator[FileRow], write: Callable[[list[Done]], None], *, tick: Callable[[], None] = lambda: None
    ) -> None:
        """Rate all rows.

        Args:
            write: Receives what is done, each row once, in the order in which it was done.
            tick: Called now and then.

        Raises:
            PoolError: A pool cannot be used; what was done until then is written.
            ConfigError: A part compares responses and rows are single ones, or a tokenizer cannot be loaded.
        """
        try:
            is_over = False
            while not (is_over and not self._in_flight):
                is_over = is_over or self._fill(rows)
                if self._in_flight:
                    self._news.wait(LOOK_SECONDS)
                    time.sleep(GATHER_SECONDS)
                    self._news.clear()
                self._write_done(write)
                tick()
                if self._failed is not None:
                    raise self._failed
        finally:
            for chunk in list(self._chunks):
                chunk.cancel()
            self._write_done(write)

    def _fill(self, rows: Iterator[FileRow]) -> bool:
        """Hand over as many rows as there is room for, and return whether there are no more."""
        while room := self._rows - self._in_flight:
            chunk = list(itertools.islice(rows, min(room, CHUNK)))
            if not chunk:
                return True
            future = self._opened.start(self._rated(self._opened.opened, chunk))
            self._in_flight += len(chunk)
            self._chunks.add(future)
            future.add_done_callback(self._ended)
        return False

    def _ended(self, chunk: "concurrent.futures.Future[None]") -> None:
        self._chunks.discard(chunk)
        if not chunk.cancelled() and (error := chunk.exception()) is not None:
            self._failed = self._failed or error
        elif chunk.cancelled():
            self._failed = self._failed or RuntimeError("the reward was closed while it scored a file")
        self._news.set()

    def _write_done(self, write: Callable[[list[Done]], None]) -> None:
        taken = [self._done.popleft() for _ in range(len(self._done))]
        self._in_flight -= len(taken)
        if taken:
            write(taken)

    async def _rated(self, reward: OpenReward, rows: list[FileRow]) -> None:
        await gathered([self._rate(reward, row) for row in rows])

    async def _rate(self, reward: OpenReward, row: FileRow) -> None:
        outcomes = await (_compared(reward, row) if len(row.episodes) > 1 else _single(reward, row))
        self._done.append((row, outcomes))
        self._news.set()


async def _single(reward: OpenReward, row: FileRow) -> Outcomes:
    [(role, episode)] = row.episodes.items()
    try:
        return {role: await reward.rate(episode)}
    except SampleError as error:
        return {role: error}


async def _compared(reward: OpenReward, row: FileRow) -> Outcomes:
    """Rate a row's answers as a group, which one revision of each pool scores."""
    episodes = list(row.episodes.values())
    try:
        return dict(zip(row.episodes, await reward.rate_group(episodes), strict=True))
    except SampleError as error:
        return dict.fromkeys(row.episodes, error)  # under `raise` the first that fails ends its group
