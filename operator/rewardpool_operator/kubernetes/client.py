"""The API server, as far as the operator needs it: a handful of calls on plain JSON objects.

kubernetes_asyncio brings credentials (kubeconfig with its plugins, or a pod's ServiceAccount) and transport. Its typed
models are not used: what is applied and compared is exactly what goes over the wire, and parsing thousands of pods
into objects costs more than everything else in a pass.

Every call, and what makes calls, raises KubeError where the API server refuses, KubeUnreachableError where it is away.
"""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from time import monotonic
from typing import Any, Final, Literal, Self, TypedDict, Unpack
from urllib.parse import quote

import aiohttp
import orjson
from kubernetes_asyncio import client as kubernetes_client

from rewardpool_api import names
from rewardpool_operator.kubernetes import api_server_time
from rewardpool_operator.kubernetes.configuration import proxy_of_environment
from rewardpool_operator.metrics import METRICS, Verb
from rewardpool_runtime.untrusted import printable

Object = dict[str, Any]
"""A Kubernetes object as JSON."""

TIMEOUT = aiohttp.ClientTimeout(total=10, sock_connect=3)
"""Seconds of one call; the API server answers in milliseconds or is in trouble."""

AWAY_SECONDS: Final = 3.0
"""For this long after a call that got no answer nobody needs to try."""

SILENCE_SECONDS: Final = 90.0
"""A watch that says nothing for this long may be dead: API servers send a bookmark about every minute, unless nothing
of the kind has ever changed. Going on from the same version costs one call."""

LONGEST_LINE: Final = 2**21
"""Bytes of an object in a watch, at most; etcd takes none of more than 1.5 MiB."""

NO_NAMES: Final = frozenset({"", ".", ".."})
"""What no object is called, and what would be another path."""

INVALID_ANSWER: Final = "InvalidAnswer"
"""Reason of a `KubeError` whose answer no API server gives."""
LONGEST_REASON: Final = 100
LONGEST_WORDS: Final = 300
"""Characters of a refusal that an error has, which end up in conditions and logs."""

PAGE: Final = 50
"""Objects of one page of a list: a list of thousands is never in memory as text, nor parsed in one go."""


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
EVENTS: Final = Resource("events.k8s.io", "v1", "events")


class KubeError(RuntimeError):
    """The API server refused a call.

    Attributes:
        status: HTTP status.
        reason: Kubernetes' one word for it, such as NotFound, Forbidden or Invalid.
        is_status: whether the answer was Kubernetes' own `Status` object.
        is_conflict: whether somebody else wrote or made the object meanwhile.
    """

    def __init__(self, call: str, *, status: int, reason: str, message: str, is_status: bool = True) -> None:
        self.status = status
        self.reason = reason
        self.is_status = is_status
        self.is_conflict = status == HTTPStatus.CONFLICT
        super().__init__(f"{call}: {message or reason or status}")

    @property
    def is_not_found(self) -> bool:
        """Whether there is no such object. A 404 without that word is somebody else's: of a path that a proxy lacks."""
        return (self.status, self.reason) == (404, "NotFound")


class KubeUnreachableError(RuntimeError):
    """The API server does not answer, not in time, or something in its place does: a proxy, a load balancer."""


class WatchSilentError(KubeUnreachableError):
    """A watch that was answered said nothing for a long time."""


@dataclass(frozen=True)
class Page:
    """A part of a list."""

    items: list[Object]
    version: str
    """Resource version of the whole list, from which a watch goes on."""
    next: str = ""
    """Token of the next page; empty on the last one."""


@dataclass(frozen=True)
class WatchEvent:
    """One line of a watch."""

    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]
    object: Object


class _Sent(TypedDict, total=False):
    """What a call sends beside its verb and path."""

    query: Mapping[str, str]
    body: Object
    content_type: str


