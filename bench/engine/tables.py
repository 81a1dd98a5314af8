"""The result for people."""

import sys
from collections.abc import Mapping
from typing import Any

from client_cost.tables import aims_table, in_words
from rich.console import Console
from rich.table import Table

from engine.aims import PARTS, title


def show(result: Mapping[str, Any]) -> None:
    """Print the tables."""
    # A file or a pipe has no width, and rich would take 80 columns for it.
    console = Console(width=None if sys.stdout.isatty() else 140)
    for part in PARTS:
        for setting in result.get(part, ()):
            console.print(ways_table(part, setting))
    for table in (starts_table(result), aims_table(result)):
        if table.row_count:
            console.print(table)


def ways_table(part: str, setting: Mapping[str, Any]) -> Table:
    """One setting: its ways, then its ratios."""
    columns = ("way", "samples/s", "p50, ms", "p99, ms", "CPU, ms a sample: client", "router", "workers")
    table = Table(*columns, title=f"{part}: {title(setting)}", title_justify="left")
    for way, figures in setting["ways"].items():
        latencies = (f"{figures[which]['median']:.1f}" for which in ("p50_ms", "p99_ms"))
        cpu = (f"{figures['cpu_ms'][role]:.2f}" for role in ("client", "router", "workers"))
        table.add_row(way, in_words(figures["samples_per_second"], ",.0f"), *latencies, *cpu)
    table.add_section()
    for ratio, figures in setting["ratios"].items():
        table.add_row(ratio, in_words(figures, ".2f"))
        table.add_row(f"{ratio}, for CPU time", in_words(setting["cpu_ratios"][ratio], ".2f"))
    return table


def starts_table(result: Mapping[str, Any]) -> Table:
    """The phases of the starts."""
    table = Table("engine", "model, replicas", "phase", "seconds", title="Cold starts", title_justify="left")
    for part in PARTS:
        for setting in result.get(part, ()):
            for phase, seconds in setting.get("start", {}).items():
                table.add_row(part, title(setting), phase, f"{seconds:.1f}")
            table.add_section()
    return table
