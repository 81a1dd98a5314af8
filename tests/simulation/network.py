"""What carries calls: from an operator to the API server, to routers and to workers, and what goes wrong on the way.

In place of the HTTP client below `rewardpool_kube`, and of the session that asks routers and workers. Answers are
bytes, as they are on a wire: whatever the operator makes of odd ones, its own code does.
"""

import asyncio
import random
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from types import TracebackType
from typing import Any, Final, Protocol, Self
from urllib.parse import unquote, urlsplit

import aiohttp
import orjson
from simulation.api_server import ApiServer, Refused, Watch, status_body

from rewardpool_kube import client
from rewardpool_kube.client import Kube

API: Final = "http://api"

HTML: Final = b"<html><body><h1>Service Unavailable</h1></body></html>"
ODD_ANSWERS: Final[dict[str, tuple[int, bytes]]] = {
    "401": (401, status_body(401, "Unauthorized", "Unauthorized")),
    "403": (403, status_body(403, "Forbidden", "is forbidden: User cannot do that")),
    "404-text": (404, b"404 page not found\n"),
    "409": (409, status_body(409, "Conflict", "the object has been modified")),
    "410": (410, status_body(410, "Expired", "too old resource version")),
    "429": (429, status_body(429, "TooManyRequests", "please try again later")),
    "500": (500, status_body(500, "InternalError", "etcdserver: request timed out")),
    "503": (503, status_body(503, "ServiceUnavailable", "apiserver is shutting down")),
    "503-html": (503, HTML),
    "503-latin": (503, b"Dienst nicht verf\xfcgbar"),
    "200-html": (200, HTML),
    "200-empty-object": (200, b"{}"),
    "200-list": (200, b"[]"),
    "200-broken-json": (200, b'{"metadata": {"name": "'),
    "200-null": (200, b"null"),
    "200-nothing": (200, b""),
}
SILENCES: Final = ("hangs", "unreachable", "slow", "sluggish", "answer-lost", "half-answer")
API_FAULTS: Final = (*ODD_ANSWERS, *SILENCES)
LATENCIES: Final[dict[str | None, tuple[float, float]]] = {"slow": (1.5, 9.0), "sluggish": (1.6, 1.7)}
"""Seconds of a call; the second is slow for every call, and each of them in time."""
LATENCY: Final = (0.002, 0.02)


class Endpoint(Protocol):
    """A program that listens at an address."""

    def answer(self, method: str, path: str, headers: dict[str, str], body: Any) -> tuple[int, bytes]: ...


class Content:
    """The body of an answer, once or line by line."""

    def __init__(self, body: bytes = b"", watch: Watch | None = None) -> None:
        self.body, self.watch = body, watch

    async def iter_any(self) -> AsyncIterator[bytes]:
        yield self.body

    async def read(self, size: int = -1) -> bytes:
        return self.body if size < 0 else self.body[:size]

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if self.watch is None:
            for line in self.body.splitlines(keepends=True):
                yield line
            return
        try:
            while True:
                line = await self.watch.lines.get()
                if line is None:
                    return
                yield line
        finally:
            self.watch.end()


class Answer:
    """What an HTTP client returns."""

    def __init__(self, status: int, content: Content, *, broken: bool = False) -> None:
        self.status, self.content, self._broken = status, content, broken
        self.ended: Callable[[], None] = lambda: None
        """Is called when the connection goes back."""

    async def read(self) -> bytes:
        if self._broken:
            raise aiohttp.ClientPayloadError("Response payload is not completed")
        return self.content.body

    def raise_for_status(self) -> None:
        if self.status >= 400:
            raise aiohttp.ClientResponseError(None, (), status=self.status)  # type: ignore[arg-type]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """The connection goes back."""
        if self.content.watch is not None:
            self.content.watch.end()
        self.ended()


