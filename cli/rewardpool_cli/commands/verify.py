"""`rewardpool verify`: whether a live pool gives the scores that its model should."""

import asyncio
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Annotated, Final

import typer
from rich.console import Group, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from rewardpool import Pool, RewardConfig, Sample, Scored
from rewardpool.errors import PoolNotReadyError
from rewardpool_api import RewardPool, parse_source
from rewardpool_cli import screens
from rewardpool_cli.errors import FAILED, CommandError, RefusedError
from rewardpool_cli.files import named, read_pool, read_text
from rewardpool_cli.options import AsJson, Namespace, pools_here
from rewardpool_cli.targets import Target, Where, locate, pool_here
from rewardpool_cli.verification import OnProgress, ScoreComparison, Tolerance, compare, served_dtype
from rewardpool_cli.verification.determinism import Certificate
from rewardpool_cli.verification.reference import NoReferenceError, Reference, scores_by_transformers
from rewardpool_control.golden_set import GoldenSet, GoldenSetError, GoldenText, parse_golden_set

MOST_TEXTS: Final = 100_000
SHOWN: Final = 10
LINE_SECONDS: Final = 10.0
OWN_TEXTS: Final = (
    "ok",
    "The sky is blue.",
    "2 + 2 = 4, because two pairs are four, however they are counted.",
    "2 + 2 = 5.",
    "I cannot help with that.",
    "Ünïcödé, 日本語, العربية, 😀",
    "def add(a, b):\n    return a + b\n",
    "a b c " * 60,
    "    spaces,\ttabs\nand lines   ",
    "!?.,;:-()[]{}<>",
)


