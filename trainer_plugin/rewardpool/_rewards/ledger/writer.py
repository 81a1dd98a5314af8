"""The open ledger of one process: lines wait in a queue, and a thread writes them to files, each up to a size.

A line is made when its score is there: it says what was scored, whatever becomes of the episode afterwards, and the
thread competes with the reward's loop for the interpreter only to write.
"""

import logging
import os
import socket
import threading
import time
import uuid
import zlib
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from rewardpool._appending import write_whole
from rewardpool._rewards.episode import Episode
from rewardpool._rewards.ledger import parquet, s3
from rewardpool._rewards.ledger.config import LedgerConfig
from rewardpool._rewards.ledger.record import LedgerEntry, LedgerScorer, line_of
from rewardpool._rewards.reward_function import PartScore
from rewardpool.errors import SampleError

log = logging.getLogger(__name__)

# Between two writes; a killed process loses what its ledger had since the last one.
WRITE_SECONDS: Final = 0.2
# Most bytes of lines that wait to be written; further ones are left out.
MOST_WAITING_BYTES: Final = 256 << 20
# Time for what waits to be written at the end.
CLOSE_SECONDS: Final = 5.0
# The same where files become Parquet, which takes longer than to write their lines.
REWRITE_SECONDS: Final = 60.0
# Time for what waits to be written when a file is scored, before its report. An upload of a full file has its own
# besides.
FLUSH_SECONDS: Final = 30.0


@dataclass(frozen=True, kw_only=True)
class LedgerReport:
    """Report on a ledger.

    Attributes:
        records: Scores that are in its files.
        left_out: Scores that were not written although they should be: they came faster than they could be, or after
            it had stopped, or an object in their episode cannot be described.
        stopped: Why it ended before the scoring did; None where it did not.
    """

    records: int = 0
    left_out: int = 0
    stopped: str | None = None


