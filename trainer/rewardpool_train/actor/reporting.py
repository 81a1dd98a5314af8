"""Report the progress of a job.

    stderr          one line per step over a progress bar
    metrics.jsonl   every figure of every step, a JSON object a line
    tensorboard/    the same figures as curves: `tensorboard --logdir OUTPUT/tensorboard`

A resumed job continues the same files; figures of steps that are trained again are replaced.
"""

import dataclasses
import json
import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from rewardpool_train.actor.records import StepRecord

OnStep = Callable[[StepRecord], None]


@contextmanager
def reporting(output: Path, *, steps: int, done: int = 0, tensorboard: bool = False) -> Iterator[OnStep]:
    """Yield a function to call with the record of each step.

    Args:
        done: Steps done before the job resumed; 0 for a new job.

    Raises:
        OSError: The folder cannot be written.
    """
    output.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        writers = [
            stack.enter_context(_lines(output / "metrics.jsonl", done=done)),
            stack.enter_context(_progress(steps=steps, done=done)),
        ]
        if tensorboard:
            writers.append(stack.enter_context(_curves(output / "tensorboard", done=done)))

        def on_step(record: StepRecord) -> None:
            for write in writers:
                write(record)

        yield on_step


def figures(record: StepRecord) -> dict[str, Any]:
    """Return a record as JSON values, with null for NaN, which JSON does not have."""
    values = dataclasses.asdict(record)
    values["components"] = {part: _or_null(value) for part, value in record.components.items()}
    return {name: _or_null(value) for name, value in values.items()}


def _or_null(value: Any) -> Any:
    return None if isinstance(value, float) and math.isnan(value) else value


@contextmanager
def _lines(path: Path, *, done: int) -> Iterator[OnStep]:
    before = path.read_text(encoding="utf-8").splitlines(keepends=True) if done and path.exists() else []
    kept = [line for line in before if json.loads(line)["step"] <= done]
    with path.open("w", encoding="utf-8") as lines:
        lines.writelines(kept)

        def on_step(record: StepRecord) -> None:
            lines.write(json.dumps(figures(record)) + "\n")
            lines.flush()

        yield on_step


@contextmanager
def _progress(*, steps: int, done: int) -> Iterator[OnStep]:
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True)) as progress:
        bar = progress.add_task("training", total=steps, completed=done)

        def on_step(record: StepRecord) -> None:
            progress.console.print(_line(record), highlight=False, soft_wrap=True)
            progress.advance(bar)

        yield on_step


@contextmanager
def _curves(folder: Path, *, done: int) -> Iterator[OnStep]:
    from torch.utils.tensorboard import SummaryWriter  # needs a package that jobs without curves do not need

    # purge_step hides the figures of steps that are trained again.
    with SummaryWriter(str(folder), purge_step=done + 1 if done else None) as writer:

        def on_step(record: StepRecord) -> None:
            for name, value in _scalars(record).items():
                if value is not None:
                    writer.add_scalar(f"{_section(name)}/{name}", value, record.step)
            writer.flush()

        yield on_step


def _scalars(record: StepRecord) -> dict[str, Any]:
    values = figures(record)
    components, waits = values.pop("components"), values.pop("score_wait")
    del values["step"]
    return (
        values
        | {f"reward_{part}": value for part, value in components.items()}
        | {f"score_wait_{part}": value for part, value in waits.items()}
    )


def _section(name: str) -> str:
    if name.endswith("_seconds"):
        return "seconds"
    if name.startswith("score_wait"):
        return "score_wait"
    if name.startswith(("response", "sampling", "dropped")):
        return "rollout"
    return "reward" if name.startswith(("reward", "scored", "unscored", "zero_variance", "short")) else "update"


def _line(record: StepRecord) -> str:
    waited = record.score_wait
    return (
        f"step {record.step:4d}  reward {record.reward_mean:7.4f}  rollout {record.rollout_seconds:5.2f} s  "
        f"waited for scores {record.reward_exposed_seconds:5.2f} s  update {record.update_seconds:5.2f} s"
        + (f"  {waited.share:.0%} for nothing but scores, most of it {waited.most}" if waited.share >= 0.01 else "")
        + (f"  unscored {record.unscored}" if record.unscored else "")
        + (f"  skipped updates {record.skipped_updates}" if record.skipped_updates else "")
        + (f"  groups with too few scores {record.short_groups}" if record.short_groups else "")
        + (f"  replaced groups {record.dropped_groups}" if record.dropped_groups else "")
    )
