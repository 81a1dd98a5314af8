"""Runs the ways in turn and writes every figure to one file.

python -m client_cost --only http --rounds 2 --samples 1000
"""

import argparse
import asyncio
import gc
import json
import os
import resource
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TimeElapsedColumn
from ways import Given, Way

from client_cost import crowd, http_ways, kill, transports, verl_ways
from client_cost.aims import aims
from client_cost.figures import HTTP_SETTINGS, VERL_SETTINGS, Latencies, Round, Setting, round_of, summary, with_setting
from client_cost.stage import Stage, open_stage
from client_cost.tables import show

ROOT: Final = Path(__file__).resolve().parents[2]
RESULT: Final = ROOT / ".rewardpool" / "bench" / "client.json"
PARTS: Final = ("transports", "http", "verl", "kill")
VERL_SHARE: Final = 4
"""verl scores so many times fewer samples in a round, for it takes so many times longer."""
STAND_INS: Final = "4 stand-ins with a fixed service time, which cost next to nothing"

OPEN_FILES: Final = 100_000
FILES_EACH: Final = 4
"""For a sample in flight: the router's two connections; here those that each of up to four ways keeps open."""

Timed = Callable[[int], Awaitable[list[float]]]
"""Scores so many samples, and returns the seconds of each; `Latencies` where each is seen when it is done."""
Keep = Callable[[str, Any], None]
"""Writes a part's figures so far to the file, so that a run that is ended keeps what it has."""


async def take_turns(
    ways: Mapping[str, Timed], *, samples: int, rounds: int, done: Callable[[], None]
) -> dict[str, Any]:
    """Every way once in each round, after a round that does not count: it makes the connections."""
    measured: dict[str, list[Round]] = {name: [] for name in ways}
    for run in ways.values():
        await run(samples)
    for _ in range(rounds):
        for name, run in ways.items():
            gc.collect()
            began = time.perf_counter()
            latencies = await run(samples)
            seconds = time.perf_counter() - began
            done_after = latencies.done_after if isinstance(latencies, Latencies) else ()
            measured[name].append(round_of(latencies, seconds=seconds, done_after=done_after))
            done()
    return measured


def timed_http(way: Way, given: Sequence[Given]) -> Timed:
    """One of the HTTP ways."""

    async def run(count: int) -> Latencies:
        latencies = Latencies()
        await way(given[:count], latencies)
        return latencies

    return run


def timed_verl(way: verl_ways.Way, setting: Setting) -> Timed:
    """One of the ways inside verl."""

    async def run(count: int) -> list[float]:
        return await asyncio.to_thread(way, count, setting)

    return run


def most_files() -> int:
    """Open files that this process may have."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def most_in_flight() -> int:
    """How many samples may be in flight with all ways open; the router, this one's child, has the same limit."""
    return most_files() // FILES_EACH


async def measure_http(
    stage: Stage,
    folder: Path,
    settings: Sequence[Setting],
    chosen: Collection[str] | None,
    *,
    samples: int,
    rounds: int,
    progress: Progress,
) -> AsyncIterator[dict[str, Any]]:
    """Each setting of the HTTP ways."""
    for setting in settings:
        # Where there are more at a time, all are in flight at once, which is asked for once.
        count, turns = (setting.concurrency, 1) if setting.concurrency > samples else (samples, rounds)
        given = http_ways.texts(count) if setting.kind == "text" else http_ways.token_ids(count)
        await stage.serve_in(setting.service_ms)
        bar = progress.add_task(f"HTTP, {setting.title}", total=None)

        async def measured(ways: Mapping[str, Way]) -> dict[str, Any]:
            timed = {name: timed_http(way, given) for name, way in ways.items()}  # noqa: B023
            progress.update(bar, total=turns * len(ways), completed=0)  # noqa: B023
            return await take_turns(timed, samples=count, rounds=turns, done=lambda: progress.advance(bar))  # noqa: B023

        if setting.concurrency <= most_in_flight():
            async with http_ways.open_ways(stage, setting, only=chosen) as ways:
                found = await measured(ways)
        elif crowd.files_needed(setting.concurrency) <= most_files():
            found = {}
            for name in (way for way in http_ways.CROWD_WAYS if chosen is None or way in chosen):
                async with (
                    crowd.behind_more_routers(stage, folder / f"crowd-{name}") as crowded,
                    http_ways.open_ways(crowded, setting, only=[name]) as ways,
                ):
                    found |= await measured(ways)
        else:
            progress.console.print(f"left out: {setting.title}; this process may have too few open files")
            continue
        yield summary(setting, found, http_ways.RATIOS)


