"""Comparison of a live object with its manifest, without a request to the API server.

An idle pool writes nothing, so each pass compares before it applies: the hash of the manifest
that was applied last (an annotation; it shows that a field was removed from the manifest), and every field of the
manifest in the live object (it shows that the object was edited). Fields that others added are left alone.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

from rewardpool_api import names
from rewardpool_kube.resources import Object
from rewardpool_operator.kubernetes.manifests.merge import MERGE_KEYS

ANNOTATION_MANIFEST: Final = f"{names.GROUP}/manifest"


def short_hash(value: Any) -> str:
    """Eight hexadecimal digits of the value's canonical JSON."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:8]


def content_hash(data: Mapping[str, str]) -> str:
    """Return a hash of a ConfigMap's entries for its name: 128 bits, against collisions on purpose."""
    return hashlib.sha256(json.dumps(dict(data), sort_keys=True).encode()).hexdigest()[:32]


def stamped(manifest: Object) -> Object:
    """The manifest with its own hash as an annotation; of one that was stamped and changed since, the new one's."""
    metadata = manifest["metadata"]
    others = {name: value for name, value in metadata.get("annotations", {}).items() if name != ANNOTATION_MANIFEST}
    bare = {name: value for name, value in metadata.items() if name != "annotations"}
    digest = short_hash({**manifest, "metadata": {**bare, **({"annotations": others} if others else {})}})
    return {**manifest, "metadata": {**bare, "annotations": {**others, ANNOTATION_MANIFEST: digest}}}


def differs(manifest: Object, live: Object) -> bool:
    """Return whether the live object, of the manifest's kind, lacks anything that the stamped manifest says."""
    # What a list gives back does not say its kind.
    return not _holds({name: value for name, value in manifest.items() if name not in ("apiVersion", "kind")}, live)


def _holds(wanted: Any, found: Any, field: str = "") -> bool:
    if isinstance(wanted, dict):
        # The API server leaves out what is empty.
        found = {} if found is None else found
        return isinstance(found, dict) and all(_holds(value, found.get(name), name) for name, value in wanted.items())
    if isinstance(wanted, list):
        found = [] if found is None else found
        return isinstance(found, list) and _holds_items(wanted, found, field)
    return bool(wanted == found) or (wanted in ("", 0, False) and found is None)


def _holds_items(wanted: list[Any], found: list[Any], field: str) -> bool:
    if len(wanted) > len(found):
        return False
    key = MERGE_KEYS.get(field)
    if key is None or not all(isinstance(item, dict) and key in item for item in [*wanted, *found]):
        return len(wanted) == len(found) and all(map(_holds, wanted, found))
    by_key = {item[key]: item for item in found}
    return all(_holds(item, by_key.get(item[key])) for item in wanted)