def unreachable(host: str) -> aiohttp.ClientConnectorError:
    class Key:
        ssl, is_ssl, port = None, False, 80

    Key.host = host  # type: ignore[attr-defined]
    return aiohttp.ClientConnectorError(Key, OSError(111, "Connection refused"))  # type: ignore[arg-type]


class Network:
    """All addresses, and the faults that there are now.

    Args:
        server: the API server.
        chance: of latencies and of which call a fault hits.
        note: writes the history.
    """

    def __init__(self, server: ApiServer, chance: random.Random, note: Callable[..., None]) -> None:
        self.server = server
        self.chance = chance
        self.endpoints: dict[str, Endpoint] = {}
        """By `host:port`."""
        self.silent: set[str] = set()
        """Hosts that swallow what is sent to them."""
        self.blocked_ports: set[int] = set()
        """Ports that a policy keeps operators from, at every host."""
        self.api_faults: list[ApiFault] = []
        self.partitions: set[tuple[str, str]] = set()
        """Of an operator from a host; the API server is `api`."""
        self.reached_by_routers: frozenset[str] | None = None
        """Workers' addresses, where a policy lets routers reach no other."""
        self.calls: Counter[str] = Counter()
        self.on_write: Callable[[str, str, str], None] = lambda *_: None
        """Hears which operator writes, before it does."""
        self.on_list_change: Callable[[str, str, Endpoint], None] = lambda *_: None
        """Hears which operator changes a router's list, before it does."""
        self.note = note

    def fault_of(self, operator: str, verb: str, path: str) -> str | None:
        for fault in self.api_faults:
            if fault.hits(operator, verb, path) and self.chance.random() < fault.share:
                return fault.kind
        return None


class ApiFault:
    """A span of time in which calls to the API server go wrong."""

    def __init__(
        self,
        kind: str,
        *,
        share: float = 1.0,
        operator: str | None = None,
        kinds: Iterable[str] = (),
        verbs: Iterable[str] = (),
    ) -> None:
        self.kind, self.share, self.operator = kind, share, operator
        self.kinds, self.verbs = tuple(kinds), tuple(verbs)

    def hits(self, operator: str, verb: str, path: str) -> bool:
        return (
            (self.operator is None or self.operator == operator)
            and (not self.kinds or any(f"/{kind}" in path for kind in self.kinds))
            and (not self.verbs or verb in self.verbs)
        )


