"""`rewardpool eval`: how often a pool prefers the better of two answers, by subset."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from rewardpool import FileReport
from rewardpool._files.accuracy import Accuracy, PairTally
from rewardpool._files.forms import PAIRS
from rewardpool._files.source import open_source
from rewardpool_cli import screens
from rewardpool_cli.errors import RefusedError, exit_unless
from rewardpool_cli.options import Namespace, Output, OutputForm
from rewardpool_cli.scoring import (
    Adapter,
    Concurrency,
    Ignore,
    PoolOption,
    RewardFile,
    WaitSeconds,
    reward_spec,
    scored_source,
)


def eval(  # noqa: A001 - commands are named as they are typed
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Pairs of answers, .jsonl or .parquet.")],
    pool: PoolOption = None,
    namespace: Namespace = None,
    reward: RewardFile = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Keep the scores; then a repeated command goes on.")
    ] = None,
    ignore: Ignore = None,
    adapter: Adapter = None,
    concurrency: Concurrency = None,
    wait_seconds: WaitSeconds = 0,
    output: OutputForm = None,
) -> None:
    """Show how often a pool scores the chosen answer above the rejected one, by subset, as RewardBench does.

    A row has prompt, chosen and rejected, or two whole conversations, and may have a subset. Exit codes: 0, every pair
    has its scores; 1, some have none, or scoring stopped; 2, refused, and nothing was scored.

    Example: rewardpool eval reward-bench.parquet --pool rl/skywork
    """
    if output not in (None, Output.JSON):
        raise RefusedError(f"--output {output} is not for eval: leave it out for a table, or give json")
    spec = reward_spec(pool, namespace, reward, adapter=adapter, wait_seconds=wait_seconds, concurrency=concurrency)
    source = open_source(file, ignore=ignore or (), forms=PAIRS)
    accuracy = Accuracy()
    report = scored_source(spec, source, out, each=accuracy.add)
    if output is Output.JSON:
        typer.echo(json.dumps(as_json(accuracy, report, out)))
    else:
        screens.out.print(table(accuracy))
    exit_unless(report.is_complete)


def as_json(accuracy: Accuracy, report: FileReport, out: Path | None) -> dict[str, Any]:
    """Return the result for programs."""
    return {
        "accuracy": accuracy.all.accuracy,
        "mean_of_subsets": accuracy.mean,
        **_counts(accuracy.all),
        "subsets": {name: {"accuracy": one.accuracy, **_counts(one)} for name, one in _sorted(accuracy)},
        "unscored_by_fault": dict(report.unscored),
        "revisions": {pool: dict(seen) for pool, seen in report.revisions.items()},
        "out": None if out is None else str(out),
    }


def table(accuracy: Accuracy) -> Table:
    """Return the result as a table for people."""
    made = Table(box=None, pad_edge=False, header_style="dim")
    made.add_column("subset", no_wrap=True)
    for title in ("pairs", "right", "wrong", "ties", "unscored", "accuracy"):
        made.add_column(title, justify="right", no_wrap=True)
    for name, tally in _sorted(accuracy):
        made.add_row(*_cells(name, tally))
    made.add_section()
    made.add_row(*_cells("all pairs", accuracy.all), style="bold")
    made.add_row("mean of the subsets", *[""] * 5, _share(accuracy.mean), style="bold")
    return made


def _sorted(accuracy: Accuracy) -> list[tuple[str, PairTally]]:
    return sorted(accuracy.subsets.items())


def _counts(tally: PairTally) -> Mapping[str, int]:
    return {"pairs": tally.pairs, "right": tally.right, "wrong": tally.wrong, "ties": tally.ties} | {
        "unscored": tally.unscored
    }


def _cells(name: str, tally: PairTally) -> list[str]:
    return [name, *(f"{count:,}" for count in _counts(tally).values()), _share(tally.accuracy)]


def _share(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.1%}"