class Ledger:
    """Keeps scores; a context manager. Nothing that goes wrong in it reaches the scoring."""

    def __init__(self, config: LedgerConfig) -> None:
        self._config = config
        self._waiting: deque[bytes] = deque()
        self._added_bytes = 0
        self._written_bytes = 0
        self._changed = threading.Condition()
        self._is_wanted = False
        self._is_closing = False
        self._is_over = False
        self._begun = 0
        self._ended = 0
        self._stopped: str | None = None
        self._records = 0
        self._left_out = 0
        self._files = _Files(config)
        # A daemon, so that a disk that hangs keeps no process from its end.
        self._thread = threading.Thread(target=self._run, name="rewardpool-ledger", daemon=True)

    def add(
        self,
        scorer: LedgerScorer,
        episode: Episode,
        outcome: PartScore | SampleError,
        *,
        seconds: float,
        revisions: Sequence[str],
        workers: Sequence[str] = (),
    ) -> None:
        """Keep what a part said of an episode, if it is among the share that is kept."""
        if self._config.share < 1 and not _is_chosen(episode, self._config.share):
            return
        if self._stopped is not None or self._added_bytes - self._written_bytes >= MOST_WAITING_BYTES:
            self._left_out += 1
            return
        entry = LedgerEntry(time.time(), scorer, episode, outcome, seconds, revisions, workers)
        try:
            line = line_of(entry, text=self._config.text)
        except Exception:  # an object whose own repr raises: it is this record's alone
            if not self._left_out:
                log.warning("a score has no record in the ledger", exc_info=True)
            self._left_out += 1
            return
        self._added_bytes += len(line)
        self._waiting.append(line)

    def report(self) -> LedgerReport:
        return LedgerReport(records=self._records, left_out=self._left_out, stopped=self._stopped)

    def flush(self) -> None:
        """Wait until what was added before is written, or the ledger has stopped; one that takes too long stops."""
        with self._changed:
            wanted = self._begun + 1  # a write that is under way may have left some of it
            self._is_wanted = True
            self._changed.notify_all()
            seconds = FLUSH_SECONDS + self._upload_seconds
            is_written = self._changed.wait_for(lambda: self._is_over or self._ended >= wanted, seconds)
        if not is_written:
            self._end(_too_long(seconds))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        seconds = REWRITE_SECONDS if self._config.format == "parquet" else CLOSE_SECONDS
        seconds += self._upload_seconds
        self._thread.join(seconds)
        if self._thread.is_alive():
            self._end(_too_long(seconds))

    @property
    def _upload_seconds(self) -> float:
        return s3.seconds_for(self._config.file_mib) if self._config.upload else 0.0

    def _run(self) -> None:
        try:
            is_over = False
            while not is_over:
                is_over = self._begin()  # before what waits is taken: nothing comes afterwards
                self._write()
                with self._changed:
                    self._ended = self._begun
                    self._changed.notify_all()
            self._files.close()
        except OSError as error:
            self._end(os.strerror(error.errno) if error.errno else str(error))
        except Exception as error:  # whatever it is, it is the ledger's alone
            log.exception("the ledger failed")
            self._end(f"{type(error).__name__}: {error}")
        finally:
            self._files.abandon()
            with self._changed:
                self._is_over = True
                self._changed.notify_all()

    def _begin(self) -> bool:
        """Wait for the next write, and return whether it is the last one."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_wanted or self._is_closing, WRITE_SECONDS)
            self._is_wanted = False
            self._begun += 1
            return self._is_closing

    def _write(self) -> None:
        while self._waiting and self._stopped is None:
            lines = [self._waiting.popleft() for _ in range(min(len(self._waiting), 1000))]
            try:
                self._files.append(lines)
            except BaseException:
                self._left_out += len(lines)
                raise
            self._records += len(lines)
            self._written_bytes += sum(map(len, lines))

    def _end(self, why: str) -> None:
        if self._stopped is not None:  # by another thread
            return
        self._stopped = why
        self._left_out += len(self._waiting)  # it stays there: the writing thread may be about to take of it
        log.warning("the ledger in %s stops: %s; scoring goes on without it", self._config.folder, why)


class _Files:
    """The files of one ledger in their order; none is there before something is in it."""

    def __init__(self, config: LedgerConfig) -> None:
        self._config = config
        self._fd = -1
        self._path = Path()
        self._end = 0
        self._number = 0
        began = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
        # In a store nothing refuses a name that another ledger has used, of this process or of one with the same id.
        self._name = f"{began}-{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"

    def append(self, lines: Sequence[bytes]) -> None:
        """Append lines. Raises OSError."""
        if self._fd < 0 or self._end >= self._config.file_mib << 20:
            self._next()
        data = b"".join(lines)
        write_whole(self._fd, data, at=self._end)
        self._end += len(data)

    def close(self) -> None:
        """End the open file, which becomes a Parquet file and an object where that is wanted. Raises OSError."""
        if self._fd >= 0:
            self.abandon()
            closed = self._as_parquet() if self._config.format == "parquet" else self._path
            if self._config.upload:
                s3.move(closed, self._config.upload, seconds=s3.seconds_for(self._config.file_mib))

    def abandon(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _as_parquet(self) -> Path:
        try:
            parquet.rewrite(self._path)
        except OSError:
            raise
        except Exception as error:  # of a value that a column cannot hold: nothing is lost, so all goes on
            log.warning("%s stays a file of JSON lines: %s: %s", self._path, type(error).__name__, error)
            return self._path
        return self._path.with_suffix(parquet.SUFFIX)

    def _next(self) -> None:
        self.close()
        folder = self._config.folder.expanduser()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not self._number:
            parquet.remove_abandoned(folder)
        self._number += 1
        self._path = folder / f"{self._name}-{self._number:04}.jsonl"
        self._fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self._end = 0


def _too_long(seconds: float) -> str:
    return f"its folder takes longer than {seconds:g} s to be written to"


def _is_chosen(episode: Episode, share: float) -> bool:
    """Return whether an episode is kept: of the responses to a prompt all are, or none is."""
    prompt = episode.prompt if isinstance(episode.prompt, str) else repr(episode.prompt)
    return zlib.crc32(prompt.encode(errors="replace")) < share * 2**32
