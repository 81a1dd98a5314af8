"""Start of a pool on this machine: its workers as a live table on a terminal and as lines elsewhere.

Progress goes to standard error; results go to standard output.
"""

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.live import Live
from rich.table import Table
from rich.text import Text

from rewardpool_api import RewardPool
from rewardpool_api.reasons import ConditionReason
from rewardpool_api.status import WorkerProcess
from rewardpool_cli.errors import CommandError, exit_unless
from rewardpool_cli.screens import PHASE_STYLES, PLAIN_WIDTH, err, out, wanted_replicas
from rewardpool_cli.tables import gateway_line
from rewardpool_local.commands import STOP_SECONDS, Up, failed_before, has_failed, is_settled
from rewardpool_local.folder import PoolFolder, asked_for
from rewardpool_local.page_folder import PageFolder
from rewardpool_local.process import tail

LOOK_SECONDS = 0.5
LINE_SECONDS = 10.0


@dataclass
class StartProgress:
    """State and output of one watcher of a starting pool."""

    up: Up
    said: dict[str, tuple[str, float]] = field(default_factory=dict)
    """By worker: the phase that was last said, and when (monotonic seconds)."""
    since: dict[tuple[str, int | None], float] = field(default_factory=dict)
    """By worker and process: when it was first seen (monotonic seconds)."""
    reason: str = ""
    is_use_printed: bool = False
    is_ready_printed: bool = False

    def poll(self, now: float) -> RewardPool | None:
        """Read the state, and say once that samples can be scored, and once that all wanted replicas serve."""
        pool = self.up.folder.read_pool()
        if pool is None or asked_for(pool) != asked_for(self.up.wanted):
            return None
        for worker in pool.status.workers:
            self.since.setdefault((worker.name, worker.pid), now)
        if not self.is_ready_printed and is_serving(pool):
            self.print_serving(pool)
        return pool

    def print_serving(self, pool: RewardPool) -> None:
        """Print how many replicas serve and where; the first time with how to use them."""
        ready, wanted = pool.status.ready_replicas, wanted_replicas(pool)
        self.is_ready_printed = ready >= wanted
        if self.is_use_printed and not self.is_ready_printed:
            return
        words = "[green]{} is ready[/]" if self.is_ready_printed else "[yellow]{} can be used[/]"
        err.print(f"{words.format(pool.key)}: {ready} of {wanted} replicas serve at {pool.status.url}")
        if not self.is_use_printed:
            print_use(pool)
        self.is_use_printed = True

    def print_nothing_wanted(self) -> None:
        """Print the URL of a pool that wants no replica now, and how to use it."""
        pool = self.up.folder.read_pool()
        serving = pool.status.condition("Serving") if pool is not None else None
        if pool is None or serving is None:
            return
        err.print(f"{pool.key} has no replica at {pool.status.url}: {serving.message}", markup=False, soft_wrap=True)
        print_use(pool)
        self.is_use_printed = True

    def seconds(self, worker: WorkerProcess, now: float) -> float:
        """Return for how long the worker has had its process, or waits for the next."""
        return now - self.since[worker.name, worker.pid]

    def table(self, pool: RewardPool | None, now: float) -> Table:
        table = Table(box=None, pad_edge=False, header_style="dim", expand=True)
        table.add_column("worker", width=10, no_wrap=True)
        table.add_column("phase", width=8, no_wrap=True)
        table.add_column("seconds", width=7, justify="right", no_wrap=True)
        table.add_column("last line of its log", no_wrap=True, overflow="ellipsis", style="dim", ratio=1)
        for worker in pool.status.workers if pool else []:
            phase = Text(worker.phase, style=PHASE_STYLES.get(worker.phase, ""))
            line = last_line(self.up.folder, worker.name)
            table.add_row(worker.name, phase, f"{self.seconds(worker, now):.0f}", Text(line))
        table.caption = Text(why_no_score(pool))
        return table

    def print_changes(self, pool: RewardPool | None, now: float) -> None:
        """The workers as lines: at each change of phase, and now and then while one starts."""
        for worker in pool.status.workers if pool else []:
            phase, when = self.said.get(worker.name, ("", 0.0))
            starts_still = worker.phase != "Ready" and now - when >= LINE_SECONDS
            if worker.phase != phase or starts_still:
                self.said[worker.name] = (worker.phase, now)
                line = last_line(self.up.folder, worker.name)
                err.print(f"{worker.name} {worker.phase} {self.seconds(worker, now):.0f} s  {line}", markup=False)
        if (reason := why_no_score(pool)) and reason != self.reason:
            self.reason = reason
            err.print(reason, markup=False)


