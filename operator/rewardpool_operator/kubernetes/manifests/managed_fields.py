"""Ownership of an object's fields, where it was made by a creation and is changed by applies.

The API server keeps the fields of a creation and those of an apply apart, as of two owners. So a field that an apply
leaves out, such as one that a user took out of a `podTemplate`, would stay: the creation's owner, who is us as well,
still wants it. Before the first apply, what the creation owns is therefore handed to the apply.
"""

from collections.abc import Iterable

from rewardpool_api import names
from rewardpool_kube.client import Kube
from rewardpool_kube.resources import Object, Resource


def is_created_by_us(entries: Iterable[Object]) -> bool:
    """Return whether the object with these managed fields was made by our creation, and was not applied since."""
    operations = {
        entry.get("operation")
        for entry in entries
        if entry.get("manager") == names.FIELD_MANAGER and not entry.get("subresource")
    }
    return "Update" in operations and "Apply" not in operations


async def own_as_applied(kube: Kube, resource: Resource, namespace: str, name: str) -> None:
    """Turn the fields that we own by the object's creation into applied ones."""
    found = await kube.get(resource, namespace, name)
    entries = (found or {}).get("metadata", {}).get("managedFields") or []
    if found is None or not is_created_by_us(entries):
        return
    applied = [{**entry, "operation": "Apply"} if is_created_by_us([entry]) else entry for entry in entries]
    metadata = {"resourceVersion": found["metadata"]["resourceVersion"], "managedFields": applied}
    await kube.merge(resource, namespace, name, {"metadata": metadata})
