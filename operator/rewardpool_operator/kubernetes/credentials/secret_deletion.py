"""Detection of a deleted Secret without the right to list or watch Secrets.

Whoever may list or watch Secrets may read all of them, so the operator only reads its own, by name. Reading two
thousand of them every few seconds would be most of what an idle operator does. Instead one of the pool's other objects,
its Service, which is watched, names the Secrets among its owners. When one of them is deleted, Kubernetes'
garbage collector takes the reference away at once (the object stays, since the pool owns it too), the watch tells of
that change, and the Secret is read, found missing and put back.
"""

from collections.abc import Iterable

from rewardpool_kube.resources import Object


def with_secret_owners(manifest: Object, secrets: Iterable[Object]) -> Object:
    """The manifest with the Secrets among its owners, none of which controls it or blocks its deletion."""
    owners = [
        {"apiVersion": "v1", "kind": "Secret", "name": item["metadata"]["name"], "uid": item["metadata"]["uid"]}
        for item in sorted(secrets, key=lambda item: str(item["metadata"]["name"]))
    ]
    metadata = manifest["metadata"]
    return {**manifest, "metadata": {**metadata, "ownerReferences": [*metadata["ownerReferences"], *owners]}}


def shows_a_deletion(service: Object | None, secrets: Iterable[Object]) -> bool:
    """Return whether a Secret we know may be gone: the Service does not name it, or is itself gone."""
    owners = (service or {}).get("metadata", {}).get("ownerReferences") or []
    named = {owner["uid"] for owner in owners}
    return any(item["metadata"]["uid"] not in named for item in secrets)
