"""An API server: a handful of calls on plain JSON objects.

kubernetes_asyncio brings credentials (kubeconfig with its plugins, or a pod's ServiceAccount) and transport. Its typed
models are not used: what is applied and compared is exactly what goes over the wire, and parsing thousands of pods
into objects costs more than everything else in a pass of the operator.

Every call, and what makes calls, raises KubeError where the API server refuses, KubeUnreachableError where it is away.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from time import monotonic
from typing import Final, Self, TypedDict, Unpack

import aiohttp
from kubernetes_asyncio import client as kubernetes_client

from rewardpool_api import names
from rewardpool_kube import api_server_time
from rewardpool_kube.answers import (
    Page,
    WatchEvent,
    answer_of,
    checked_object,
    checked_page,
    invalid_answer,
    watch_event,
)
from rewardpool_kube.configuration import Configuration, proxy_of_environment
from rewardpool_kube.errors import KubeError, KubeUnreachableError, WatchSilentError
from rewardpool_kube.events import last_seen, summary
from rewardpool_kube.resources import EVENTS, PODS, Object, Resource, Verb
from rewardpool_runtime.bounded import read_text

TIMEOUT = aiohttp.ClientTimeout(total=10, sock_connect=3)

AWAY_SECONDS: Final = 3.0

# A watch that says nothing for this long may be dead: API servers send a bookmark about every minute, unless nothing of
# the kind has ever changed. Going on from the same version costs one call.
SILENCE_SECONDS: Final = 90.0

LONGEST_LINE: Final = 2**21  # bytes; etcd takes no object of more than 1.5 MiB

LONGEST_LOG_LINE: Final = 2**18  # bytes; a longer one comes in parts

LONGEST_TEXT: Final = 2**24  # bytes; the metrics of a router that saw many workers are some

# No object has these names, and a path with one of them would be another path.
NO_NAMES: Final = frozenset({"", ".", ".."})

# No bound: a watch holds one for good, and there are eight for each namespace that is served by name.
MOST_CONNECTIONS: Final = 0

PAGE: Final = 50  # a list of thousands is never in memory as text, nor parsed in one go


class _Sent(TypedDict, total=False):
    query: Mapping[str, str]
    body: Object | Sequence[Object]
    content_type: str


class Kube:
    """An API server. Use as an async context manager.

    Args:
        field_manager: who writes, in managedFields and as the user agent.
        on_request: is called after each request with its verb and HTTP status, None where no answer came.
    """

    def __init__(
        self,
        configuration: Configuration,
        *,
        field_manager: str = names.FIELD_MANAGER,
        on_request: Callable[[Verb, int | None], None] = lambda _verb, _status: None,
    ) -> None:
        self._configuration = configuration
        self._field_manager = field_manager
        self._on_request = on_request
        self._answered_at = float("-inf")
        self._unanswered_at: float | None = None
        """Monotonic time at which a call got no answer while no other got one; None after an answer."""

    async def __aenter__(self) -> Self:
        self._configuration.connection_pool_maxsize = MOST_CONNECTIONS
        self._configuration.proxy = self._configuration.proxy or proxy_of_environment(self._configuration.host)
        self._client = kubernetes_client.ApiClient(self._configuration)
        self._client.user_agent = self._field_manager
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

    @property
    def server(self) -> str:
        return str(self._configuration.host)

    def is_away(self) -> bool:
        """Return whether the API server did not answer the last call, a moment ago; later it is worth another try."""
        return self._unanswered_at is not None and monotonic() - self._unanswered_at < AWAY_SECONDS

    async def get(self, resource: Resource, namespace: str, name: str) -> Object | None:
        if name in NO_NAMES:
            return None
        try:
            return await self._object("get", resource.path(namespace, name))
        except KubeError as error:
            if error.is_not_found:
                return None
            raise

    async def list(
        self, resource: Resource, namespace: str, *, selector: str = "", fields: str = "", limit: int | None = None
    ) -> list[Object]:
        """Return the objects with these labels and fields, or the first `limit` of them."""
        query = {"labelSelector": selector, "fieldSelector": fields, "limit": "" if limit is None else str(limit)}
        given = {name: value for name, value in query.items() if value}
        return (await self._list(resource.path(namespace), given)).items

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
        """Yield the changes after `version`, until the API server ends the watch after about `seconds`.

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
            await self._check(f"watch {path}", response)
            async for line in response.content:
                yield watch_event(f"watch {path}", line)

    async def last_warning(self, namespace: str, uid: str) -> str | None:
        """The newest warning event about the object with this uid; None when there is none."""
        events = await self.list(EVENTS, namespace, fields=f"regarding.uid={uid},type=Warning")
        newest = max(events, key=last_seen, default=None)
        return None if newest is None else summary(newest)

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
            query={"fieldManager": self._field_manager, "force": "true", "fieldValidation": "Strict"},
        )

    async def create(self, resource: Resource, manifest: Object) -> Object:
        """Make the object, for half the work of an apply; one of that name is an error with status 409."""
        # An unknown field of a user's podTemplate is an error and not a warning that nobody reads.
        query = {"fieldManager": self._field_manager, "fieldValidation": "Strict"}
        return await self._object(
            "create", resource.path(manifest["metadata"]["namespace"]), body=manifest, query=query
        )

    async def review(self, resource: Resource, manifest: Object) -> Object:
        """POST a review, which the API server answers and does not store, and return its status."""
        status = (await self._call("create", resource.path(""), body=manifest)).get("status")
        return status if isinstance(status, dict) else {}

    async def merge(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        patch: Object,
        *,
        subresource: str = "",
        is_strict: bool = False,
    ) -> Object:
        """Apply a JSON merge patch: nulls delete, lists are replaced. A strict one with an unknown field is refused."""
        return await self._object(
            "patch",
            resource.path(namespace, name, subresource),
            body=patch,
            content_type="application/merge-patch+json",
            query={"fieldManager": self._field_manager} | ({"fieldValidation": "Strict"} if is_strict else {}),
        )

    async def edit(self, resource: Resource, namespace: str, name: str, operations: Sequence[Object]) -> Object:
        """Apply a JSON patch, a list of operations; one with an unknown field is refused."""
        return await self._object(
            "patch",
            resource.path(namespace, name),
            body=operations,
            content_type="application/json-patch+json",
            query={"fieldManager": self._field_manager, "fieldValidation": "Strict"},
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

    async def log_lines(
        self, namespace: str, pod: str, *, query: Mapping[str, str], follows: bool
    ) -> AsyncIterator[str]:
        """Return the lines of a container's log; `query` as in the API of pods/log.

        Raises:
            KubeError: there is no such log.
            KubeUnreachableError: it broke off.
        """
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=3, sock_read=None if follows else 30)
        path = PODS.path(namespace, pod, "log")
        async with self._request("get", path, query=query, timeout=timeout) as response:
            await self._check(f"get {path}", response)
            rest = b""
            async for chunk in response.content.iter_any():
                *lines, rest = (rest + chunk).split(b"\n")
                if len(rest) > LONGEST_LOG_LINE:
                    lines, rest = [*lines, rest], b""
                for line in lines:
                    yield line.decode(errors="replace")
            if rest:
                yield rest.decode(errors="replace")

    async def text(self, path: str) -> str:
        """Return what a GET answers, as text of at most `LONGEST_TEXT` bytes."""
        async with self._request("get", path) as response:
            await self._check(f"get {path}", response)
            return await read_text(response, limit_bytes=LONGEST_TEXT)

    async def _object(self, verb: Verb, path: str, **sent: Unpack[_Sent]) -> Object:
        return checked_object(f"{verb} {path}", await self._call(verb, path, **sent))

    async def _list(self, path: str, query: Mapping[str, str]) -> Page:
        return checked_page(f"list {path}", await self._call("list", path, query=query))

    async def _call(self, verb: Verb, path: str, **sent: Unpack[_Sent]) -> Object:
        with api_server_time.calling():
            async with self._request(verb, path, **sent) as response:
                return self._answer_of(f"{verb} {path}", response.status, await response.read())

    async def _check(self, call: str, response: aiohttp.ClientResponse) -> None:
        """Raise what a refusal says, of an answer that is not an object when all is well."""
        if response.status != 200:
            said = await read_text(response, limit_bytes=LONGEST_TEXT)
            self._answer_of(call, response.status, said.encode())
            raise invalid_answer(call, response.status, "its status is not 200")

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
            self._on_request(verb, status)


_GATEWAYS: Final = frozenset({502, 503, 504})

_METHODS: Final[Mapping[Verb, str]] = {
    "get": "GET",
    "list": "GET",
    "watch": "GET",
    "create": "POST",
    "patch": "PATCH",
    "delete": "DELETE",
}
