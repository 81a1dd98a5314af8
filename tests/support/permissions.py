"""What the operator may do: every resource and verb that `client.py`'s callers and the reflectors use, and no other.

The chart's role and the page of the operator have the same rules, and the operator's tests run it with exactly these.
Secrets are read by name only: the operator cannot list the secrets of a namespace.
"""

from typing import Final

from rewardpool_api import names

Rule = dict[str, list[str]]


def _rule(group: str, resource: str, *verbs: str) -> Rule:
    return {"apiGroups": [group], "resources": [resource], "verbs": list(verbs)}


RULES: Final[tuple[Rule, ...]] = (
    _rule(names.GROUP, "rewardpools", "get", "list", "watch"),
    _rule(names.GROUP, "rewardpools/status", "patch"),
    # Where the admission plugin OwnerReferencesPermissionEnforcement is on, `blockOwnerDeletion` takes this.
    _rule(names.GROUP, "rewardpools/finalizers", "update"),
    # A server-side apply that makes an object takes `create` beside `patch`.
    _rule("apps", "deployments", "get", "list", "watch", "create", "patch", "delete"),
    _rule("", "services", "get", "list", "watch", "create", "patch"),
    # `delete` for mounted files that nothing mounts any more.
    _rule("", "configmaps", "get", "list", "watch", "create", "patch", "delete"),
    _rule("", "secrets", "get", "create", "patch"),
    # `delete` for a pool that wants none any more.
    _rule("policy", "poddisruptionbudgets", "get", "list", "watch", "create", "patch", "delete"),
    _rule("networking.k8s.io", "networkpolicies", "get", "list", "watch", "create", "patch", "delete"),
    # `delete` for a worker that has left while its ReplicaSet would choose another one.
    _rule("", "pods", "list", "watch", "patch", "delete"),
    # The readiness gate of routers.
    _rule("", "pods/status", "patch"),
    # What training jobs announce; `get` before one is taken to have lapsed, `delete` for what nobody renews any more.
    # The election's Lease is in `LEASE_RULES`.
    _rule("coordination.k8s.io", "leases", "get", "list", "watch", "delete"),
    # `list` for the reason why a pod does not even start its containers: a missing claim, path or Secret.
    # `patch` to count in an event that it was said again.
    _rule("events.k8s.io", "events", "list", "create", "patch"),
)
"""Rules of a ClusterRole, or of a Role in every served namespace."""

SANDBOX_RULES: Final[tuple[Rule, ...]] = (
    _rule("extensions.agents.x-k8s.io", "sandboxclaims", "list", "watch", "create", "delete"),
    _rule("extensions.agents.x-k8s.io", "sandboxtemplates", "get", "create"),
    _rule("extensions.agents.x-k8s.io", "sandboxwarmpools", "get", "create"),
)
"""Rules beside these where pools may have their workers as sandboxes."""

LEASE_RULES: Final[tuple[Rule, ...]] = (
    _rule("coordination.k8s.io", "leases", "create"),
    _rule("coordination.k8s.io", "leases", "get", "patch"),
)
"""Rules of a Role in the operator's own namespace; the second one for the Lease of its name only (see `leader.py`)."""
