"""What a pool shall own, and what was found to be just that. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from rewardpool_api import RewardPool
from rewardpool_operator.kubernetes import render
from rewardpool_operator.kubernetes.client import Object
from rewardpool_operator.kubernetes.credentials.keys import Keys
from rewardpool_operator.kubernetes.credentials.tls import PLAIN, Tls
from rewardpool_operator.kubernetes.place import OperatorPlace
from rewardpool_operator.snapshot import WorkerSet


@dataclass(frozen=True, kw_only=True)
class Rendered:
    """What the pool shall own, but for the number of workers."""

    shared: tuple[Object, ...]
    """Every manifest but the worker Deployments; Secrets first."""
    worker_template: Object


@dataclass(frozen=True, kw_only=True)
class Settled:
    """What a pass looked at and found nothing to write about: with the very same, the next one need not compare."""

    rendered: Rendered
    worker_sets: tuple[WorkerSet, ...]
    serving: bool
    owned: tuple[Object, ...]

    def holds(self, other: "Settled | None") -> bool:
        """Whether that was the same; the store keeps an object as it is for as long as nothing of it changes."""
        return (
            other is not None
            and self.rendered is other.rendered
            and (self.worker_sets, self.serving) == (other.worker_sets, other.serving)
            and len(self.owned) == len(other.owned)
            and all(mine is theirs for mine, theirs in zip(self.owned, other.owned, strict=True))
        )


def rendered(
    pool: RewardPool,
    keys: Keys,
    *,
    image: str,
    tls: Tls = PLAIN,
    place: OperatorPlace | None = None,
    pins: Mapping[str, str] | None = None,
) -> Rendered:
    """Everything the pool shall own.

    Args:
        pool: whose objects.
        keys: for its Secrets.
        tls: for its routers; while its certificate cannot be used, they are left as they are.
        image: RewardPool's own.
        place: where the operator runs, for network policies that let it through; None makes none.
        pins: revision of workers -> commit of the model.
    """
    certificate = tls.certificate.fingerprint if tls.certificate else None
    routers = render.router_deployment(pool, fingerprint=keys.fingerprint, image=image, certificate=certificate)
    return Rendered(
        shared=(
            *render.secrets(pool, keys),
            render.files_config_map(pool, pins=pins),
            render.router_service(pool),
            *(() if tls.problem else (routers,)),
            *render.disruption_budgets(pool),
            *render.network_policies(pool, place),
        ),
        worker_template=render.worker_template(pool, image=image),
    )
