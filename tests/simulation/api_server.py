"""An API server in memory: objects by kind, versions, patches, lists page by page, watches, owners and quotas.

It answers as Kubernetes does where the operator can tell the difference; no object is checked against a schema. What
goes wrong on the way to it and back is in `network.py`.
"""

import asyncio
import copy
import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from itertools import count
from typing import Any, Final

import orjson

from rewardpool_api import names
from rewardpool_api.times import rfc3339

Object = dict[str, Any]

KINDS: Final = {
    f"/apis/{names.GROUP}/{names.VERSION}/rewardpools": names.KIND,
    "/apis/apps/v1/deployments": "Deployment",
    "/api/v1/pods": "Pod",
    "/api/v1/services": "Service",
    "/api/v1/secrets": "Secret",
    "/api/v1/configmaps": "ConfigMap",
    "/apis/policy/v1/poddisruptionbudgets": "PodDisruptionBudget",
    "/apis/networking.k8s.io/v1/networkpolicies": "NetworkPolicy",
    "/apis/coordination.k8s.io/v1/leases": "Lease",
    "/apis/events.k8s.io/v1/events": "Event",
}
REMEMBERED: Final = 2000
"""Changes of a kind that a watch may go on from; an older version is 410 Gone."""
COLLECT_SECONDS: Final = (0.1, 4.0)
"""From an owner's end to that of what it owned."""
MOST_EVENTS: Final = 500
"""Objects of kind Event; the oldest go, as after their hour."""
MERGE_KEYS: Final = {
    "containers": "name",
    "env": "name",
    "volumes": "name",
    "volumeMounts": "mountPath",
    "ports": "containerPort",
    "conditions": "type",
    "ownerReferences": "uid",
    "readinessGates": "conditionType",
    "topologySpreadConstraints": "topologyKey",
}


