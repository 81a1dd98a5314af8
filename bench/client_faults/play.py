"""All faults, one after the other, and what came of them."""

import asyncio
import os
from collections.abc import Iterable
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.table import Table
from support.fleet import Fleet
from support.reward_functions import ENV_RECORD, expected_score

from client_faults.faults import Fault
from client_faults.stage import Stage, Traffic
from client_faults.stand_in_worker import StandInWorker
from client_faults.tally import Tally, count
from rewardpool_api import names
from rewardpool_api.pool import RouterFlavor

WORKERS = 3
FUNCTION = "support.reward_functions:compute_recorded_score"
LONGEST_SECONDS = 300.0
"""For one fault."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """What came of one fault."""

    fault: Fault
    tally: Tally
    notes: str
    seconds: float
    after_seconds: float | None
    """How long samples went on to wait after the router could answer again; None where it always could."""

    def report(self) -> dict[str, Any]:
        """As it is written to the result file."""
        figures = {
            name: round(value, 3) if isinstance(value, float) else value for name, value in asdict(self.tally).items()
        }
        more = {
            "after_seconds": None if self.after_seconds is None else round(self.after_seconds, 3),
            "aim_seconds": self.fault.aim_seconds,
            "aim_after_seconds": self.fault.aim_after_seconds,
            "seconds": round(self.seconds, 1),
            "notes": self.notes,
        }
        return {"promise": self.fault.promise, **figures, **more}


def play(fault: Fault, folder: Path, *, flavor: RouterFlavor, samples: int, outage_seconds: float) -> Result:
    """One fault, with a fleet of its own in `folder`. Raises TimeoutError when the samples have no end."""
    folder.mkdir()
    record, state = folder / "record", folder / "state"
    record.touch()
    # The client looks for its pool there, and nowhere else.
    os.environ |= {ENV_RECORD: str(record), names.ENV_STATE_DIR: str(state), "KUBECONFIG": str(folder / "none")}
    texts = [f"{fault.key} {index}" for index in range(samples)]
    traffic = Traffic(texts)
    notes, seconds, after_seconds = asyncio.run(
        _play(fault, traffic, folder, flavor=flavor, state=state, outage_seconds=outage_seconds)
    )
    noted = record.read_text().splitlines()
    tally = count(texts, traffic.outcomes, noted=noted, reports=traffic.reports, expected=expected_score)
    return Result(fault=fault, tally=tally, notes=notes, seconds=seconds, after_seconds=after_seconds)


async def _play(
    fault: Fault, traffic: Traffic, folder: Path, *, flavor: RouterFlavor, state: Path, outage_seconds: float
) -> tuple[str, float, float | None]:
    async with asyncio.timeout(LONGEST_SECONDS), AsyncExitStack() as stack:
        stand_in = await stack.enter_async_context(StandInWorker()) if fault.stand_in else None
        others = [stand_in.url] if stand_in else []
        workers = WORKERS - len(others)
        fleet = await stack.enter_async_context(
            Fleet(folder, workers=workers, others=others, flavor=flavor, function=FUNCTION)
        )
        stage = Stage(fleet, stand_in, traffic, state=state, outage_seconds=outage_seconds)
        stage.tell_address()
        notes, seconds = await stage.play(fault.play)
        return notes, seconds, stage.seconds_after_first_answer()


def summary(result: Result) -> str:
    """One line about a result."""
    tally = result.tally
    counts = f"{tally.samples} samples, {tally.lost} lost, {tally.wrong} wrong, {tally.invented} invented"
    again = f"{tally.retried} retried, {tally.hedges} hedges"
    parts = [f"{result.seconds:.0f} s", counts, again, f"slowest {tally.slowest_seconds:.2f} s"]
    if result.after_seconds is not None:
        parts.append(f"at most {result.after_seconds:.2f} s after the router could answer")
    parts.append(result.notes)
    parts += ["the client's report does not add up"] if tally.uneven else []
    return "; ".join([*filter(None, parts), *tally.problems])


def table(results: Iterable[Result]) -> Table:
    """The results as a table for people."""
    shown = Table(title="Faults under a stream of samples", title_justify="left")
    shown.add_column("fault")
    for column in (
        "samples",
        "lost",
        "wrong",
        "invented",
        "retried",
        "hedges",
        "p99, s",
        "slowest, s",
        "aim, s",
        "after, s",
    ):
        shown.add_column(column, justify="right")
    shown.add_column("notes", overflow="fold")
    for result in results:
        tally = result.tally
        counts = (tally.samples, tally.lost, tally.wrong, tally.invented, tally.retried, tally.hedges)
        aim = result.fault.aim_seconds
        shown.add_row(
            result.fault.name,
            *map(str, counts),
            f"{tally.p99_seconds:.2f}",
            f"{tally.slowest_seconds:.2f}",
            f"{aim:g}" if aim is not None else "",
            f"{result.after_seconds:.2f}" if result.after_seconds is not None else "",
            result.notes,
            style=None if tally.kept else "bold red",
        )
    return shown
