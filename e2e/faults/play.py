"""All faults, one after the other, and what came of them."""

import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

from cluster.contract import Cluster, NotPossibleError
from cluster.processes import ClusterError
from cluster.progress import Say
from faults import keys, nodes, objects, operators, partial, rollouts, routers, workers
from faults.manifests import NAMESPACE, TRAFFIC
from faults.stage import Stage
from faults.tally import Tally
from installation import Installation, evidence
from scene import StoryError

Fault = Callable[[Stage], str]

FAULTS: Sequence[Fault] = (
    *workers.FAULTS,
    *routers.FAULTS,
    *rollouts.FAULTS,
    *keys.FAULTS,
    *nodes.FAULTS,
    *objects.FAULTS,
    *partial.FAULTS,
    *operators.FAULTS,
)
LONG: Sequence[Fault] = (
    workers.hang_a_worker,
    rollouts.new_args_under_a_used_up_quota,
    rollouts.broken_image,
    objects.delete_owned_objects,
    partial.secrets_refused,
    operators.hang_the_operator,
    operators.upgrade_the_chart,
    operators.api_server_away,
)
"""Those that `make e2e` leaves out for their length: but for what hangs, tests on a control plane do the same."""
RATE = 40.0
"""Samples per second: two or so are at work at any time, and a busy machine of two cores keeps up."""
AFTER_SECONDS = 1.0
"""Traffic that still counts for a fault after it is over."""
LONGEST_WORDS = 500
"""Characters of an error that are kept: the end, where a program's own words are."""
NAME = "faults"
"""Of the files in the folder: `report_of` and `failure_of` it."""
TITLE = "Faults under steady load"


@dataclass(frozen=True, kw_only=True)
class Result:
    """What came of one fault."""

    name: str
    promise: str
    tally: Tally
    seconds: float
    notes: str
    broken: str | None = None
    """The promise that was not kept, in words."""
    possible: bool = True
    """False where this cluster cannot be broken in that way."""

    @property
    def passed(self) -> bool:
        """Whether all was kept that was promised."""
        return self.broken is None and self.tally.failed == self.tally.wrong == 0

    def report(self) -> dict[str, object]:
        """As it is written to the report."""
        numbers = asdict(replace(self.tally, slowest_seconds=round(self.tally.slowest_seconds, 3)))
        seconds = round(self.seconds, 1)
        rest = {"seconds": seconds, "notes": self.notes, "broken": self.broken, "possible": self.possible}
        return {"promise": self.promise, **numbers, **rest}


def report_of(name: str) -> str:
    """The file with the figures of a run."""
    return f"{name}.json"


def failure_of(name: str) -> str:
    """The file with what a person needs to see of what failed."""
    return f"{name}-failure.txt"


def title(fault: Fault) -> str:
    """A fault's name for people."""
    return fault.__name__.replace("_", " ")


def promise(fault: Fault) -> str:
    """The first line of its docstring."""
    return (fault.__doc__ or "").strip().splitlines()[0]


def play_all(
    cluster: Cluster,
    installation: Installation,
    *,
    folder: Path,
    say: Say,
    faults: Sequence[Fault] = FAULTS,
    rate: float = RATE,
    name: str = NAME,
) -> list[Result]:
    """Break things under load on a cluster that has the image; write the report and, of what failed, the evidence."""
    report, failure = folder / report_of(name), folder / failure_of(name)
    for earlier in (report, failure):
        earlier.unlink(missing_ok=True)
    stage = Stage(cluster, installation, folder=folder, rate=rate, say=say)
    results: list[Result] = []
    try:
        stage.open(workers=2, routers=2)
        for number, fault in enumerate(faults, start=1):
            say(f"fault {number} of {len(faults)}: {title(fault)}")
            result = play(stage, fault)
            results.append(result)
            say(f"  {summary(result)}")
            if not result.passed:
                keep_evidence(cluster, failure, result)
    except (StoryError, ClusterError):
        keep_evidence(cluster, failure, None)
        raise
    finally:
        figures = {result.name: result.report() for result in results}
        report.write_text(json.dumps(figures, indent=2) + "\n")
        stage.close()
    return results


def play(stage: Stage, fault: Fault) -> Result:
    """One fault from before its preparation to a moment after its end; every sample due meanwhile counts."""
    began, broken, notes, possible = time.time(), None, "", True
    try:
        notes = fault(stage)
    except NotPossibleError as error:
        notes, possible = f"not possible here: {error}", False
    except (StoryError, ClusterError) as error:
        broken = str(error)[-LONGEST_WORDS:]
    seconds = time.time() - began
    time.sleep(AFTER_SECONDS)
    return Result(
        name=fault.__name__,
        promise=promise(fault),
        tally=stage.tally(began, time.time()),
        seconds=seconds,
        notes=notes,
        broken=broken,
        possible=possible,
    )


def summary(result: Result) -> str:
    """One line about a result."""
    tally = result.tally
    counts = f"{tally.samples} samples, {tally.failed} failed, {tally.wrong} wrong, {tally.retried} retried"
    parts = [f"{result.seconds:.0f} s", counts, f"slowest {tally.slowest_seconds:.2f} s", result.notes]
    parts += [f"BROKEN: {result.broken}"] if result.broken else []
    return "; ".join([*filter(None, parts), *tally.problems])


def keep_evidence(cluster: Cluster, file: Path, result: Result | None) -> None:
    """Append what a person needs to see why a fault was not survived."""
    heading = f"{result.name}: {summary(result)}" if result else "the pool did not come up"
    shown = evidence(cluster, namespace=NAMESPACE, further={"traffic": ["logs", TRAFFIC, f"--namespace={NAMESPACE}"]})
    with file.open("a") as out:
        out.write(f"=== {heading}\n{shown}\n")


def table(results: Sequence[Result], *, title: str) -> Table:
    """The results as a table for people."""
    shown = Table(title=title, title_justify="left")
    shown.add_column("fault")
    for column in ("samples", "failed", "wrong", "retried", "slowest", "took"):
        shown.add_column(column, justify="right")
    shown.add_column("notes", overflow="fold")
    for result in results:
        tally = result.tally
        counts = (str(number) for number in (tally.samples, tally.failed, tally.wrong, tally.retried))
        times = f"{tally.slowest_seconds:.2f} s", f"{result.seconds:.0f} s"
        notes = f"BROKEN: {result.broken}" if result.broken else result.notes
        style = None if result.passed else "bold red"
        shown.add_row(result.name.replace("_", " "), *counts, *times, notes, style=style)
    return shown


def show(results: Sequence[Result], *, title: str = TITLE) -> None:
    """Print the table."""
    # A file or a pipe has no width, and rich would take 80 columns for it.
    Console(width=None if sys.stdout.isatty() else 160).print(table(results, title=title))
