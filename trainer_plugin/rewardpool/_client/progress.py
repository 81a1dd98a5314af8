"""Progress bar on stderr, at a terminal or in a job's log, while many samples are scored."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn


@contextmanager
def scoring_bar(pool: str, *, total: int | None) -> Iterator[Progress]:
    """A bar with one task, of `total` samples (None where that is not known) that `pool` scores."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        bar.add_task(f"scored by {pool}", total=total)
        yield bar
