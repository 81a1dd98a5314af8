"""Objects that a pool should own, and those that were found to be so. Pure."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from rewardpool_api import RewardPool, names
from rewardpool_control.snapshot import WorkerSet
from rewardpool_kube.resources import Object
from rewardpool_operator.kubernetes import render, revisions
from rewardpool_operator.kubernetes.cache.alike import kept_once
from rewardpool_operator.kubernetes.cache.objects import Objects, are_the_same
from rewardpool_operator.kubernetes.credentials.keys import Keys
from rewardpool_operator.kubernetes.credentials.tls import PLAIN, Tls
from rewardpool_operator.kubernetes.manifests.diff import stamped
from rewardpool_operator.kubernetes.manifests.nulls import ignored_nulls
from rewardpool_operator.kubernetes.render import Revision
from rewardpool_operator.kubernetes.settings.operator_identity import OperatorIdentity
from rewardpool_operator.kubernetes.settings.pool_defaults import NO_DEFAULTS, PoolDefaults
from rewardpool_operator.kubernetes.workload import pods
from rewardpool_worker.mounted import router_files, worker_files


@dataclass(frozen=True, kw_only=True)
class Rendered:
    """Manifests that the pool should own, without the number of workers."""

    shared: tuple[Object, ...]
    """Every manifest but the worker Deployments, stamped; Secrets first."""
    files: tuple[Object, ...] = ()
    revision: Revision
    offer: str | None = None
    """Differences of workers that this operator renders, in words; None where there are none."""
    nulls: str | None = None
    """Advice about nulls of the pool that remove nothing; None where there are none."""


@dataclass(frozen=True, kw_only=True)
class Settled:
    """State in which a pass had nothing to write: with the very same, the next one need not compare."""

    rendered: Rendered
    worker_sets: tuple[WorkerSet, ...]
    serving: bool
    protected: tuple[int, ...]
    owned: tuple[Object, ...]

    def holds(self, other: "Settled | None") -> bool:
        """Return whether that was the same; the store keeps an object for as long as it is unchanged."""
        return (
            other is not None
            # Equal and not the same: what is left as it was is put together at every look.
            and self.rendered == other.rendered
            and (self.worker_sets, self.serving, self.protected) == (other.worker_sets, other.serving, other.protected)
            and are_the_same(self.owned, other.owned)
        )


def rendered(
    pool: RewardPool,
    keys: Keys,
    *,
    image: str,
    tls: Tls = PLAIN,
    identity: OperatorIdentity | None = None,
    pins: Mapping[str, str] | None = None,
    defaults: PoolDefaults = NO_DEFAULTS,
) -> Rendered:
    """Return everything that the pool should own; `pins` are the commits of the model by revision.

    While the certificate cannot be used, routers are left as they are. Without an identity no policy lets the operator
    through, so there are none.
    """
    ipv6 = identity is not None and identity.ipv6
    certificate = tls.certificate.fingerprint if tls.certificate else None

    def routers_of(pool: RewardPool) -> Object:
        return render.router_deployment(
            pool, fingerprint=keys.fingerprint, image=image, certificate=certificate, ipv6=ipv6, defaults=defaults
        )

    def gateways_of(pool: RewardPool) -> list[Object]:
        gateway = pool.spec.gateway
        if gateway is None:
            return []
        return [render.gateway_deployment(pool, gateway, key=keys.gateway, image=image, ipv6=ipv6, defaults=defaults)]

    def templates(pool: RewardPool) -> Object:
        workers = render.worker_template(pool, image=image, ipv6=ipv6, defaults=defaults)
        gateways = [one["spec"]["template"] for one in gateways_of(pool)]
        return {"workers": workers, "routers": routers_of(pool)["spec"]["template"], "gateways": gateways}

    routers, gateways = routers_of(pool), gateways_of(pool)
    revision = render.worker_revision(pool, image=image, ipv6=ipv6, defaults=defaults)
    shared = (
        *render.secrets(pool, keys),
        render.pins_config_map(pool, pins),
        render.router_service(pool),
        *(() if tls.problem else (routers,)),
        *([render.gateway_service(pool)] if gateways else []),
        *gateways,
        *render.disruption_budgets(pool),
        *render.network_policies(pool, identity),
    )
    return Rendered(
        # What is kept once is kept for a while, which no key shall be.
        shared=tuple(one if one["kind"] == "Secret" else kept_once(one) for one in map(stamped, shared)),
        files=(
            render.files_config_map(pool.metadata.namespace, worker_files()),
            *(() if tls.problem else (render.files_config_map(pool.metadata.namespace, router_files()),)),
        ),
        revision=replace(revision, template=kept_once(revision.template)),
        nulls=ignored_nulls(pool, templates),
    )


def left_running(wanted: Rendered, pool: RewardPool, objects: Objects, *, may_upgrade: Callable[[], bool]) -> Rendered:
    """Return the manifests with workers and routers left as they are where the pool itself needs no others."""
    revision = revisions.present(pool, wanted.revision, objects)
    left = revisions.files_of(wanted.revision.template) - revisions.files_of(revision.template)
    routers = _routers(wanted.shared)
    live = objects.find("Deployment", names.router_name(pool.metadata.name))
    # A gateway is changed with the routers.
    if routers is not None and live is not None and _is_upgrade(routers, live, pool) and not may_upgrade():
        files = revisions.files_of(routers["spec"]["template"]) - revisions.files_of(live["spec"]["template"])
        left |= {routers["metadata"]["name"], names.gateway_name(pool.metadata.name), *files}
    return replace(
        wanted,
        shared=tuple(manifest for manifest in wanted.shared if not _is_one_of(left, manifest)),
        files=tuple(manifest for manifest in wanted.files if not _is_one_of(left, manifest)),
        revision=revision,
        offer=revisions.difference(revision, wanted.revision),
    )


def routers_are_new(wanted: Rendered, objects: Objects) -> bool:
    """Return whether all routers that are to stay are of the wanted template, and ready."""
    routers = _routers(wanted.shared)
    if routers is None:
        return False
    found = [pod for pod in objects.pods_of(names.COMPONENT_ROUTER) if not pods.is_deleting(pod)]
    return len(found) == routers["spec"]["replicas"] and all(
        pods.is_ready(pod) and _template_of(pod) == _template_of(routers["spec"]["template"]) for pod in found
    )


def _template_of(pod: Object) -> str | None:
    template: str | None = (pod["metadata"].get("annotations") or {}).get(names.ANNOTATION_ROUTER_TEMPLATE)
    return template


def _routers(manifests: Iterable[Object]) -> Object | None:
    return next((one for one in manifests if one["kind"] == "Deployment" and _is_of_routers(one)), None)


def _is_of_routers(manifest: Object) -> bool:
    return bool(manifest["metadata"]["labels"][names.LABEL_COMPONENT] == names.COMPONENT_ROUTER)


def _is_upgrade(routers: Object, live: Object, pool: RewardPool) -> bool:
    """Return whether the live routers differ only because another operator renders them."""
    cause = (live["metadata"].get("annotations") or {}).get(names.ANNOTATION_CAUSE)
    if _template_of(live["spec"]["template"]) == _template_of(routers["spec"]["template"]):
        return False
    if cause is None:
        # Of an operator that did not note it: it had looked at this very spec, or the spec changed since.
        return pool.status.observed_generation == pool.metadata.generation
    return bool(cause == routers["metadata"]["annotations"][names.ANNOTATION_CAUSE])


def _is_one_of(left: set[str], manifest: Object) -> bool:
    return manifest["kind"] in ("Deployment", "ConfigMap") and manifest["metadata"]["name"] in left