async def measure_verl(
    stage: Stage, folder: Path, *, samples: int, rounds: int, progress: Progress
) -> AsyncIterator[dict[str, Any]]:
    """Each setting of the ways inside verl."""
    starting = progress.add_task("verl: its workers start", total=None)
    with verl_ways.open_ways(stage, folder) as ways:
        progress.remove_task(starting)
        for setting in VERL_SETTINGS:
            await stage.serve_in(setting.service_ms)
            bar = progress.add_task(f"verl, {setting.title}", total=rounds * len(ways))
            timed = {name: timed_verl(way, setting) for name, way in ways.items()}
            measured = await take_turns(timed, samples=samples, rounds=rounds, done=lambda: progress.advance(bar))  # noqa: B023
            yield summary(setting, measured, verl_ways.RATIOS)


async def measure_kill(folder: Path, *, rounds: int, progress: Progress) -> dict[str, Any]:
    """The deaths: of the client's workers in every round, of verl's once for each victim."""
    victims = list(kill.VICTIMS)
    bar = progress.add_task("a worker is killed", total=rounds + len(victims))
    found: dict[str, Any] = {"client": [], "verl_stock": []}
    for number in range(rounds):
        found["client"].append(await kill.play_client(folder / f"client-{number}", victims[number % len(victims)]))
        progress.advance(bar)
    for number, victim in enumerate(victims):
        found["verl_stock"].append(await kill.play_stock(folder / f"stock-{number}", victim))
        progress.advance(bar)
    return found


async def measure(
    folder: Path,
    parts: Sequence[str],
    settings: Sequence[Setting],
    chosen: Collection[str] | None,
    *,
    samples: int,
    rounds: int,
    keep: Keep,
) -> None:
    """The parts that were asked for, the chosen HTTP ways in those settings; what is found is kept one by one."""
    with Progress(*Progress.get_default_columns(), MofNCompleteColumn(), TimeElapsedColumn(), console=stderr()) as bars:
        if {"transports", "http", "verl"} & set(parts):
            async with open_stage(folder / "stage", naive=chosen is None or "verl_stock" in chosen) as stage:
                few = max(1, samples // VERL_SHARE)
                measured = {
                    "transports": transports.measure(stage, samples=samples, rounds=rounds, progress=bars),
                    "http": measure_http(
                        stage, folder, settings, chosen, samples=samples, rounds=rounds, progress=bars
                    ),
                    "verl": measure_verl(stage, folder, samples=few, rounds=rounds, progress=bars),
                }
                for part, found in measured.items():
                    if part in parts:
                        await _keep_each(found, part, keep)
        if "kill" in parts:
            keep("kill", await measure_kill(folder / "kill", rounds=rounds, progress=bars))


async def _keep_each(settings: AsyncIterator[dict[str, Any]], part: str, keep: Keep) -> None:
    async for setting in settings:
        keep(part, setting)


def stderr() -> Console:
    """Where progress goes."""
    return Console(stderr=True)


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(
        prog="client_cost", description="What a reward call costs: this client beside others.", epilog=__doc__
    )
    parser.add_argument("--only", choices=PARTS, help="one part; of the others the file keeps what it has")
    titles = {setting.title: setting for setting in HTTP_SETTINGS}
    parser.add_argument(
        "--settings",
        nargs="+",
        metavar="TITLE",
        choices=titles,
        default=list(titles),
        help="of the part http, such as '0 ms, 64 at a time'; of the others the file keeps what it has (default all)",
    )
    parser.add_argument("--ways", nargs="+", metavar="WAY", help="of the part http (default all)")
    parser.add_argument("--rounds", type=int, default=5, help="in which every way has its turn (default 5)")
    parser.add_argument(
        "--samples", type=int, default=6000, help=f"of a way in a round (default 6,000); 1/{VERL_SHARE} of it in verl"
    )
    parser.add_argument("--out", type=Path, default=RESULT)
    given = parser.parse_args()
    parts = (given.only,) if given.only else PARTS
    # verl's call says every retry, of which a death makes hundreds.
    os.environ.setdefault("VERL_LOGGING_LEVEL", "CRITICAL")
    with suppress(ValueError, OSError):  # root alone may raise the upper limit
        resource.setrlimit(resource.RLIMIT_NOFILE, (OPEN_FILES, OPEN_FILES))
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that no process is left, as at Ctrl-C
    result: dict[str, Any] = json.loads(given.out.read_text()) if given.only and given.out.exists() else {}
    result |= {"cores": os.cpu_count(), "workers": STAND_INS}
    given.out.parent.mkdir(parents=True, exist_ok=True)

    def keep(part: str, found: Any) -> None:
        result[part] = found if part == "kill" else with_setting(result.get(part, ()), found)
        result["aims"] = aims(result)
        given.out.write_text(json.dumps(result, indent=2) + "\n")

    with tempfile.TemporaryDirectory(prefix="rewardpool-bench-") as folder:
        settings = [titles[title] for title in given.settings]
        measuring = measure(
            Path(folder), parts, settings, given.ways, samples=given.samples, rounds=given.rounds, keep=keep
        )
        asyncio.run(measuring)
    show(result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
