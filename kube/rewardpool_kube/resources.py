"""Kinds of objects, by their URLs."""

from dataclasses import dataclass
from typing import Any, Final, Literal
from urllib.parse import quote

from rewardpool_api import names

Object = dict[str, Any]

Verb = Literal["get", "list", "watch", "create", "patch", "delete"]


@dataclass(frozen=True)
class Resource:
    """A kind of object, by its URL."""

    group: str
    version: str
    plural: str

    def path(self, namespace: str, name: str = "", subresource: str = "") -> str:
        """URL path of the collection (in all namespaces for the namespace ""), an object, or a subresource."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        place = ("namespaces", quote(namespace, safe="")) if namespace else ()
        # Names come from specs too, where they may be any text; `name:port` is how a proxy is asked.
        parts = (root, *place, self.plural, quote(name, safe=":"), subresource)
        return "/".join(part for part in parts if part)


POOLS: Final = Resource(names.GROUP, names.VERSION, names.PLURAL)
DEPLOYMENTS: Final = Resource("apps", "v1", "deployments")
PODS: Final = Resource("", "v1", "pods")
SERVICES: Final = Resource("", "v1", "services")
SECRETS: Final = Resource("", "v1", "secrets")
CONFIG_MAPS: Final = Resource("", "v1", "configmaps")
DISRUPTION_BUDGETS: Final = Resource("policy", "v1", "poddisruptionbudgets")
NETWORK_POLICIES: Final = Resource("networking.k8s.io", "v1", "networkpolicies")
LEASES: Final = Resource("coordination.k8s.io", "v1", "leases")
SANDBOX_TEMPLATES: Final = Resource("extensions.agents.x-k8s.io", "v1beta1", "sandboxtemplates")
SANDBOX_WARM_POOLS: Final = Resource("extensions.agents.x-k8s.io", "v1beta1", "sandboxwarmpools")
SANDBOX_CLAIMS: Final = Resource("extensions.agents.x-k8s.io", "v1beta1", "sandboxclaims")
EVENTS: Final = Resource("events.k8s.io", "v1", "events")