def verify(
    name: Annotated[
        str | None, typer.Argument(metavar="[POOL]", help="NAME or NAMESPACE/NAME.", autocompletion=pools_here)
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", "-f", metavar="FILE", help="Its manifest, instead of its name; - is standard input."),
    ] = None,
    namespace: Namespace = None,
    golden: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help='Lines {"text": "...", "score": 0.42}: what it should give.'),
    ] = None,
    transformers: Annotated[
        bool,
        typer.Option(
            "--transformers",
            help="Compare with transformers on the same weights, in float32, by the interpreter of"
            " REWARDPOOL_SERVER_PYTHON; on the texts of --golden, or on ten of its own.",
        ),
    ] = False,
    determinism: Annotated[
        bool,
        typer.Option(
            "--determinism",
            help="Compare it with itself: whether numbers depend on batches, their order, cached prefixes, chunks or"
            " the replica; also of teachers. On the texts of --golden, or on samples of its own.",
        ),
    ] = False,
    adapter: Annotated[
        str | None, typer.Option(help="Score by this one of spec.model.adapters, against --golden. Default: the base.")
    ] = None,
    device: Annotated[str, typer.Option(help="Of --transformers, as torch calls it.")] = "cpu",
    trust_remote_code: Annotated[
        bool,
        typer.Option(
            "--trust-remote-code",
            help="You have read the code that comes with the model: --transformers may run it here, as you.",
        ),
    ] = False,
    max_abs_diff: Annotated[
        float | None, typer.Option(min=0, help="Largest difference. Default: four steps of the weights' number format.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare a live pool's scores with those that its model should give. Exit code 1: they differ.

    Example: rewardpool verify rl/skywork --golden golden.jsonl
    """
    pool = _meant(name, file, namespace)
    _check_adapter(pool, adapter, transformers=transformers)
    if determinism:
        if transformers:
            raise RefusedError("--determinism compares the pool with itself: leave out --transformers")
        _verify_determinism(pool, adapter, golden, max_abs_diff, as_json=as_json)
        return
    texts = _texts(pool, golden, transformers=transformers)
    if transformers and pool.spec.model.trust_remote_code and not trust_remote_code:
        raise RefusedError(
            "spec.model.trustRemoteCode is true: the model is scored by code that comes with it, and what a pool says"
            " runs nothing on this machine. Read that code, at the commit of spec.model.revision, and give"
            " --trust-remote-code; or give the scores by --golden FILE"
        )
    reference = Reference(device=device, trust_remote_code=trust_remote_code) if transformers else None
    tolerance, dtype = _tolerance(pool, max_abs_diff)
    try:
        comparison = asyncio.run(_compared(pool, adapter, texts, tolerance, reference))
    except NoReferenceError as error:
        raise CommandError(str(error)) from None
    against, shown = "transformers" if transformers else "golden", f"{pool.key} by {adapter}" if adapter else pool.key
    if as_json:
        head = {
            "pool": pool.key,
            "adapter": adapter,
            "reference": against,
            "dtype": dtype,
            "max_abs_diff_allowed": max_abs_diff,
        }
        typer.echo(json.dumps({**head, **comparison.as_json()}, indent=2))
    else:
        screens.out.print(screen(comparison, pool=shown, reference=against, allowed=_words(tolerance, dtype)))
    if not comparison.holds:
        raise typer.Exit(FAILED)


def _verify_determinism(
    pool: RewardPool, adapter: str | None, golden: Path | None, max_abs_diff: float | None, *, as_json: bool
) -> None:
    from rewardpool_cli.verification.replicas import certified  # slow to import

    is_teacher = pool.spec.model.type == "Teacher"
    if not is_teacher:
        _check_scores(pool)
    elif golden is not None:
        raise RefusedError("--golden has texts, and a teacher takes token ids: leave it out")
    texts = None if golden is None else [item.text for item in _golden_set(golden).texts]
    if texts is None and pool.spec.model.head is not None and pool.spec.model.head.step_token is not None:
        raise RefusedError("the model scores texts that have its step token: give some by --golden FILE")
    tolerance, dtype = _tolerance(pool, max_abs_diff)
    certificate = asyncio.run(
        certified(pool.key, adapter, texts, tolerance, progress=partial(_progress, unit="requests"))
    )
    if as_json:
        head = {"pool": pool.key, "adapter": adapter, "dtype": dtype, "max_abs_diff_allowed": max_abs_diff}
        typer.echo(json.dumps({**head, **certificate.as_json()}, indent=2))
    else:
        shown = f"{pool.key} by {adapter}" if adapter else pool.key
        screens.out.print(certificate_screen(certificate, pool=shown, allowed=_words(tolerance, dtype)))
    if not certificate.holds:
        raise typer.Exit(FAILED)


def certificate_screen(certificate: Certificate, *, pool: str, allowed: str) -> RenderableType:
    """Return the certificate as people read it."""
    summary = "holds" if certificate.holds else "does not hold"
    lines = [
        Text.assemble(f"{pool} against itself: ", (summary, "green" if certificate.holds else "red")),
        Text(f"each sample compared with itself alone; replicas: {len(certificate.replicas)}; allowed: {allowed}"),
    ]
    made = Table(box=None, pad_edge=False, header_style="dim")
    made.add_column("condition", no_wrap=True)
    for title in ("largest difference", "off", "order flips"):
        made.add_column(title, justify="right", no_wrap=True)
    for finding in certificate.findings:
        largest = "" if finding.max_abs_diff is None else f"{finding.max_abs_diff:.3g}"
        off = f"{len(finding.off)} of {len(finding.pairs)}" if finding.pairs else "not measured"
        flips = "" if not finding.ordered else f"{finding.flips} of {finding.ordered}"
        made.add_row(finding.condition.in_words, largest, off, flips, style="" if finding.holds else "red")
    remedies = [Text(f"{number}. {remedy}") for number, remedy in enumerate(certificate.remedies, start=1)]
    return Group(*lines, Text(""), made, *([Text("")] if remedies else []), *remedies)


def _meant(name: str | None, file: Path | None, namespace: str | None) -> RewardPool:
    """The pool as its manifest says, or as it is on this machine or in the cluster."""
    if (name is None) == (file is None):
        raise RefusedError(
            "name the pool, or give its manifest with -f" if name is None else "give a name or -f, not both"
        )
    if file is not None:
        return read_pool(file)
    target = locate(name, Where(namespace=namespace))
    if not target.is_local:
        return asyncio.run(_in_cluster(target))
    folder = pool_here(target.name, target.namespace)
    pool = folder.read_pool_as_it_is()
    if pool is None:
        raise CommandError(f"{folder.pool_key} was there a moment ago and is not a pool of this machine any more")
    return pool


async def _in_cluster(target: Target) -> RewardPool:
    from rewardpool_cli.cluster import connect  # slow to import

    async with connect(target) as cluster:
        return await cluster.pool(str(target.name))


def screen(comparison: ScoreComparison, *, pool: str, reference: str, allowed: str) -> RenderableType:
    """Return the result as people read it."""
    holds = comparison.holds
    off = sum(not item.holds for item in comparison.items)
    summary = "holds" if holds else f"does not hold: {off} of {len(comparison.items)} texts are off"
    unscored = sum(item.score is None for item in comparison.items)
    lines = [
        Text.assemble(f"{pool} against {reference}: ", (summary, "green" if holds else "red")),
        Text(f"{len(comparison.items)} texts, {unscored} without a score; allowed: {allowed}"),
    ]
    if comparison.max_abs_diff is not None:
        lines.append(Text(f"largest difference {comparison.max_abs_diff:.3g}, mean {comparison.mean_abs_diff:.3g}"))
        lines.append(Text(f"rank flips: {comparison.rank_flips} of {comparison.pairs} pairs"))
    return Group(*lines, Text(""), histogram(comparison), Text(""), table(comparison))


def histogram(comparison: ScoreComparison) -> Table:
    """Return a table of how many texts differ by how much."""
    made = Table(box=None, pad_edge=False, header_style="dim", show_header=True)
    made.add_column("difference", no_wrap=True)
    made.add_column("texts", justify="right")
    made.add_column("")
    most = max((each.texts for each in comparison.histogram), default=0) or 1
    for each in comparison.histogram:
        name = f"{each.low:.0e} and more" if each.high == float("inf") else f"below {each.high:.0e}"
        made.add_row(name, str(each.texts), ProgressBar(total=most, completed=each.texts, width=40))
    return made


def table(comparison: ScoreComparison) -> Table:
    """The texts that are furthest off."""
    made = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("line", "expected", "pool", "difference", "allowed"):
        made.add_column(title, justify="right", no_wrap=True)
    made.add_column("text", no_wrap=True, overflow="ellipsis", ratio=1)
    for item in comparison.worst[:SHOWN]:
        given = ["none", ""] if item.score is None else [f"{item.score:.6g}", f"{item.difference:.3g}"]
        said = item.text if item.problem is None else f"{item.problem} ({item.text})"
        style = "" if item.holds else "red"
        row = [str(item.line), f"{item.expected:.6g}", *given, f"{item.allowed:.3g}"]
        made.add_row(*row, Text(said[:200].replace("\n", " ")), style=style)
    return made


def _check_adapter(pool: RewardPool, adapter: str | None, *, transformers: bool) -> None:
    if adapter is None:
        return
    if adapter not in pool.adapter_names:
        there = ", ".join(pool.adapter_names) or "there are none"
        raise RefusedError(f"--adapter {adapter} is not among spec.model.adapters: {there}")
    if transformers:
        raise RefusedError("--transformers has the base's weights alone: for --adapter give --golden")


def _texts(pool: RewardPool, golden: Path | None, *, transformers: bool) -> GoldenSet:
    _check_scores(pool)
    if transformers and pool.spec.model.head is not None:
        raise RefusedError(
            "--transformers reads one label, or what a head's own code says: for spec.model.head give --golden"
        )
    if golden is None:
        if not transformers:
            raise RefusedError("give --golden FILE, or --transformers, to say what the scores should be")
        return GoldenSet(texts=tuple(GoldenText(line=n, text=text) for n, text in enumerate(OWN_TEXTS, start=1)))
    texts = _golden_set(golden)
    lacking = [item.line for item in texts.texts if item.expected is None]
    if lacking and not transformers:
        raise RefusedError(
            f"{golden}: line {lacking[0]} has no score to compare with; write one, or add --transformers"
        )
    return texts


def _check_scores(pool: RewardPool) -> None:
    kind = pool.spec.model.type
    if kind == "Teacher":
        raise RefusedError("spec.model.type is Teacher, which gives no scores: give --determinism")
    if kind != "Discriminative":
        raise RefusedError(f"spec.model.type is {kind}: verify compares scores of reward models")


def _golden_set(path: Path) -> GoldenSet:
    try:
        return parse_golden_set(read_text(path), most=MOST_TEXTS)
    except GoldenSetError as error:
        raise RefusedError(f"{named(path)}: {error}") from None


def _tolerance(pool: RewardPool, max_abs_diff: float | None) -> tuple[Tolerance, str | None]:
    dtype = served_dtype(pool.spec.engine.dtype, of_checkpoint=_dtype_of_checkpoint(pool), engine=pool.spec.engine.name)
    if dtype is None and max_abs_diff is None:
        raise RefusedError(
            "spec.engine.dtype is auto and the checkpoint is not here to tell its number format: give --max-abs-diff,"
            " or set spec.engine.dtype"
        )
    return Tolerance(dtype=dtype or "float32", max_abs_diff=max_abs_diff), dtype


def _dtype_of_checkpoint(pool: RewardPool) -> str | None:
    source = parse_source(pool.spec.model.source)
    path = Path(source.location, "config.json")
    if source.scheme != "file" or not path.is_file():
        return None
    config = json.loads(path.read_text())
    return config.get("dtype") or config.get("torch_dtype") or "float32"


def _words(tolerance: Tolerance, dtype: str | None) -> str:
    if tolerance.max_abs_diff is not None:
        return f"{tolerance.max_abs_diff:g}, as asked"
    return f"{tolerance.at(1.0):.2g} at scores up to 2, {tolerance.at(8.0):.2g} from 8 to 16 ({dtype})"


async def _compared(
    pool: RewardPool, adapter: str | None, texts: GoldenSet, tolerance: Tolerance, reference: Reference | None
) -> ScoreComparison:
    samples = [item.text for item in texts.texts]
    if reference is None:
        known = [(item.line, item.text, item.expected) for item in texts.texts if item.expected is not None]
    else:
        with _progress("transformers", len(samples)) as on_progress:
            given = await scores_by_transformers(pool, samples, reference, environ=os.environ, on_progress=on_progress)
        known = []
        for item, score in zip(texts.texts, given, strict=True):
            if isinstance(score, str):
                raise NoReferenceError(f"transformers has no score for line {item.line}: {score}; leave the text out")
            known.append((item.line, item.text, score))
    with _progress(pool.key, len(samples)) as on_progress:
        outcomes = await live_scores(pool.key, samples, on_progress, adapter=adapter)
    return compare(known, outcomes, tolerance)


async def live_scores(
    pool: str, texts: Sequence[str], on_progress: OnProgress, *, adapter: str | None = None
) -> list[float | str]:
    """Return the scores of a pool, or of one of its adapters, as a trainer gets them, with the error for a missing one.

    Raises:
        RewardPoolError: pool not found, or it cannot be used.
    """
    config = RewardConfig(pool=pool, adapter=adapter, on_failure="skip")
    found: list[float | str] = ["no outcome"] * len(texts)
    async with Pool(config) as client:
        if client.endpoint.not_ready:
            raise PoolNotReadyError(f"RewardPool {pool} is not ready: {client.endpoint.not_ready}")
        count = 0
        async for index, outcome in client.stream(Sample(text=text) for text in texts):
            found[index] = outcome.value if isinstance(outcome, Scored) else str(outcome.error)
            count += 1
            on_progress(count)
    return found


@contextmanager
def _progress(what: str, total: int, unit: str = "texts") -> Iterator[OnProgress]:
    if not screens.err.is_terminal:
        since = monotonic()

        def line(count: int) -> None:
            nonlocal since
            if monotonic() - since >= LINE_SECONDS:
                since = monotonic()
                screens.err.print(f"{what}: {count} of {total} {unit}", markup=False)

        screens.err.print(f"{what}: {total} {unit}", markup=False)
        yield line
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=screens.err, transient=True) as progress:
        task = progress.add_task(what, total=total)
        yield lambda count: progress.update(task, completed=count)
