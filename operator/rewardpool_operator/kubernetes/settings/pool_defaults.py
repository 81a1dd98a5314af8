"""Defaults of the pods of all pools, as whoever installs the operator sets them: the chart's value `poolDefaults`.

They are a setting of the operator, as its image is, and no part of any pool: what a pool says itself wins, and a
changed default is to a pool as an upgraded operator is. Workers keep what they were made with until the pool asks for
new ones (`revisions.py`), routers are replaced in some pools at a time. Pools on one machine have none of them.
"""

import json
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, ValidationError

from rewardpool_api import names
from rewardpool_api.rules import ApiModel
from rewardpool_api.worker import LabelValue, ResourceRequirements
from rewardpool_kube.resources import Object

Name = Annotated[str, Field(max_length=253, pattern=r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$")]


class LocalReference(ApiModel):
    """A Secret of the pool's namespace."""

    name: Name


class Toleration(ApiModel):
    """As in a Pod."""

    key: Annotated[str, Field(max_length=317)] | None = None
    operator: Literal["Exists", "Equal"] | None = None
    value: LabelValue | None = None
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    toleration_seconds: int | None = None


class PodDefaults(ApiModel):
    """Defaults of one kind of pods."""

    node_selector: dict[str, LabelValue] = {}
    tolerations: tuple[Toleration, ...] = ()
    priority_class_name: Name | None = None
    security_context: dict[str, Any] = {}
    """Security context of the pod, not of a container."""
    resources: ResourceRequirements = ResourceRequirements()
    """Resources of the container `worker`, `router` or `gateway`; a worker's downloads may use as much."""


class RouterDefaults(PodDefaults):
    """Defaults of routers."""

    replicas: Annotated[int, Field(ge=1, le=16)] = 1


class PoolDefaults(ApiModel):
    """Defaults of the pods of every pool."""

    image_registry: Annotated[str, Field(pattern=r"^[a-z0-9]([A-Za-z0-9./:_-]*[A-Za-z0-9])?$")] | None = None
    """Prefix of the names of the engines' stock images: a mirror of the registry that they are in."""
    image_pull_secrets: tuple[LocalReference, ...] = ()
    worker: PodDefaults = PodDefaults()
    router: RouterDefaults = RouterDefaults()
    gateway: PodDefaults = PodDefaults()
    """Defaults of gateways; what it leaves out of where pods go is the routers'."""

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> Self:
        """Return the defaults in the operator's environment; empty where it has none.

        Raises:
            ValueError: they make no sense; the text names each field by its path.
        """
        text = environ.get(names.ENV_POOL_DEFAULTS)
        if not text:
            return cls()
        try:
            return cls.model_validate(json.loads(text))
        except ValidationError as error:
            found = [(".".join(map(str, one["loc"])), one["msg"]) for one in error.errors(include_url=False)]
            problems = "; ".join(f"{path}: {message}" if path else message for path, message in found)
        except ValueError as error:
            problems = f"not JSON: {error}"
        raise ValueError(f"{names.ENV_POOL_DEFAULTS} (the chart's poolDefaults): {problems}")

    def stock_image(self, image: str) -> str:
        """Return the image's name at the mirror of the engines' stock images."""
        return f"{self.image_registry}/{image}" if self.image_registry else image

    def pod_spec(self, component: PodDefaults) -> Object:
        """Return the defaults that are merged into the rendered pod's spec."""
        secrets = [_written(secret) for secret in self.image_pull_secrets]
        tolerations = [_written(toleration) for toleration in component.tolerations]
        found: Object = {
            "imagePullSecrets": secrets,
            "nodeSelector": dict(component.node_selector),
            "tolerations": tolerations,
            "priorityClassName": component.priority_class_name,
            "securityContext": component.security_context,
        }
        return {field: value for field, value in found.items() if value}


NO_DEFAULTS: Final = PoolDefaults()


def resources_over(base: Object, own: Object) -> Object:
    """Requests and limits of which `own` win: of a resource that they name in either, `base` says nothing."""
    named = {resource for amounts in own.values() for resource in amounts}
    # A default limit below a request of the pool's own would make no pod.
    kinds = {
        kind: {name: amount for name, amount in base.get(kind, {}).items() if name not in named} | own.get(kind, {})
        for kind in ("requests", "limits")
    }
    return {kind: amounts for kind, amounts in kinds.items() if amounts}


def resources_of(resources: ResourceRequirements) -> Object:
    """Requests and limits as in a pod."""
    found = {"requests": resources.requests, "limits": resources.limits}
    return {kind: {name: str(amount) for name, amount in amounts.items()} for kind, amounts in found.items() if amounts}


def _written(model: ApiModel) -> dict[str, Any]:
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)
