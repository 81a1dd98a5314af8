"""The API of RewardPool: what a manifest may say, what a status says, and the wire contract between the two ends.

Everything else imports this package and it imports nothing of ours. The pydantic models are the only definition: the
CRD's YAML is generated from them (`python -m rewardpool_api.crd`), the documentation quotes them, and the same rules
reject a bad manifest on an API server (as CEL) and on one machine (as Python) with the same words.
"""

from rewardpool_api.manifest import ManifestError, dump_manifest, load_manifest
from rewardpool_api.pool import RewardPool, RewardPoolSpec
from rewardpool_api.source import ModelSource, parse_source
from rewardpool_api.status import Condition, RewardPoolStatus

__all__ = [
    "Condition",
    "ManifestError",
    "ModelSource",
    "RewardPool",
    "RewardPoolSpec",
    "RewardPoolStatus",
    "dump_manifest",
    "load_manifest",
    "parse_source",
]
