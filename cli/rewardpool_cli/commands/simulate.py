"""`rewardpool simulate`: RewardPool's policies on traces of training, simulated."""

import gc
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from rewardpool_cli import screens
from rewardpool_cli.errors import RefusedError
from rewardpool_cli.files import named, read_pool, read_text
from rewardpool_cli.options import AsJson
from rewardpool_simulator import builtin, policies
from rewardpool_simulator.compare import OnProgress, PolicyComparison, PolicyOutcome, compare
from rewardpool_simulator.run import PolicyFactory
from rewardpool_simulator.shared import NAME, SharedComparison, SharedTrace, compare_shared, load_shared
from rewardpool_simulator.trace import Trace, TraceError, parse_document, parse_trace

COLLECT_EVERY: Final = 50_000


def simulate(
    traces: Annotated[
        list[str] | None,
        typer.Option(
            "--trace", "-t", help=f"Trace file, or one of {', '.join(builtin.NAMES)} (default: each of these)."
        ),
    ] = None,
    names: Annotated[
        list[str] | None,
        typer.Option("--policy", "-p", help=f"Policy: {', '.join(policies.NAMES)} (default: all)."),
    ] = None,
    manifest: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Simulate the spec.autoscaling of this manifest too, as policy manifest; - reads standard input.",
        ),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(metavar="FILE", help=f"Simulate pools of one budget instead: a file, or {NAME} for an example."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Random seed; the same seed gives the same figures.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Simulate autoscaling policies on traces of training: how long trainers stall, and what the GPUs cost.

    Stall is how much later the jobs end than with a warm fleet of the trace's full size. The line `always-on-N` is the
    smallest fleet of fixed size that stalls as little as the first policy.

    With --budget, jobs use several pools that share a budget. Beside that is a fixed fleet, of each pool at its peak;
    idle is the share of GPU-seconds without a request.

    Example: rewardpool simulate --trace sync-grpo --policy demand --policy queue-depth
    """
    if budget is not None:
        if traces or names or manifest is not None:
            raise RefusedError("--budget cannot be combined with --trace, --policy and --manifest; leave those out")
        shared = compare_shared(_load_shared(budget), seed=seed)
        if as_json:
            typer.echo(json.dumps({"seed": seed, **shared.as_json()}, indent=2))
        else:
            screens.out.print(budget_table(shared))
        return
    chosen = [(Path(name).stem, _load(name)) for name in traces or builtin.NAMES]
    own = {} if manifest is None else {policies.MANIFEST: _manifest_policy(manifest)}
    with _progress() as on_progress, _few_collections():
        comparisons = [
            compare(trace, {**own, **_factories(trace, names)}, name=name, seed=seed, on_progress=on_progress(name))
            for name, trace in chosen
        ]
    if as_json:
        by_trace = {comparison.trace: comparison.as_json() for comparison in comparisons}
        typer.echo(json.dumps({"seed": seed, "traces": by_trace}, indent=2))
    else:
        for comparison in comparisons:
            screens.out.print(table(comparison), "")


def table(comparison: PolicyComparison) -> Table:
    """Return one trace's figures as a table."""
    made = Table(title=comparison.trace, title_justify="left", box=None, pad_edge=False, header_style="dim")
    made.add_column("policy", no_wrap=True)
    for title in ("stall s", "GPU-seconds", "of always on", "changes", "peak"):
        made.add_column(title, justify="right", no_wrap=True)
    for name, outcome in comparison.outcomes.items():
        made.add_row(*_row(name, outcome, comparison.share(name)))
    made.add_row(*_row(comparison.always_on.run.policy, comparison.always_on, 1.0), style="dim")
    return made


def budget_table(comparison: SharedComparison) -> Table:
    """Return the figures of a budget's pools as a table."""
    on_budget, fixed = comparison.budget, comparison.fixed
    ended = f"{comparison.stall_seconds:,.0f} s stall" if on_budget.finished else "does not end"
    made = Table(title=f"budget: {ended}", title_justify="left", box=None, pad_edge=False, header_style="dim")
    made.add_column("pool", no_wrap=True)
    for title in ("peak", "GPU-seconds", "idle", "fixed GPU-seconds", "fixed idle"):
        made.add_column(title, justify="right", no_wrap=True)
    uses = zip((*on_budget.pools, on_budget.total), (*fixed.pools, fixed.total), strict=True)
    for one, always in uses:
        figures = (f"{one.gpu_seconds:,.0f}", f"{one.idle_share:.0%}")
        made.add_row(one.pool, str(one.peak), *figures, f"{always.gpu_seconds:,.0f}", f"{always.idle_share:.0%}")
    return made


def _row(name: str, outcome: PolicyOutcome, share: float) -> Sequence[str | Text]:
    run = outcome.run
    stall = f"{outcome.stall_seconds:,.0f}" if run.finished else Text("does not end", style="red")
    return name, stall, f"{run.gpu_seconds:,.0f}", f"{share:.0%}", str(run.changes), str(run.peak)


def _load(name: str) -> Trace:
    try:
        is_file = name not in builtin.NAMES and (name == "-" or Path(name).exists())
        return parse_trace(read_text(Path(name)), name=named(Path(name))) if is_file else builtin.load_trace(name)
    except TraceError as error:
        raise RefusedError(str(error)) from None


def _load_shared(name: str) -> SharedTrace:
    if name == NAME:
        return load_shared()
    try:
        return parse_document(SharedTrace, read_text(Path(name)), name=named(Path(name)))
    except TraceError as error:
        raise RefusedError(str(error)) from None


def _factories(trace: Trace, names: Sequence[str] | None) -> Mapping[str, PolicyFactory]:
    known = policies.factories_for(trace)
    for name in names or ():
        if name not in known:
            raise RefusedError(f"--policy {name}: expected one of {', '.join(known)}")
    return {name: known[name] for name in names or policies.NAMES}


def _manifest_policy(manifest: Path) -> PolicyFactory:
    scaling = read_pool(manifest).spec.autoscaling
    if scaling is None:
        raise RefusedError(f"{named(manifest)}: spec.autoscaling is not set, so there is nothing to simulate")
    if scaling.is_external:
        raise RefusedError(
            f"{named(manifest)}: spec.autoscaling.policy is External, so another autoscaler decides the size; only"
            " RewardPool's own policies are simulated"
        )
    return policies.manifest_policy(scaling)


@contextmanager
def _few_collections() -> Iterator[None]:
    before = gc.get_threshold()
    # A run makes a million small objects and no cycle, and collections are a seventh of it.
    gc.set_threshold(COLLECT_EVERY, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


@contextmanager
def _progress() -> Iterator[Callable[[str], OnProgress]]:
    if not screens.err.is_terminal:
        yield _lines
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=screens.err, transient=True) as progress:
        task = progress.add_task("", total=1.0)

        def on_progress_of(trace: str) -> OnProgress:
            return lambda run, share: progress.update(task, description=f"{trace}: {run}", completed=share)

        yield on_progress_of


def _lines(trace: str) -> OnProgress:
    shown: set[str] = set()

    def on_progress(run: str, share: float) -> None:
        if run not in shown:
            shown.add(run)
            screens.err.print(f"{trace}: {run}", markup=False)

    return on_progress