class Kube:
    """An API server. Use as an async context manager."""

    def __init__(self, configuration: kubernetes_client.Configuration) -> None:
        self._configuration = configuration
        self._answered_at = float("-inf")
        """Monotonic time of the last answer."""
        self._unanswered_at: float | None = None
        """Monotonic time at which a call got no answer while no other got one; None after an answer."""

    async def __aenter__(self) -> Self:
        # A watch holds a connection for good, and there are seven for each namespace that is served by name.
        self._configuration.connection_pool_maxsize = 0
        self._configuration.proxy = self._configuration.proxy or proxy_of_environment(self._configuration.host)
        self._client = kubernetes_client.ApiClient(self._configuration)
        self._client.user_agent = names.FIELD_MANAGER
        # The library's session looks for a proxy and for a netrc file at every call, each in a thread: half of what a
        # call costs, and a netrc file that names the server makes every call an error.
        library = self._client.rest_client.pool_manager
        self._client.rest_client.pool_manager = aiohttp.ClientSession(
            connector=library.connector, read_bufsize=LONGEST_LINE
        )
        library.detach()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()

    def is_away(self) -> bool:
        """Whether the API server did not answer the last call, a moment ago. After that it is worth another try."""
        return self._unanswered_at is not None and monotonic() - self._unanswered_at < AWAY_SECONDS

    async def get(self, resource: Resource, namespace: str, name: str) -> Object | None:
        """The object, or None when there is none."""
        if name in NO_NAMES:
            return None
        try:
            return await self._object("get", resource.path(namespace, name))
        except KubeError as error:
            if error.is_not_found:
                return None
            raise

    async def list(self, resource: Resource, namespace: str, *, selector: str) -> list[Object]:
        """All objects with these labels."""
        return (await self._list(resource.path(namespace), {"labelSelector": selector})).items

    async def pages(self, resource: Resource, namespace: str, *, selector: str = "") -> AsyncIterator[Page]:
        """All objects with these labels, page by page; in all namespaces for the namespace "".

        Raises:
            KubeError: status 410 when the list took longer than the API server remembers; begin again.
        """
        query = {"limit": str(PAGE)} | ({"labelSelector": selector} if selector else {})
        token = ""
        while True:
            page = await self._list(resource.path(namespace), query | ({"continue": token} if token else {}))
            yield page
            token = page.next
            if not token:
                return

    async def watch(
        self, resource: Resource, namespace: str, *, version: str, seconds: int, selector: str = ""
    ) -> AsyncGenerator[WatchEvent, None]:
        """What changes after `version`, until the API server ends the watch after about `seconds`.

        Raises:
            KubeError: status 410 when the version is older than the API server remembers: list again.
            WatchSilentError: nothing was said for `SILENCE_SECONDS`.
            KubeUnreachableError: the connection broke.
        """
        query = {"watch": "true", "allowWatchBookmarks": "true", "resourceVersion": version}
        query |= {"timeoutSeconds": str(seconds)} | ({"labelSelector": selector} if selector else {})
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=3, sock_read=SILENCE_SECONDS)
        path = resource.path(namespace)
        async with self._request("watch", path, query=query, timeout=timeout) as response:
            if response.status != 200:
                self._answer_of(f"watch {path}", response.status, await response.read())
            async for line in response.content:
                yield watch_event(f"watch {path}", line)

    async def last_warning(self, namespace: str, uid: str) -> str | None:
        """The newest warning event about the object with this uid; None when there is none."""
        query = {"fieldSelector": f"regarding.uid={uid},type=Warning"}
        events = (await self._list(EVENTS.path(namespace), query)).items
        newest = max(events, key=_time_of, default=None)
        return None if newest is None else f"{newest.get('reason', '')}: {newest.get('note', '')}"

    async def apply(self, resource: Resource, manifest: Object, *, subresource: str = "") -> Object:
        """Server-side apply: make the object, or bring the manifest's fields to its values. Other fields are left."""
        metadata = manifest["metadata"]
        return await self._object(
            "patch",
            resource.path(metadata["namespace"], metadata["name"], subresource),
            body=manifest,
            content_type="application/apply-patch+yaml",
            # Fields that somebody else owns are ours where we render them. An unknown field of a user's podTemplate is
            # an error and not a warning that nobody reads.
            query={"fieldManager": names.FIELD_MANAGER, "force": "true", "fieldValidation": "Strict"},
        )

    async def create(self, resource: Resource, manifest: Object) -> Object:
        """Make the object; one of that name is an error with status 409.

        About half the work of a server-side apply. For the first apply after it see `managed_fields.py`.
        """
        # An unknown field of a user's podTemplate is an error and not a warning that nobody reads.
        query = {"fieldManager": names.FIELD_MANAGER, "fieldValidation": "Strict"}
        return await self._object(
            "create", resource.path(manifest["metadata"]["namespace"]), body=manifest, query=query
        )

    async def review(self, resource: Resource, manifest: Object) -> Object:
        """POST a review, which the API server answers and does not store, and return its status."""
        status = (await self._call("create", resource.path(""), body=manifest)).get("status")
        return status if isinstance(status, dict) else {}

    async def merge(
        self, resource: Resource, namespace: str, name: str, patch: Object, *, subresource: str = ""
    ) -> Object:
        """JSON merge patch: nulls delete, lists are replaced."""
        return await self._object(
            "patch",
            resource.path(namespace, name, subresource),
            body=patch,
            content_type="application/merge-patch+json",
            query={"fieldManager": names.FIELD_MANAGER},
        )

    async def delete(
        self, resource: Resource, namespace: str, name: str, *, version: str | None = None
    ) -> Object | None:
        """Delete the object in the background; one that is gone already is fine.

        With a version it is deleted in that version only; another one is an error with status 409.

        Returns:
            The object where it ends later (a pod with its grace period); None where it is gone.
        """
        options: Object = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        if version is not None:
            options["preconditions"] = {"resourceVersion": version}
        try:
            answer = await self._call("delete", resource.path(namespace, name), body=options)
        except KubeError as error:
            if not error.is_not_found:
                raise
            return None
        return None if answer.get("kind") == "Status" else answer

    async def serves(self, resource: Resource) -> bool:
        """Whether the API server knows the kind at all."""
        path = f"/apis/{resource.group}/{resource.version}"
        try:
            answer = await self._call("get", path)
        except KubeError as error:
            if error.status == 404:
                return False
            raise
        entries = answer.get("resources")
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise invalid_answer(f"get {path}", 200, "it has no list of resources")
        return any(entry.get("name") == resource.plural for entry in entries)

    async def _object(self, verb: Verb, path: str, **sent: Unpack[_Sent]) -> Object:
        """Make a call that is answered with an object, and return that."""
        return checked_object(f"{verb} {path}", await self._call(verb, path, **sent))

    async def _list(self, path: str, query: Mapping[str, str]) -> Page:
        return checked_page(f"list {path}", await self._call("list", path, query=query))

    async def _call(self, verb: Verb, path: str, **sent: Unpack[_Sent]) -> Object:
        with api_server_time.calling():
            async with self._request(verb, path, **sent) as response:
                return self._answer_of(f"{verb} {path}", response.status, await response.read())

    def _answer_of(self, call: str, status: int, raw: bytes) -> Object:
        """Return the answer's object.

        Raises:
            KubeError: the API server refuses.
            KubeUnreachableError: a load balancer says that there is no API server.
        """
        try:
            return answer_of(call, status, raw)
        except KubeError as error:
            if status not in _GATEWAYS or error.is_status:
                raise
            self._unanswered_at = monotonic()
            raise KubeUnreachableError(f"{error} ({status}, not by the API server)") from None

    @asynccontextmanager
    async def _request(
        self, verb: Verb, path: str, *, timeout: aiohttp.ClientTimeout = TIMEOUT, **sent: Unpack[_Sent]
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send one request; its response is read within the context.

        Raises:
            KubeUnreachableError: no answer, or one that broke off, or no credentials could be read to ask with.
        """
        status, sent_at = None, monotonic()
        headers = {**self._client.default_headers, "Accept": "application/json"}
        headers["Content-Type"] = sent.get("content_type", "application/json")
        parameters = list(sent.get("query", {}).items())
        try:
            await self._client.update_params_for_auth(headers, parameters, ["BearerToken"])
            # Not by `call_api`, which copies every body to find what is no JSON: half of what a call costs.
            response = await self._client.rest_client.request(
                _METHODS[verb],
                f"{self._configuration.host}{path}",
                query_params=parameters,
                headers=headers,
                body=sent.get("body"),
                _preload_content=False,
                _request_timeout=timeout,
            )
            async with response:
                status = response.status
                self._answered_at, self._unanswered_at = monotonic(), None
                yield response
        except (KubeError, KubeUnreachableError):
            raise
        # Whatever transport and credentials raise: no list of theirs would be complete, and what is missing in it would
        # end the loop of a caller. An asyncio.CancelledError is not an Exception.
        except Exception as error:
            # Where others were answered meanwhile, it is this one call that hangs.
            if status is None and self._answered_at < sent_at:
                self._unanswered_at = monotonic()
            if status == 200 and isinstance(error, TimeoutError) and verb == "watch":
                raise WatchSilentError(f"{verb} {path}: nothing was said for {SILENCE_SECONDS:g} s") from None
            words = "no answer in time" if isinstance(error, TimeoutError) else f"{type(error).__name__}: {error}"
            raise KubeUnreachableError(f"{verb} {path}: {words}") from None
        finally:
            METRICS.kube_request(verb, status)


_GATEWAYS: Final = frozenset({502, 503, 504})
"""What load balancers answer for an API server that is not there."""

_METHODS: Final[Mapping[Verb, str]] = {
    "get": "GET",
    "list": "GET",
    "watch": "GET",
    "create": "POST",
    "patch": "PATCH",
    "delete": "DELETE",
}


def _time_of(event: Object) -> str:
    series = event.get("series") or {}
    times = (series.get("lastObservedTime"), event.get("deprecatedLastTimestamp"), event.get("eventTime"))
    return next((time for time in times if time), "")


def _parsed(raw: bytes) -> Any:
    """Return the JSON that an API server wrote.

    orjson needs a third of the time, and may refuse what is JSON to `json`.

    Raises:
        ValueError: it is not JSON, or nested too deeply.
    """
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError:
        try:
            return json.loads(raw)
        except RecursionError:
            raise ValueError("it is nested too deeply") from None


# The one place where answers are read: whatever a server, or something in its place, may say becomes an object of the
# form that callers rely on, or one of the two errors above.


def answer_of(call: str, status: int, raw: bytes) -> Object:
    """Return the JSON object of an answer.

    Raises:
        KubeError: the call was refused, or the answer is not a JSON object.
    """
    try:
        answer = _parsed(raw)
    except ValueError:
        answer = None
    if status >= 400 or not isinstance(answer, dict):
        raise _refusal(call, status, answer, raw)
    return answer


def invalid_answer(call: str, status: int, problem: str) -> KubeError:
    """An answer that no API server gives."""
    return KubeError(
        call, status=status, reason=INVALID_ANSWER, message=f"not an API server's answer: {problem}", is_status=False
    )


def checked_object(call: str, answer: object) -> Object:
    """Return the answer as it is: an object with a name and a version, which callers rely on.

    Raises:
        KubeError: it is not one.
    """
    metadata = answer.get("metadata") if isinstance(answer, dict) else None
    if not isinstance(answer, dict) or not isinstance(metadata, dict):
        raise invalid_answer(call, 200, "it has no metadata")
    if not isinstance(metadata.get("name"), str) or not isinstance(metadata.get("namespace", ""), str):
        raise invalid_answer(call, 200, "its metadata has no name")
    _check_version(call, metadata)
    return answer


def checked_page(call: str, answer: Object) -> Page:
    """Return a part of a list.

    Raises:
        KubeError: it is not one.
    """
    items, metadata = answer.get("items"), answer.get("metadata")
    if not isinstance(items, list) or not isinstance(metadata, dict):
        raise invalid_answer(call, 200, "it has no items or no metadata")
    following = metadata.get("continue") or ""
    if not isinstance(following, str):
        raise invalid_answer(call, 200, "its metadata.continue is not a text")
    return Page(
        items=[checked_object(call, item) for item in items], version=_check_version(call, metadata), next=following
    )


def watch_event(call: str, line: bytes) -> WatchEvent:
    """Return what a line of a watch says.

    Raises:
        KubeError: it is an error's, or not an event.
        KubeUnreachableError: the line is not JSON, since it broke off.
    """
    try:
        event = _parsed(line)
    except ValueError:
        raise KubeUnreachableError(f"{call}: broke off within a line") from None
    kind, found = (event.get("type"), event.get("object")) if isinstance(event, dict) else (None, None)
    if kind == "ERROR":
        code = found.get("code") if isinstance(found, dict) else None
        raise _refusal(call, code if type(code) is int else 500, found, line)
    if kind == "BOOKMARK" and isinstance(found, dict) and isinstance(found.get("metadata"), dict):
        _check_version(call, found["metadata"])
        return WatchEvent("BOOKMARK", found)
    if kind not in ("ADDED", "MODIFIED", "DELETED"):
        raise invalid_answer(call, 200, "a line of it is not an event")
    return WatchEvent(kind, checked_object(call, found))


def _check_version(call: str, metadata: Object) -> str:
    version = metadata.get("resourceVersion")
    if not isinstance(version, str) or not (version.isascii() and version.isdecimal()):
        raise invalid_answer(call, 200, "its metadata has no resourceVersion")
    return version


def _refusal(call: str, status: int, said: object, raw: bytes) -> KubeError:
    """The error that an answer says, of which any field may be anything."""
    fields = said if isinstance(said, dict) else {}
    reason, message = fields.get("reason"), fields.get("message")
    return KubeError(
        call,
        status=status,
        reason=printable(reason, most=LONGEST_REASON) if isinstance(reason, str) else "",
        message=printable(message if isinstance(message, str) else raw.decode(errors="replace"), most=LONGEST_WORDS),
        is_status=fields.get("kind") == "Status",
    )
