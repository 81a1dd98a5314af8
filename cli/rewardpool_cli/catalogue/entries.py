"""The popular reward models, read from `entries.yaml`."""

from importlib import resources
from typing import Final

import yaml
from pydantic import TypeAdapter

from rewardpool_cli.catalogue.entry import Entry

ENTRIES: Final = TypeAdapter(tuple[Entry, ...]).validate_python(
    yaml.safe_load((resources.files("rewardpool_cli.catalogue") / "entries.yaml").read_text(encoding="utf-8"))
)