class SimulatedClient:
    """In place of kubernetes_asyncio's ApiClient."""

    def __init__(self, network: Network, operator: str) -> None:
        self.rest_client = self
        self.default_headers: dict[str, str] = {}
        self.user_agent = ""
        self._network, self._operator = network, operator
        self._connections = asyncio.Semaphore(client.MOST_CONNECTIONS or sys.maxsize)

    async def update_params_for_auth(self, *_: Any) -> None:
        """It needs no credentials."""

    async def close(self) -> None:
        """There is nothing to close."""

    async def request(
        self,
        method: str,
        url: str,
        *,
        query_params: list[tuple[str, str]],
        headers: dict[str, str],
        body: Any,
        _preload_content: bool,
        _request_timeout: aiohttp.ClientTimeout,
    ) -> Answer:
        # A watch, which has no time in all, waits for a free connection for good.
        if self._connections.locked():
            async with asyncio.timeout(_request_timeout.total):
                await self._connections.acquire()
        else:
            await self._connections.acquire()
        try:
            answer = await self._answer(method, url, query_params, headers, body, _request_timeout)
        except BaseException:
            self._connections.release()
            raise
        answer.ended = self._connections.release
        return answer

    async def _answer(
        self,
        method: str,
        url: str,
        query_params: list[tuple[str, str]],
        headers: dict[str, str],
        body: Any,
        timeout: aiohttp.ClientTimeout,
    ) -> Answer:
        network, query = self._network, dict(query_params)
        path = unquote(url.removeprefix(API))
        watches = query.get("watch") == "true"
        verb = "watch" if watches else method
        network.calls[f"{self._operator} {verb}"] += 1
        kind = network.fault_of(self._operator, verb, path)
        longest = timeout.total or 3600.0
        if (self._operator, "api") in network.partitions:
            kind = "hangs"
        if kind == "hangs":
            await asyncio.sleep(min(longest, 15.0) if not watches else 10.0)
            raise TimeoutError
        if kind == "unreachable":
            raise unreachable("api")
        await asyncio.sleep(network.chance.uniform(*LATENCIES.get(kind, LATENCY)))
        if kind in ODD_ANSWERS:
            status, raw = ODD_ANSWERS[kind]
            return Answer(status, Content(raw))
        try:
            if watches:
                return Answer(200, Content(watch=self._watch(path, query)))
            if method != "GET":
                network.on_write(self._operator, method, path)
            copied = orjson.loads(orjson.dumps(body)) if body is not None else None
            raw = network.server.handle(method, path, query, copied, headers.get("Content-Type", ""))
        except Refused as refusal:
            network.note(self._operator, verb, path, refusal.code)
            return Answer(refusal.code, Content(refusal.body()))
        if method != "GET":
            network.note(self._operator, verb, path, kind or "")
        if kind == "answer-lost":
            return Answer(200, Content(), broken=True)
        if kind == "half-answer":
            return Answer(200, Content(raw[: len(raw) // 2]))
        return Answer(200, Content(raw))

    def _watch(self, path: str, query: dict[str, str]) -> Watch:
        watch = self._network.server.watch(path, query)
        asyncio.get_running_loop().call_later(float(query["timeoutSeconds"]), watch.end)
        return watch


def kube_of(network: Network, operator: str) -> Kube:
    """An operator's client, whose calls go over this network."""

    class Configuration:
        host = API

    kube = Kube(Configuration())  # type: ignore[arg-type]
    kube._client = SimulatedClient(network, operator)
    return kube


class Session:
    """In place of the aiohttp session by which an operator asks routers and workers."""

    def __init__(self, network: Network, operator: str) -> None:
        self._network, self._operator = network, operator

    def request(self, method: str, url: str, **options: Any) -> "Call":
        return Call(self._network, self._operator, method, url, options)

    def get(self, url: str, **options: Any) -> "Call":
        return self.request("GET", url, **options)


class Call:
    """A request in an `async with`."""

    def __init__(self, network: Network, operator: str, method: str, url: str, options: dict[str, Any]) -> None:
        self._network, self._operator, self._method, self._url, self._options = network, operator, method, url, options

    async def __aenter__(self) -> Answer:
        network, parts = self._network, urlsplit(self._url)
        timeout: aiohttp.ClientTimeout = self._options["timeout"]
        host = parts.hostname or ""
        network.calls[f"{self._operator} {self._method} {parts.netloc}"] += 1
        is_kept_off = host in network.silent or parts.port in network.blocked_ports
        if is_kept_off or (self._operator, host) in network.partitions:
            await asyncio.sleep(timeout.sock_connect or timeout.total or 5.0)
            raise aiohttp.ServerTimeoutError("connection timed out")
        await asyncio.sleep(network.chance.uniform(0.001, 0.005))
        endpoint = network.endpoints.get(parts.netloc)
        if endpoint is None:
            if any(key.startswith(f"{host}:") for key in network.endpoints):
                raise unreachable(host)
            await asyncio.sleep(timeout.sock_connect or timeout.total or 5.0)
            raise aiohttp.ServerTimeoutError("connection timed out")
        if self._method != "GET" and parts.path.startswith("/workers"):
            network.on_list_change(self._operator, self._method, endpoint)
        body = self._options.get("json")
        status, raw = endpoint.answer(self._method, parts.path, self._options.get("headers") or {}, body)
        return Answer(status, Content(raw))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """The connection goes back."""
