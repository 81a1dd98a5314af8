"""A pool and everything it owns, as the API server has it: the input of one pass."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rewardpool_api import RewardPool, names
from rewardpool_kube.resources import Object


@dataclass(frozen=True, kw_only=True)
class Objects:
    """A pool and everything it owns."""

    pool: Object
    deployments: tuple[Object, ...] = ()
    pods: tuple[Object, ...] = ()
    """Pods of the pool's Deployments, and of their claims, that run or shall run; those that ended for good are left
    out."""
    services: tuple[Object, ...] = ()
    config_maps: tuple[Object, ...] = ()
    secrets: tuple[Object, ...] = ()
    """As last read, which may be a while ago; see `secret_reader.py`."""
    files: frozenset[str] = frozenset()
    leases: tuple[Object, ...] = ()
    claims: tuple[Object, ...] = ()
    others: Mapping[str, tuple[Object, ...]] = field(default_factory=dict)
    """Kind -> objects, of all kinds that no decision depends on."""
    warnings: Mapping[str, str] = field(default_factory=dict)
    """Pod name -> last warning event, for pods whose containers do not even start."""

    @property
    def status(self) -> Object:
        """The pool's status; empty before the first is written."""
        found: Object = self.pool.get("status") or {}
        return found

    def find(self, kind: str, name: str) -> Object | None:
        kinds = {
            "Deployment": self.deployments,
            "Service": self.services,
            "ConfigMap": self.config_maps,
            "Secret": self.secrets,
        }
        found = kinds[kind] if kind in kinds else self.others.get(kind, ())
        return next((item for item in found if item["metadata"]["name"] == name), None)

    def pods_of(self, component: str) -> tuple[Object, ...]:
        return tuple(pod for pod in self.pods if pod["metadata"]["labels"].get(names.LABEL_COMPONENT) == component)

    def wanted_routers(self, pool: RewardPool) -> int:
        """Return how many routers the pool is to have: as it says itself, else as its Deployment was made."""
        made = self.find("Deployment", names.router_name(pool.metadata.name)) or {"spec": {}}
        return int(pool.spec.router.replicas or made["spec"].get("replicas") or 1)

    def worker_deployments(self) -> tuple[Object, ...]:
        return tuple(item for item in self.deployments if names.LABEL_REVISION in item["metadata"]["labels"])

    def claims_of(self, deployment: Object) -> tuple[Object, ...]:
        uid = deployment["metadata"].get("uid")
        return tuple(one for one in self.claims if one["metadata"]["ownerReferences"][0].get("uid") == uid)


def are_the_same(before: Sequence[Object], now: Sequence[Object]) -> bool:
    """Return whether these are unchanged: the store keeps an object for as long as it is."""
    return len(before) == len(now) and all(one is other for one, other in zip(before, now, strict=True))
