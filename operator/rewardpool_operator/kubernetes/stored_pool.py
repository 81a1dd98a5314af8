"""A pool as the API server has it, with its model: one version of one object, which no later one can slip into.

What is rendered, decided and reported as observedGeneration in one pass is made of one `StoredPool`.
"""

from dataclasses import dataclass
from typing import Self

from rewardpool_api import RewardPool
from rewardpool_operator.kubernetes.client import Object
from rewardpool_operator.left_out import with_sane_status


@dataclass(frozen=True, kw_only=True)
class StoredPool:
    """One version of a pool."""

    object: Object
    """As JSON."""
    pool: RewardPool
    """Parsed from `object`."""

    @classmethod
    def parse(cls, found: Object) -> Self:
        """The object with its model.

        Fields of a newer CRD are left aside: after a rollback of the operator its pools are still to be looked after.

        Raises:
            pydantic.ValidationError: it is no valid pool; an older CRD let it through.
        """
        return cls(object=found, pool=RewardPool.model_validate(with_sane_status(found), extra="ignore"))

    @property
    def declared(self) -> Object:
        """All that rendering may depend on: metadata and spec, without what changes at every write of the status."""
        metadata = {name: value for name, value in self.object["metadata"].items() if name != "resourceVersion"}
        return {"metadata": metadata, "spec": self.object["spec"]}
