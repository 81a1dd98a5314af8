"""The API of RewardPool: what a manifest may say, what a status says, and the wire contract between the two ends.

Everything else imports this package and it imports nothing of ours. The pydantic models are the only definition: the
CRD's YAML is generated from them (`python -m rewardpool_api.crd`), the documentation quotes them, and the same rules
reject a bad manifest on an API server (as CEL) and on one machine (as Python) with the same words.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rewardpool_api.manifest import ManifestError as ManifestError
    from rewardpool_api.manifest import dump_manifest as dump_manifest
    from rewardpool_api.manifest import load_manifest as load_manifest
    from rewardpool_api.pool import RewardPool as RewardPool
    from rewardpool_api.pool import RewardPoolSpec as RewardPoolSpec
    from rewardpool_api.source import ModelSource as ModelSource
    from rewardpool_api.source import parse_source as parse_source
    from rewardpool_api.status import Condition as Condition
    from rewardpool_api.status import RewardPoolStatus as RewardPoolStatus

# Imported when first used: the models of a manifest take a fifth of a second, and a trainer that has a URL needs none.
_NAMES = {
    "rewardpool_api.manifest": "ManifestError dump_manifest load_manifest",
    "rewardpool_api.pool": "RewardPool RewardPoolSpec",
    "rewardpool_api.source": "ModelSource parse_source",
    "rewardpool_api.status": "Condition RewardPoolStatus",
}
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_MODULE_OF[name]), name)
    return value
