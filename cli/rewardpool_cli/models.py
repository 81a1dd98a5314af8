"""`rewardpool models` and `init`: which manifest serves a reward model."""

import json
import textwrap
from pathlib import Path
from typing import Annotated, Any, cast

import typer
from rich.table import Table

from rewardpool_api import load_manifest, parse_source
from rewardpool_api.pool import EngineName
from rewardpool_api.source import is_source
from rewardpool_cli import screens
from rewardpool_cli.catalogue import ENTRIES, READ_IT, CannotServeError, Draft, Entry, draft, pool_name
from rewardpool_cli.catalogue.config_file import ConfigUnavailableError, read_config
from rewardpool_cli.catalogue.page import as_yaml
from rewardpool_cli.errors import CommandError, RefusedError
from rewardpool_cli.options import AsJson


def models(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Of one model: its manifest.")] = None,
    engine: Annotated[
        str | None, typer.Option(metavar="ENGINE", help="Of the manifest. Default: the first that serves it.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the popular reward models and how each is served, or print the manifest of one.

    Example: rewardpool models skywork-reward-v2-qwen3 > pool.yaml
    """
    if name is None:
        if as_json:
            typer.echo(json.dumps([_record(entry) for entry in ENTRIES], indent=2))
        else:
            screens.out.print(_table())
        return
    entry = next((entry for entry in ENTRIES if name in (entry.name, *entry.repositories)), None)
    if entry is None:
        raise RefusedError(
            f"there is no model {name} in the list: `rewardpool models` shows it, and `rewardpool init --model"
            " hf://ORG/NAME` writes a manifest for any other"
        )
    if as_json:
        typer.echo(json.dumps(_record(entry), indent=2))
        return
    if entry.manifest is None:
        raise RefusedError(f"{entry.repository} is not served by any engine here: {entry.notes}")
    if engine is not None and engine not in entry.engines.split(", "):
        raise RefusedError(f"{entry.repository} is served on {entry.engines}, and not on {engine}. {entry.notes}")
    manifest = entry.manifest if engine is None else entry.on(cast(EngineName, engine))
    typer.echo(_text(Draft(manifest, _notes(entry))), nl=False)


def init(
    model: Annotated[str, typer.Option(metavar="SOURCE", help="hf://ORG/NAME or file:///ABSOLUTE/PATH.")],
    name: Annotated[str | None, typer.Option(help="Of the pool. Default: made from the model's.")] = None,
    revision: Annotated[str, typer.Option(help="Branch, tag or commit of an hf:// model.")] = "main",
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="You have read the code that comes with the model; it may run.")
    ] = False,
    weights: Annotated[
        str | None, typer.Option(help="Of several labels, in their order: how they make one score. Such as 1,0,-0.5.")
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="Write it there instead of to standard output.")
    ] = None,
) -> None:
    """Write the manifest that serves a reward model, by its config.json; refuse what no engine can serve.

    Example: rewardpool init --model hf://Skywork/Skywork-Reward-V2-Qwen3-0.6B -f pool.yaml
    """
    if file is not None and file.exists():
        raise RefusedError(f"--file: {file} exists already; remove it, or name another")
    if not is_source(model):
        raise RefusedError(f"--model must be hf://ORG/NAME or file:///ABSOLUTE/PATH, not {model}")
    try:
        listed = _listed(model, revision, name, trusted=trust_remote_code)
        text = _text(listed or _read(model, revision, name, trusted=trust_remote_code, weights=_numbers(weights)))
    except CannotServeError as error:
        raise RefusedError(f"{model} cannot be served: {error}") from None
    except ConfigUnavailableError as error:
        raise CommandError(str(error)) from None
    load_manifest(text, origin="what init would write")
    if file is None:
        typer.echo(text, nl=False)
    else:
        file.write_text(text)
        screens.err.print(f"{file} is written; run it with `rewardpool up -f {file}` or `kubectl apply -f {file}`")


def _listed(source: str, revision: str, name: str | None, *, trusted: bool) -> Draft | None:
    """The manifest by the catalogue; None for a model that is not in it."""
    repository = parse_source(source).location
    entry = next((entry for entry in ENTRIES if repository in entry.repositories), None)
    if entry is None:
        return None
    if entry.spec is None:
        raise CannotServeError(entry.notes)
    if entry.spec["model"].get("trustRemoteCode") and not trusted:
        raise CannotServeError(f"its score is computed by its own code. {READ_IT}")
    manifest = entry.manifest_for(source, name or pool_name(source))
    if revision != "main":
        manifest["spec"]["model"]["revision"] = revision
    size = () if repository == entry.repository else (f"Written for {entry.repository}: check the number of GPUs",)
    return Draft(manifest, (*_notes(entry), *size))


def _read(source: str, revision: str, name: str | None, *, trusted: bool, weights: list[float]) -> Draft:
    config = read_config(source, revision=revision)
    return draft(config, source=source, revision=revision, name=name, trust_remote_code=trusted, weights=weights)


def _numbers(given: str | None) -> list[float]:
    try:
        return [float(part) for part in given.split(",")] if given else []
    except ValueError:
        raise RefusedError(f"--weights must be numbers with commas between them, not {given}") from None


def _text(written: Draft) -> str:
    """A manifest with its notes as comments above it."""
    comments = "".join(f"# {line}\n" for note in written.notes for line in textwrap.wrap(note, 118))
    return comments + as_yaml(written.manifest)


def _notes(entry: Entry) -> tuple[str, ...]:
    run = f"Run: {entry.run}" if entry.run else "Not run here, nor a tiny model of its class"
    return (f"{run}. The real model was not", *([entry.notes] if entry.notes else []))


def _record(entry: Entry) -> dict[str, Any]:
    return {**entry.model_dump(exclude={"spec"}), "manifest": entry.manifest}


def _table() -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("name", "model", "score", "engines", "run, as a tiny model of the class"):
        table.add_column(title, overflow="fold")
    for entry in ENTRIES:
        table.add_row(entry.name, entry.repository, entry.kind, entry.engines, entry.run or "not run")
    return table