class Refused(Exception):  # noqa: N818 - an answer, no fault
    """The server says no."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code, self.reason, self.message = code, reason, message

    def body(self) -> bytes:
        return status_body(self.code, self.reason, self.message)


class NoSuchPath(Refused):
    """What the server says of a path that it does not know, which is no object."""

    def body(self) -> bytes:
        return self.message.encode()


def status_body(code: int, reason: str, message: str) -> bytes:
    fields = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code}
    return orjson.dumps({**fields, "reason": reason, "message": message})


@dataclass(frozen=True)
class Change:
    """A line of a watch."""

    version: int
    type: str
    object: Object
    before: Object | None
    line: bytes


@dataclass
class Shelf:
    """The objects of one kind, what changed lately, and who waits for more."""

    kind: str
    objects: dict[tuple[str, str], Object] = field(default_factory=dict)
    changes: deque[Change] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    forgotten: int = 0
    """A watch cannot go on from a version below this."""
    watches: list["Watch"] = field(default_factory=list)


class Watch:
    """A stream of changes to one client; `lines` is read until None ends it."""

    def __init__(self, shelf: Shelf, namespace: str, chosen: Callable[[Object], bool]) -> None:
        self.lines: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.is_silent = False
        """Nothing that is put in comes out: neither changes nor bookmarks."""
        self._shelf, self._namespace, self._chosen = shelf, namespace, chosen

    @property
    def kind(self) -> str:
        return self._shelf.kind

    def offer(self, change: Change) -> None:
        if self.is_silent or self._namespace not in ("", change.object["metadata"]["namespace"]):
            return
        now = change.type != "DELETED" and self._chosen(change.object)
        before = change.before is not None and self._chosen(change.before)
        kind = {(True, True): "MODIFIED", (True, False): "ADDED", (False, True): "DELETED"}.get((now, before))
        if kind == change.type:
            self.lines.put_nowait(change.line)
        elif kind is not None:
            self.lines.put_nowait(_line(kind, change.object))

    def end(self) -> None:
        if self in self._shelf.watches:
            self._shelf.watches.remove(self)
        self.lines.put_nowait(None)


class ApiServer:
    """All of a cluster's objects.

    Args:
        now: what the calendar says.
        chance: of how soon the garbage collector comes.
    """

    def __init__(self, now: Callable[[], datetime], chance: random.Random) -> None:
        self._now, self._chance = now, chance
        self._version = 100
        self._uids = count(1)
        self._shelves = {kind: Shelf(kind) for kind in KINDS.values()}
        self._applied: dict[tuple[str, str, str], Object] = {}
        """Uid, operation and subresource -> the last manifest, by which fields of it go that the next one lacks."""
        self._lists: dict[str, tuple[int, list[Object]]] = {}
        self.admission: list[Callable[[str, Object], None]] = []
        """Each may raise `Refused` of an object that is to be made."""
        self.listeners: list[Callable[[str, str, Object], None]] = []
        """Controllers: hear type of change, kind and object, at once."""
        self.absent: set[str] = set()
        """Kinds whose CRD is deleted."""

    # What controllers, nodes and people do.

    def get(self, kind: str, namespace: str, name: str) -> Object | None:
        return self._shelves[kind].objects.get((namespace, name))

    def all(self, kind: str) -> list[Object]:
        return list(self._shelves[kind].objects.values())

    def selected(self, kind: str, **labels: str) -> Iterator[Object]:
        return (one for one in self.all(kind) if labels.items() <= (one["metadata"].get("labels") or {}).items())

    def create(self, kind: str, found: Object, *, manager: str = "somebody") -> Object:
        metadata = found["metadata"]
        shelf, key = self._shelves[kind], (metadata["namespace"], metadata["name"])
        if key in shelf.objects:
            raise Refused(409, "AlreadyExists", f'{kind} "{key[1]}" already exists')
        for admit in self.admission:
            admit(kind, found)
        made = copy.deepcopy(found)
        made["metadata"] |= {
            "uid": f"{next(self._uids):08x}-0000-4000-8000-000000000000",
            "creationTimestamp": rfc3339(self._now()),
        }
        if "spec" in made:
            made["metadata"]["generation"] = 1
        _default(kind, made)
        self._note_manager(made, manager, "Update", "", found)
        self._store(shelf, "ADDED", made, None)
        for owner in made["metadata"].get("ownerReferences") or ():
            if owner["kind"] == names.KIND:
                there = self.get(names.KIND, key[0], owner["name"])
                if there is None or there["metadata"]["uid"] != owner["uid"]:
                    self._collect_later(owner["uid"])
        if kind == "Event" and len(shelf.objects) > MOST_EVENTS:
            self._remove(shelf, next(iter(shelf.objects)))
        return made

    def patch(self, kind: str, namespace: str, name: str, patch: Object, *, subresource: str = "") -> Object:
        """JSON merge patch."""
        found = self._found(kind, namespace, name)
        version = (patch.get("metadata") or {}).get("resourceVersion")
        if version is not None and version != found["metadata"]["resourceVersion"]:
            raise Refused(409, "Conflict", f"the object has been modified: {name} is {_version(found)}, not {version}")
        wanted = _merged(found, patch)
        entries = (patch.get("metadata") or {}).get("managedFields")
        if entries and any(entry.get("operation") == "Apply" for entry in entries):
            # What was made is owned as applied from now on.
            uid = found["metadata"]["uid"]
            self._applied[uid, "Apply", ""] = self._applied.get((uid, "Update", ""), {})
        return self._replace(kind, found, wanted, subresource)

    def apply(self, kind: str, manifest: Object, *, manager: str, subresource: str = "") -> Object:
        """Server-side apply, with force."""
        metadata = manifest["metadata"]
        found = self.get(kind, metadata["namespace"], metadata["name"])
        if found is None:
            if subresource:
                raise Refused(404, "NotFound", f'{kind} "{metadata["name"]}" not found')
            made = self.create(kind, manifest, manager=manager)
            self._applied[made["metadata"]["uid"], "Apply", ""] = copy.deepcopy(manifest)
            return made
        version = metadata.get("resourceVersion")
        if version is not None and version != found["metadata"]["resourceVersion"]:
            raise Refused(409, "Conflict", f"the object has been modified: {metadata['name']}")
        key = found["metadata"]["uid"], "Apply", subresource
        wanted = _laid_over(_without(found, self._applied.get(key, {}), manifest), manifest)
        wanted["metadata"]["resourceVersion"] = found["metadata"]["resourceVersion"]
        self._applied[key] = copy.deepcopy(manifest)
        self._note_manager(wanted, manager, "Apply", subresource, None)
        return self._replace(kind, found, wanted, subresource)

    def update_status(self, kind: str, namespace: str, name: str, **fields: Any) -> None:
        """Fields of a status as they shall be, unless the object is gone."""
        found = self.get(kind, namespace, name)
        if found is not None:
            status = {**(found.get("status") or {}), **fields}
            self._replace(kind, found, {**found, "status": status}, "status")

    def delete(
        self, kind: str, namespace: str, name: str, *, version: str | None = None, at_once: bool = False
    ) -> Object | None:
        """Delete; a pod on a node ends later, by its node. Returns the object where it is still there."""
        found = self._found(kind, namespace, name)
        if version is not None and version != found["metadata"]["resourceVersion"]:
            raise Refused(409, "Conflict", f"Precondition failed: {name} was changed")
        metadata = found["metadata"]
        waits = bool(metadata.get("finalizers")) or (kind == "Pod" and bool(found["spec"].get("nodeName")))
        if waits and not at_once:
            if "deletionTimestamp" in metadata:
                return found
            grace = found["spec"].get("terminationGracePeriodSeconds", 30) if kind == "Pod" else None
            marks = {"deletionTimestamp": rfc3339(self._now()), "deletionGracePeriodSeconds": grace}
            return self._replace(kind, found, {**found, "metadata": {**metadata, **marks}}, "metadata")
        self._remove(self._shelves[kind], (namespace, name))
        return None

    def restore(self, backup: tuple[int, dict[str, dict[tuple[str, str], Object]]]) -> None:
        """Be as at that time again, versions included, as etcd from a backup; every watch breaks."""
        self._version, shelves = backup
        self.absent.clear()
        for kind, shelf in self._shelves.items():
            before, shelf.objects = shelf.objects, dict(shelves[kind])
            shelf.changes.clear()
            shelf.forgotten = self._version
            for key in before.keys() | shelf.objects.keys():
                self._tell("RESTORED", kind, shelf.objects.get(key) or before[key])
            for watch in list(shelf.watches):
                watch.end()

    def backup(self) -> tuple[int, dict[str, dict[tuple[str, str], Object]]]:
        """What `restore` takes."""
        return self._version, {kind: dict(shelf.objects) for kind, shelf in self._shelves.items()}

    def forget_history(self) -> None:
        """Compact: every watch from a version of now or earlier is too old."""
        for shelf in self._shelves.values():
            shelf.changes.clear()
            shelf.forgotten = self._version + 1
        self._version += 1

    def count_of_objects(self) -> dict[str, int]:
        return {kind: len(shelf.objects) for kind, shelf in self._shelves.items()}

    def watches(self) -> list[Watch]:
        return [watch for shelf in self._shelves.values() for watch in shelf.watches]

    def bookmark(self) -> None:
        """Tell every watch the present version."""
        for shelf in self._shelves.values():
            line = orjson.dumps(
                {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(self._version)}}},
            )
            for watch in shelf.watches:
                if not watch.is_silent:
                    watch.lines.put_nowait(line + b"\n")

    # What comes over HTTP.

    def handle(self, method: str, path: str, query: dict[str, str], body: Object | None, content_type: str) -> bytes:
        """Answer a request that is no watch.

        Raises:
            Refused: with the status.
        """
        kind, namespace, name, subresource = self._place(path)
        if method == "GET" and not name:
            return self._listed(kind, namespace, query)
        if method == "GET":
            return orjson.dumps(self._found(kind, namespace, name))
        if method == "POST":
            return orjson.dumps(self.create(kind, body or {}, manager=query.get("fieldManager", "")))
        if method == "PATCH" and "apply" in content_type:
            return orjson.dumps(self.apply(kind, body or {}, manager=query["fieldManager"], subresource=subresource))
        if method == "PATCH":
            return orjson.dumps(self.patch(kind, namespace, name, body or {}, subresource=subresource))
        if method == "DELETE":
            version = ((body or {}).get("preconditions") or {}).get("resourceVersion")
            left = self.delete(kind, namespace, name, version=version)
            return orjson.dumps(left or {"kind": "Status", "apiVersion": "v1", "status": "Success"})
        raise Refused(405, "MethodNotAllowed", method)

    def watch(self, path: str, query: dict[str, str]) -> Watch:
        """Begin a watch.

        Raises:
            Refused: 410 when the version is too old.
        """
        kind, namespace, _, _ = self._place(path)
        shelf, version = self._shelves[kind], int(query["resourceVersion"])
        if version < shelf.forgotten:
            raise Refused(410, "Expired", f"too old resource version: {version} ({shelf.forgotten})")
        watch = Watch(shelf, namespace, _selector(query.get("labelSelector", "")))
        for change in shelf.changes:
            if change.version > version:
                watch.offer(change)
        shelf.watches.append(watch)
        return watch

    def _place(self, path: str) -> tuple[str, str, str, str]:
        parts = path.strip("/").split("/")
        root, rest = (parts[:2], parts[2:]) if parts[0] == "api" else (parts[:3], parts[3:])
        namespace = ""
        if rest and rest[0] == "namespaces":
            namespace, rest = rest[1], rest[2:]
        kind = KINDS.get("/".join(["", *root, *rest[:1]]))
        if kind is None or kind in self.absent:
            raise NoSuchPath(404, "", "404 page not found\n")
        name, subresource = (*rest[1:3], "", "")[:2]
        return kind, namespace, name, subresource

    def _found(self, kind: str, namespace: str, name: str) -> Object:
        found = self.get(kind, namespace, name)
        if found is None:
            raise Refused(404, "NotFound", f'{kind} "{name}" not found')
        return found

    def _listed(self, kind: str, namespace: str, query: dict[str, str]) -> bytes:
        token = query.get("continue", "")
        if token:
            if token not in self._lists:
                raise Refused(410, "Expired", "The provided continue parameter is too old")
            version, items = self._lists.pop(token)
        else:
            chosen = _selector(query.get("labelSelector", ""))
            there = (one for (where, _), one in self._shelves[kind].objects.items() if namespace in ("", where))
            version, items = self._version, [one for one in there if chosen(one)]
            if "fieldSelector" in query:
                items = [one for one in items if _field_selected(one, query["fieldSelector"])]
        limit = int(query.get("limit", "0")) or len(items)
        metadata: Object = {"resourceVersion": str(version)}
        if len(items) > limit:
            following = metadata["continue"] = f"{version}-{next(self._uids)}"
            self._lists[following] = (version, items[limit:])
        return orjson.dumps({"kind": f"{kind}List", "metadata": metadata, "items": items[:limit]})

    def _note_manager(self, made: Object, manager: str, operation: str, subresource: str, manifest: Any) -> None:
        entry = {"manager": manager, "operation": operation, "time": rfc3339(self._now())}
        entry |= {"subresource": subresource} if subresource else {}
        metadata = made["metadata"]
        others = [
            one
            for one in metadata.get("managedFields") or []
            if (one["manager"], one["operation"], one.get("subresource", "")) != (manager, operation, subresource)
        ]
        made["metadata"] = {**metadata, "managedFields": [*others, entry]}
        if manifest is not None:
            self._applied[made["metadata"]["uid"], operation, subresource] = copy.deepcopy(manifest)

    def _replace(self, kind: str, found: Object, wanted: Object, subresource: str) -> Object:
        if subresource == "status":
            wanted = {**found, "status": wanted.get("status"), "metadata": {**wanted["metadata"]}}
            for name in ("labels", "annotations", "ownerReferences"):
                if name in found["metadata"]:
                    wanted["metadata"][name] = found["metadata"][name]
        elif subresource == "" and "status" in found:
            # Of these kinds a status is written by its subresource alone.
            wanted = {**wanted, "status": found["status"]}
        if _without_times(wanted) == _without_times(found) and kind != "Lease":
            return found
        metadata = {**wanted["metadata"], "uid": found["metadata"]["uid"]}
        if wanted.get("spec") != found.get("spec") and kind != "Lease":
            metadata["generation"] = metadata.get("generation", 1) + 1
        wanted = {**wanted, "metadata": metadata}
        self._store(self._shelves[kind], "MODIFIED", wanted, found)
        if "deletionTimestamp" in metadata and not metadata.get("finalizers") and kind != "Pod":
            self._remove(self._shelves[kind], (metadata["namespace"], metadata["name"]))
        return wanted

    def _store(self, shelf: Shelf, type_: str, found: Object, before: Object | None) -> None:
        self._version += 1
        found["metadata"]["resourceVersion"] = str(self._version)
        shelf.objects[found["metadata"]["namespace"], found["metadata"]["name"]] = found
        self._publish(shelf, type_, found, before)

    def _remove(self, shelf: Shelf, key: tuple[str, str]) -> None:
        found = shelf.objects.pop(key)
        self._version += 1
        metadata = {**found["metadata"], "resourceVersion": str(self._version)}
        self._publish(shelf, "DELETED", {**found, "metadata": metadata}, found)
        uid = metadata["uid"]
        for operation, subresource in (("Apply", ""), ("Update", ""), ("Apply", "status")):
            self._applied.pop((uid, operation, subresource), None)
        self._collect_later(uid)

    def _publish(self, shelf: Shelf, type_: str, found: Object, before: Object | None) -> None:
        if len(shelf.changes) == REMEMBERED:
            shelf.forgotten = shelf.changes[0].version
        change = Change(self._version, type_, found, before, _line(type_, found) if shelf.watches else b"")
        shelf.changes.append(
            change if change.line else Change(self._version, type_, found, before, _line(type_, found))
        )
        for watch in shelf.watches:
            watch.offer(shelf.changes[-1])
        self._tell(type_, shelf.kind, found)

    def _tell(self, type_: str, kind: str, found: Object) -> None:
        for listener in self.listeners:
            listener(type_, kind, found)

    def _collect_later(self, uid: str) -> None:
        asyncio.get_running_loop().call_later(self._chance.uniform(*COLLECT_SECONDS), self._collect, uid)

    def _collect(self, uid: str) -> None:
        """What had this owner loses it, and goes where it has no other that is there."""
        uids = {one["metadata"]["uid"] for shelf in self._shelves.values() for one in shelf.objects.values()}
        if uid in uids:
            return
        owned = [
            (shelf.kind, one)
            for shelf in self._shelves.values()
            for one in shelf.objects.values()
            if any(owner["uid"] == uid for owner in one["metadata"].get("ownerReferences") or ())
        ]
        for kind, one in owned:
            metadata = one["metadata"]
            others = [owner for owner in metadata["ownerReferences"] if owner["uid"] != uid]
            if any(owner["uid"] in uids for owner in others):
                self._replace(kind, one, {**one, "metadata": {**metadata, "ownerReferences": others}}, "metadata")
            else:
                self.delete(kind, metadata["namespace"], metadata["name"])


def _default(kind: str, made: Object) -> None:
    if kind == "Deployment":
        made["spec"].setdefault("replicas", 1)
    if kind == "Pod":
        made.setdefault("status", {"phase": "Pending"})


def _line(type_: str, found: Object) -> bytes:
    return orjson.dumps({"type": type_, "object": found}) + b"\n"


def _version(found: Object) -> str:
    return str(found["metadata"]["resourceVersion"])


def _without_times(found: Object) -> Object:
    kept = {
        name: value for name, value in found["metadata"].items() if name not in ("managedFields", "resourceVersion")
    }
    return {**found, "metadata": kept}


def _merged(found: Any, patch: Any) -> Any:
    if not isinstance(patch, dict) or not isinstance(found, dict):
        return {name: value for name, value in patch.items() if value is not None} if isinstance(patch, dict) else patch
    result = dict(found)
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = _merged(found.get(name, {}), value)
    return result


def _laid_over(found: Any, manifest: Any, name: str = "") -> Any:
    if isinstance(manifest, dict) and isinstance(found, dict):
        return {**found, **{key: _laid_over(found.get(key), value, key) for key, value in manifest.items()}}
    key = MERGE_KEYS.get(name)
    if key is None or not isinstance(manifest, list) or not isinstance(found, list):
        return manifest
    given = {item.get(key): item for item in manifest}
    kept = [_laid_over(item, given.pop(item.get(key))) if item.get(key) in given else item for item in found]
    return [*kept, *given.values()]


def _without(found: Any, before: Any, manifest: Any, name: str = "") -> Any:
    """What the last apply said and this one does not, left out."""
    if isinstance(found, dict) and isinstance(before, dict) and isinstance(manifest, dict):
        gone = before.keys() - manifest.keys()
        return {
            key: _without(value, before.get(key), manifest.get(key), key)
            for key, value in found.items()
            if key not in gone or (name == "" and key in ("status", "spec"))
        }
    key = MERGE_KEYS.get(name)
    if key is None or not all(isinstance(one, list) for one in (found, before, manifest)):
        return found
    gone = {item.get(key) for item in before} - {item.get(key) for item in manifest}
    return [item for item in found if item.get(key) not in gone]


def _selector(text: str) -> Callable[[Object], bool]:
    """Equality, presence and `in (…)`, joined by commas."""
    rest, wanted = text, {}
    while rest:
        head, sep, tail = rest.partition(" in (")
        if sep and "," not in head:
            inside, _, rest = tail.partition(")")
            wanted[head] = frozenset(inside.split(","))
        else:
            one, _, rest = rest.partition(",")
            key, equals, value = one.partition("=")
            wanted[key] = frozenset({value}) if equals else None
        rest = rest.lstrip(",")

    def chosen(found: Object) -> bool:
        labels = found["metadata"].get("labels") or {}
        return all(name in labels and (of is None or labels[name] in of) for name, of in wanted.items())

    return chosen


def _field_selected(event: Object, selector: str) -> bool:
    wanted = dict(part.split("=", 1) for part in selector.split(","))
    regarding = (event.get("regarding") or {}).get("uid")
    return regarding == wanted.get("regarding.uid") and event.get("type") == wanted.get("type", event.get("type"))


def conditions_with(conditions: Iterable[Object], **condition: Any) -> list[Object]:
    """The conditions with this one in place of that of its type."""
    return [*(one for one in conditions if one["type"] != condition["type"]), condition]
