"""Manifests of reward models: by name, from the catalogue, or by what its config.json says.

`entries.yaml` is the data of `rewardpool models` and of the tables in docs/models.md. `from_config` decides for
`rewardpool init`, from what `config_file` gets from the hub or a folder.
"""

from rewardpool_cli.catalogue.entries import ENTRIES
from rewardpool_cli.catalogue.entry import Entry
from rewardpool_cli.catalogue.from_config import READ_IT, CannotServeError, Draft, draft, pool_name

__all__ = ["ENTRIES", "READ_IT", "CannotServeError", "Draft", "Entry", "draft", "pool_name"]
