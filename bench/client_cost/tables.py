"""The result for people."""

import sys
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from client_cost.figures import Spread, setting_of


def show(result: Mapping[str, Any]) -> None:
    """Print the tables."""
    # A file or a pipe has no width, and rich would take 80 columns for it.
    console = Console(width=None if sys.stdout.isatty() else 140)
    for setting in result.get("transports", ()):
        console.print(transports_table(setting))
    for part in ("http", "verl"):
        for setting in result.get(part, ()):
            console.print(ways_table(part, setting))
    for table in (kill_table(result.get("kill", {})), aims_table(result)):
        if table.row_count:
            console.print(table)


def ways_table(part: str, setting: Mapping[str, Any]) -> Table:
    """One setting: its ways, then its ratios."""
    columns = ("way", "samples/s", "p50, ms", "p99, ms", "first, ms", "last fifth")
    table = Table(*columns, title=f"{part}: {setting_of(setting).title}", title_justify="left")
    forms = {"p50_ms": ".1f", "p99_ms": ".1f", "first_ms": ".1f", "last_fifth": ".2f"}
    for way, figures in setting["ways"].items():
        others = (format(figures[name]["median"], form) if name in figures else "" for name, form in forms.items())
        table.add_row(way, in_words(figures["samples_per_second"], ",.0f"), *others)
    table.add_section()
    for ratio, figures in setting["ratios"].items():
        table.add_row(ratio, in_words(figures, ".2f"))
    return table


def transports_table(setting: Mapping[str, Any]) -> Table:
    """One setting of the bare transports."""
    title = f"transports: {setting['kind']}, {setting['concurrency']:,} at a time"
    table = Table("transport", "samples/s", "CPU, us a sample", title=title, title_justify="left")
    for name, figures in setting["ways"].items():
        table.add_row(name, *(in_words(figures[which], ",.0f") for which in ("samples_per_second", "cpu_us")))
    return table


def kill_table(kill: Mapping[str, Any]) -> Table:
    """The deaths."""
    columns = ("way", "victim", "slowest sample", "lost", "problem")
    table = Table(*columns, title="A worker of four killed with -9", title_justify="left")
    for way, plays in kill.items():
        for play in plays:
            table.add_row(way, play["victim"], play["slowest"], str(play["lost"]), play["problem"][:60])
    return table


def aims_table(result: Mapping[str, Any]) -> Table:
    """What the figures shall be."""
    table = Table("figure", "where", "measured", "aim", "met", title="Aims", title_justify="left")
    for aim in result["aims"]:
        met = "yes" if aim["met"] else "no"
        cells = (aim["what"], aim["where"], f"{aim['measured']:.3f}", aim["aim"], met)
        table.add_row(*cells, style=None if aim["met"] else "bold red")
    return table


def in_words(spread: Spread, form: str) -> str:
    """A median and, behind it, the extremes."""
    median, least, most = (format(spread[which], form) for which in ("median", "min", "max"))
    return f"{median} ({least} to {most})"
