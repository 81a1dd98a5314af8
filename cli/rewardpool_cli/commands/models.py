"""`rewardpool models`: the popular reward models, and which manifest serves each."""

import json
from typing import Annotated, Any, cast

import typer
from rich.table import Table

from rewardpool_api.engines import EngineName
from rewardpool_cli import screens
from rewardpool_cli.catalogue import ENTRIES, Draft, Entry
from rewardpool_cli.catalogue.manifest import manifest_text, notes_of
from rewardpool_cli.errors import RefusedError
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
    typer.echo(manifest_text(Draft(manifest, notes_of(entry))), nl=False)


def _record(entry: Entry) -> dict[str, Any]:
    return {**entry.model_dump(exclude={"spec"}), "manifest": entry.manifest}


def _table() -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("name", "model", "score", "engines", "run, as a tiny model of the class"):
        table.add_column(title, overflow="fold")
    for entry in ENTRIES:
        table.add_row(entry.name, entry.repository, entry.kind, entry.engines, entry.run or "not run")
    return table
