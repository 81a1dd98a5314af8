"""Scoring files from the command line: the reward that the options name, progress, and what is said in the end."""

import dataclasses
import json
import os
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer
import yaml

from rewardpool import FileReport
from rewardpool._discovery.endpoint import Endpoint
from rewardpool._files.progress import Lines, bar
from rewardpool._files.score import identity_of, journal_of, score_file
from rewardpool._files.source import RowSource, open_source
from rewardpool._rewards.blocking import BlockingReward
from rewardpool._rewards.lazy import LazyReward
from rewardpool.errors import ConfigError, PoolNotReadyError
from rewardpool_api import names
from rewardpool_cli import screens
from rewardpool_cli.errors import RefusedError
from rewardpool_cli.files import named, read_text
from rewardpool_cli.trainer_names import full_name

PoolOption = Annotated[
    str | None, typer.Option(help="NAME or NAMESPACE/NAME. Default: as for a trainer, or the only one.")
]
Adapter = Annotated[str | None, typer.Option(help="One of the pool's LoRA adapters. Default: the base.")]
Ignore = Annotated[
    list[str] | None, typer.Option(metavar="COLUMN", help="A column of the file that is not read; may be repeated.")
]
RewardFile = Annotated[
    Path | None,
    typer.Option(
        "--reward", metavar="FILE", help="YAML with the fields of a reward (docs/rewards.md), in place of --pool."
    ),
]
Concurrency = Annotated[
    int | None, typer.Option(min=1, help="Most requests in flight, of up to 16 samples each. Default: 64.")
]
WaitSeconds = Annotated[float, typer.Option(min=0, help="How long to wait for a pool that is not ready.")]


def is_named_by_environment() -> bool:
    """Return whether the environment names the pool."""
    return bool({names.ENV_POOL, names.ENV_URL} & os.environ.keys())


def refuse_unready(endpoint: Endpoint) -> None:
    """Raise PoolNotReadyError where it cannot score: a job waits for that; a person at a terminal reads it."""
    if endpoint.not_ready:
        raise PoolNotReadyError(f"RewardPool {endpoint.pool} ({endpoint.origin}) is not ready: {endpoint.not_ready}")


def reward_spec(
    pool: str | None,
    namespace: str | None,
    reward: Path | None,
    *,
    adapter: str | None = None,
    wait_seconds: float = 0,
    concurrency: int | None = None,
) -> dict[str, Any]:
    """Return the fields of the reward that the options name; rows without a score end nothing, unless it says so.

    Raises:
        RefusedError: Options do not fit together, or the file is not a YAML mapping.
        CommandError: This machine has no pool, and none is named.
    """
    given: dict[str, Any] = {"adapter": adapter, "wait_seconds": wait_seconds or None, "concurrency": concurrency}
    if reward is not None:
        if pool is not None or namespace is not None:
            raise RefusedError("--reward says which pool to ask: leave out --pool and --namespace")
        spec = _read_reward(reward)
    else:
        key = None if pool is None and is_named_by_environment() else full_name(pool, namespace)
        spec = {} if key is None else {"pool": key}
    return {"on_failure": "skip", **spec, **{name: value for name, value in given.items() if value is not None}}


def _read_reward(path: Path) -> dict[str, Any]:
    try:
        read = yaml.safe_load(read_text(path))
    except yaml.YAMLError as error:
        raise RefusedError(f"{named(path)} is not YAML: {error}") from None
    if not isinstance(read, Mapping):
        raise RefusedError(f"{named(path)} must be a mapping with the fields of a reward, such as pool: rl/skywork")
    return dict(read)


def scored_file(spec: Mapping[str, Any], file: Path, out: Path, *, ignore: Collection[str] = ()) -> FileReport:
    """Score the rows of a file, with progress on stderr; raises what `score_file` does, and PoolNotReadyError."""
    return scored_source(spec, open_source(file, ignore=ignore), out)


def scored_source(
    spec: Mapping[str, Any],
    source: RowSource,
    out: Path | None,
    *,
    each: Callable[[Mapping[str, Any]], None] = lambda record: None,
) -> FileReport:
    """Score what a source has, as `scored_file`.

    Args:
        out: Where the scores go, with which a repeated command goes on; None where they are not kept.
        each: Receives every row's record in the end.
    """
    reward = LazyReward(spec, who=None)

    def opened() -> BlockingReward:
        found = reward.opened()
        for pool in found.pools.values():
            refuse_unready(pool.endpoint)
        return found

    def write(line: str) -> None:
        screens.err.print(line, markup=False, soft_wrap=True)

    try:
        with ExitStack() as stack:
            kept = out or Path(stack.enter_context(TemporaryDirectory()), "scores.jsonl")
            with bar() if screens.err.is_terminal else nullcontext(Lines(write)) as show:
                return score_file(opened, source, kept, about=identity_of(reward.spec), show=show, each=each)
    except ConfigError:
        raise  # the same command would be refused again
    except BaseException:
        if out is not None and (journal := journal_of(out)).exists():
            write(f"what is scored is kept in {journal}; the same command goes on there")
        raise
    finally:
        reward.close(for_good=True)


def summary(report: FileReport, *, as_json: bool) -> None:
    """Print what became of a file."""
    if as_json:
        typer.echo(json.dumps({**dataclasses.asdict(report), "out": str(report.out)}))
        return
    before = f", {report.before:,} of them by earlier runs" if report.before else ""
    typer.echo(
        f"{report.scored:,} of {report.rows:,} rows have a score in {report.out}{before};"
        f" {report.rate:,.0f} rows/s for {report.seconds:.1f} s"
    )
    if report.unscored:
        faults = ", ".join(f"{fault} {count:,}" for fault, count in report.unscored.items())
        typer.echo(f"without a score, by fault: {faults}; their lines say why")
    if report.ledger is not None and (report.ledger.stopped or report.ledger.left_out):
        why = f" ({report.ledger.stopped})" if report.ledger.stopped else ""
        typer.echo(f"the ledger lacks {report.ledger.left_out:,} scores{why}")
    for pool, seen in report.revisions.items():
        if len(seen) > 1:
            shares = ", ".join(f"{revision} {count:,}" for revision, count in seen.items())
            typer.echo(f"{pool} answered by {len(seen)} revisions, whose scores may have other scales: {shares}")
