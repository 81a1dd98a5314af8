"""Changing a Secret of keys, by a patch of exactly the version that was looked at.

Two things differ from other objects. An entry that ends has to go whoever wrote it: a `next-key` that a person put
there would stay by the rules of apply, and be taken for another rotation later. And what a person writes meanwhile must
not be overwritten unseen: a key edited by hand is a request.
"""

from typing import Final

from rewardpool_api import names
from rewardpool_kube import resources
from rewardpool_kube.client import Kube
from rewardpool_kube.errors import KubeError
from rewardpool_kube.resources import Object
from rewardpool_operator.kubernetes.credentials.keys import ANNOTATION_STEP_SINCE

ENTRIES: Final = (names.NEXT_KEY, names.PREVIOUS_KEY)
ANNOTATIONS: Final = (names.ANNOTATION_ROTATE_KEY, ANNOTATION_STEP_SINCE)


def has_surplus(manifest: Object, live: Object) -> bool:
    """Return whether the live Secret has an entry or annotation of ours that it shall not have any more."""
    entries, annotations = _surplus(manifest, live)
    return bool(entries or annotations)


async def change_secret(kube: Kube, manifest: Object, live: Object) -> Object:
    """Change the Secret to be as the manifest says; return what it is now, also where it was changed meanwhile."""
    metadata = manifest["metadata"]
    entries, annotations = _surplus(manifest, live)
    patch: Object = {
        "metadata": {
            "resourceVersion": live["metadata"]["resourceVersion"],
            "labels": metadata["labels"],
            "ownerReferences": metadata["ownerReferences"],
            "annotations": {**metadata.get("annotations", {}), **dict.fromkeys(annotations)},
        },
        "data": {**manifest["data"], **dict.fromkeys(entries)},
    }
    try:
        return await kube.merge(resources.SECRETS, metadata["namespace"], metadata["name"], patch)
    except KubeError as error:
        if not error.is_conflict:
            raise
    return await kube.get(resources.SECRETS, metadata["namespace"], metadata["name"]) or live


def _surplus(manifest: Object, live: Object) -> tuple[list[str], list[str]]:
    data, annotations = live.get("data") or {}, live["metadata"].get("annotations") or {}
    wanted = manifest["metadata"].get("annotations", {})
    return (
        [name for name in ENTRIES if name in data and name not in manifest["data"]],
        [name for name in ANNOTATIONS if name in annotations and name not in wanted],
    )
