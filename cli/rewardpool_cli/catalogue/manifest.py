"""A manifest as text, with what its reader should know."""

import textwrap
from typing import Any

import yaml

from rewardpool_cli.catalogue.entry import Entry
from rewardpool_cli.catalogue.from_config import Draft


def as_yaml(manifest: dict[str, Any]) -> str:
    """A manifest as a person writes it."""
    return yaml.safe_dump(manifest, sort_keys=False, allow_unicode=True, width=120)


def manifest_text(written: Draft) -> str:
    """A manifest with its notes as comments above it."""
    comments = "".join(f"# {line}\n" for note in written.notes for line in textwrap.wrap(note, 118))
    return comments + as_yaml(written.manifest)


def notes_of(entry: Entry) -> tuple[str, ...]:
    """Return notes for the reader of its manifest."""
    run = f"Run: {entry.run}" if entry.run else "Not run here, nor a tiny model of its class"
    return (f"{run}. The real model was not", *([entry.notes] if entry.notes else []))