async def follow(up: Up, *, seconds: float, serves_already: bool = False) -> bool:
    """Show the way of a pool to its declared state; returns whether it gets there within so many seconds."""
    progress = StartProgress(up, is_use_printed=serves_already, is_ready_printed=serves_already)
    deadline = time.monotonic() + seconds
    with _live(progress) as show:
        while not is_settled(up) and not has_failed(up) and time.monotonic() < deadline:
            show()
            await asyncio.sleep(LOOK_SECONDS)
        show()
    settled = is_settled(up)
    if not settled:
        print_failure(up.folder)
    elif not progress.is_use_printed:
        progress.print_nothing_wanted()
    return settled


def follow_change(
    change: Up | None, folder: PoolFolder, seconds: float, *, what: str = "is as the manifest says"
) -> None:
    """Show the way of a running pool to its declared state, and report that in these words."""
    if change is None:
        if failed_before(folder):
            print_failure(folder)
            problem = "the same manifest and code failed before: correct them, or try them again by rewardpool restart"
            raise CommandError(f"{folder.pool_key}: {problem} {folder.pool_key}")
        out.print(f"{folder.pool_key} runs already, from the same manifest and code; nothing to do")
        return
    err.print(f"{folder.pool_key} runs already and gets what changed")
    # A rollout that fails is said to have failed by its supervisor, after the same time.
    longest = seconds + STOP_SECONDS
    exit_unless(asyncio.run(follow(change, seconds=longest, serves_already=True)))
    out.print(f"{folder.pool_key} {what}")


@contextmanager
def _live(progress: StartProgress) -> Iterator[Callable[[], None]]:
    if not err.is_terminal:
        yield lambda: progress.print_changes(progress.poll(time.monotonic()), time.monotonic())
        return
    with Live(console=err, auto_refresh=False, transient=True) as live:

        def show() -> None:
            pool = progress.poll(time.monotonic())
            live.update(progress.table(pool, time.monotonic()), refresh=True)

        yield show


def is_serving(pool: RewardPool | None) -> bool:
    """Return whether samples can be scored now."""
    serving = pool.status.condition("Serving") if pool else None
    return serving is not None and serving.status == "True"


def why_no_score(pool: RewardPool | None) -> str:
    """Return why a worker that starts gives no score; empty where none says."""
    serving = pool.status.condition("Serving") if pool else None
    return serving.message if serving is not None and serving.reason == ConditionReason.NO_SCORE else ""


def print_use(pool: RewardPool) -> None:
    """Print how to use the pool."""
    err.print(f'  score a text       rewardpool score "some text" --pool {pool.key}')
    err.print(f"  in a training job  pool: {pool.key}")
    if pool.status.gateway is not None:
        err.print(f"  by URL             {gateway_line(pool.status.gateway)}", markup=False, soft_wrap=True)
    err.print(f"  look, stop         rewardpool status {pool.key} · rewardpool down {pool.key}")
    # Without the token, since what `up` prints may go to a log.
    address = PageFolder(os.environ).address()
    err.print(f"  in a browser       {address or 'rewardpool page'}", soft_wrap=True)


def print_failure(folder: PoolFolder) -> None:
    """Print why a pool is not as declared, with the engine's last lines."""
    pool = folder.read_pool_as_it_is()
    for kind in ("Serving", "Degraded"):
        condition = pool.status.condition(kind) if pool else None
        if condition is not None and (condition.status == "True") == (kind == "Degraded"):
            err.print(f"{kind} is {condition.status}, {condition.reason}: {condition.message}", markup=False)
    err.print(f"logs are in {folder.logs}", markup=False, soft_wrap=True)


def last_line(folder: PoolFolder, worker: str) -> str:
    """The last line of a worker's log that says something, without colours."""
    lines = [Text.from_ansi(line).plain.strip() for line in tail(folder.logs / f"{worker}.log", 4096).splitlines()]
    return next((line[:PLAIN_WIDTH] for line in reversed(lines) if any(map(str.isalnum, line))), "")
