"""The tables of a run, for people."""

import sys
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from rewardpool_train.pipeline.schedule import SCHEDULES
from training_step.aims import aims
from training_step.pairs import PairProtocol
from training_step.protocol import POOLS


def show(result: Mapping[str, Any]) -> None:
    """Print them."""
    console = Console(width=None if sys.stdout.isatty() else 120)
    floor = f"the GPUs' own work in it is {result['floor_seconds']:.2f} s"
    if any(name in result for name in SCHEDULES):
        console.print(steps_table(result, title=f"A training step; {floor}"))
    if PairProtocol.name in result:
        console.print(steps_table(result[PairProtocol.name], title=f"A step of groups judged by pairs; {floor}"))
    console.print(aims_table(result))


def steps_table(result: Mapping[str, Any], *, title: str) -> Table:
    """Seconds of a step, by the figures of one protocol."""
    columns = ("schedule", "pool", "step, median", "least to most", "waiting for scores", "beside sync")
    table = Table(*columns, title=title, title_justify="left")
    for name in SCHEDULES:
        for pool in POOLS:
            if (figures := result.get(name, {}).get(pool)) is None:
                continue
            share = "" if figures["vs_sync"] is None else f"{figures['vs_sync']:+.1%}"
            spread = f"{min(figures['steps']):.2f} to {max(figures['steps']):.2f}"
            waited = f"{figures['waited_seconds']:.2f} s"
            table.add_row(name, pool, f"{figures['step_seconds']:.2f} s", spread, waited, share)
        table.add_section()
    return table


def aims_table(result: Mapping[str, Any]) -> Table:
    """What the figures shall be."""
    table = Table("figure", "measured", "aim", "met", title="Aims", title_justify="left")
    for aim in aims(result):
        style = None if aim.met else "bold red"
        table.add_row(aim.what, f"{aim.measured:+.1%}", f"<= {aim.aim:+.0%}", "yes" if aim.met else "no", style=style)
    return table
