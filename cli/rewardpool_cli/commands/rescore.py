"""`rewardpool rescore`: score the records of a ledger again, and say how the scores agree."""

import dataclasses
import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from rewardpool import FileReport
from rewardpool._files import ledger_in_s3
from rewardpool._files.agreement import AgreementCounter, ScoreAgreement
from rewardpool._files.ledger import LedgerRecords
from rewardpool._rewards.config import parse_reward
from rewardpool_cli import agreement_picture, screens
from rewardpool_cli.errors import RefusedError, exit_unless
from rewardpool_cli.options import Namespace, Output, OutputForm
from rewardpool_cli.scoring import (
    Adapter,
    Concurrency,
    PoolOption,
    RewardFile,
    WaitSeconds,
    reward_spec,
    scored_source,
)


def rescore(
    ledger: Annotated[
        str,
        typer.Argument(metavar="LEDGER", help="Folder of a ledger, or one of its files; also s3://BUCKET/PREFIX."),
    ],
    pool: PoolOption = None,
    namespace: Namespace = None,
    reward: RewardFile = None,
    failed_only: Annotated[bool, typer.Option("--failed-only", help="Only the records that have no score.")] = False,
    part: Annotated[
        str | None, typer.Option(help="Part whose scores are compared, where the ledger has several.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Keep the scores; then a repeated command goes on.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE.png", help="Draw the scores now over those from before.")
    ] = None,
    adapter: Adapter = None,
    concurrency: Concurrency = None,
    wait_seconds: WaitSeconds = 0,
    output: OutputForm = None,
) -> None:
    """Score the records of a ledger again, and show how the scores agree with those that they had.

    The ledger must have texts (ledger.text of the reward's config). Order is compared among the responses to one
    prompt. Exit codes: 0, every record has a score; 1, some have none, or scoring stopped; 2, refused.

    Example: rewardpool rescore ledger/ --pool rl/other --out other.jsonl --plot other.png
    """
    if output not in (None, Output.JSON):
        raise RefusedError(f"--output {output} is not for rescore: leave it out for a table, or give json")
    if plot is not None:
        agreement_picture.check(plot)
    spec = reward_spec(pool, namespace, reward, adapter=adapter, wait_seconds=wait_seconds, concurrency=concurrency)
    parsed = parse_reward(spec)
    if parsed.ledger is not None:
        raise RefusedError("ledger of --reward is not for rescore, which would add to what it reads: leave it out")
    names = [one.name for one in parsed.parts]
    comparison = AgreementCounter()
    with ledger_in_s3.local(ledger) as path:
        source = LedgerRecords(path, names=names, part=part, failed_only=failed_only, origin=ledger)
        report = scored_source(spec, source, out, each=comparison.add)
    agreement = comparison.agreement()
    if output is Output.JSON:
        typer.echo(json.dumps(as_json(agreement, report, out)))
    else:
        screens.out.print(table(agreement))
    if plot is not None and agreement.both:  # last: whatever keeps it from being written costs no result
        agreement_picture.draw(comparison.groups(), agreement, plot)
    exit_unless(report.is_complete)


def as_json(agreement: ScoreAgreement, report: FileReport, out: Path | None) -> dict[str, Any]:
    """Return the result for programs."""
    return {
        **dataclasses.asdict(agreement),
        "kendall": agreement.kendall,
        "unscored_by_fault": dict(report.unscored),
        "out": None if out is None else str(out),
    }


def table(agreement: ScoreAgreement) -> Table:
    """Return the result as a table for people."""
    made = Table(box=None, pad_edge=False, show_header=False)
    made.add_column(style="dim", no_wrap=True)
    made.add_column(no_wrap=True)
    one = agreement
    made.add_row(
        "records",
        f"{one.rows:,}: {one.both:,} with a score then and now, {one.gained:,} only now, {one.lost:,} only then",
    )
    if one.both:
        made.add_row("equal scores", f"{one.equal:,} of {one.both:,}")
        made.add_row(
            "difference",
            f"mean {_number(one.mean_difference, '+.4g')}, mean size {_number(one.mean_abs_difference, '.4g')},"
            f" largest {_number(one.max_abs_difference, '.4g')}",
        )
    if one.kendall is None:
        made.add_row("order", "no two responses to one prompt with different scores")
    else:
        made.add_row(
            "order",
            f"Kendall's tau {one.kendall:.3f} within {one.groups:,} prompts: {one.same_order:,} of {one.pairs:,} pairs"
            f" in the same order, {one.tied:,} tied now",
        )
    return made


def _number(value: float | None, form: str) -> str:
    return f"beyond {sys.float_info.max:.2g}" if value is None else format(value, form)
