"""A way to the API server that can be made slow, or made to refuse: an HTTPS proxy on a thread of this process.

    with proxy.broken(Rule(status=403, resources=frozenset({"secrets"}))):
        ...

It passes on the caller's own credentials, so it has no rights by itself, and whoever goes by it sees the real API
server whenever no rule holds. Watches that a rule is about are cut when it begins; what follows them meets the rule.
"""

import asyncio
import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import aiohttp
from aiohttp import web

from cluster.processes import free_port

_CONNECTION_HEADERS: Final = {"connection", "host", "keep-alive", "transfer-encoding", "content-length", "upgrade"}
"""Of one connection, and not to be passed on to the next one."""
_REASONS: Final = {403: "Forbidden", 429: "TooManyRequests", 500: "InternalError", 503: "ServiceUnavailable"}
_START_SECONDS: Final = 10.0


@dataclass(frozen=True, kw_only=True)
class Rule:
    """What befalls requests.

    Attributes:
        status: HTTP status that refuses them; None lets them pass.
        delay_seconds: For which each of them is held before that.
        page: Body of the answer, said to be HTML, in place of the API server's own words.
        resources: Plural names of the kinds that it is about, such as `secrets`; empty for all.
        ending: End of the paths that it is about, such as `/leases/rewardpool`; empty for all.
    """

    status: int | None = None
    delay_seconds: float = 0.0
    page: bytes | None = None
    resources: frozenset[str] = frozenset()
    ending: str = ""

    def is_about(self, path: str) -> bool:
        """Whether a request for that path meets it."""
        return path.endswith(self.ending) and (not self.resources or resource_of(path) in self.resources)

    def answer(self, path: str) -> web.Response | None:
        """What is said to a request for that path; None lets it pass."""
        if self.status is None:
            return None
        if self.page is None:
            return refusal(self.status, path)
        return web.Response(status=self.status, body=self.page, headers={"Content-Type": "text/html; charset=utf-8"})


def resource_of(path: str) -> str:
    """The plural name in the path of an API request, such as `secrets`; empty where it is none."""
    parts = path.strip("/").split("/")
    rest = {"api": parts[2:], "apis": parts[3:]}.get(parts[0], [])
    if rest[:1] == ["namespaces"] and len(rest) > 2:
        rest = rest[2:]
    return rest[0] if rest else ""


class FaultProxy:
    """Listens from its construction until `close`.

    Args:
        address: Where it listens, at a free port.
        certificate: That it shows, with its `key`; callers have to trust it for `address`.
        upstream: URL of the API server, whose certificate `trust` verifies.
    """

    def __init__(self, *, address: str, certificate: Path, key: Path, upstream: str, trust: Path) -> None:
        self.address = address
        self.port = free_port(address)
        self._upstream = upstream
        self._trust = ssl.create_default_context(cafile=str(trust))
        self._shown = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._shown.load_cert_chain(certificate, key)
        self._rules: list[Rule] = []
        self._open: dict[asyncio.Task[object], str] = {}
        self._loop = asyncio.new_event_loop()
        self._end = asyncio.Event()
        self._listening = threading.Event()
        self._thread = threading.Thread(target=self._run, name="fault-proxy", daemon=True)
        self._thread.start()
        if not self._listening.wait(_START_SECONDS):
            raise TimeoutError(f"the proxy to the API server did not listen within {_START_SECONDS:.0f} s")

    @contextmanager
    def broken(self, rule: Rule) -> Iterator[None]:
        """The rule holds for the duration of the context; where there are several, the first one that is met."""
        self._loop.call_soon_threadsafe(self._begin, rule)
        try:
            yield
        finally:
            self._loop.call_soon_threadsafe(self._rules.remove, rule)

    def close(self) -> None:
        """Stop listening, and cut what is open."""
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(_START_SECONDS)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())

    async def _serve(self) -> None:
        app = web.Application(client_max_size=2**24)
        app.router.add_route("*", "/{path:.*}", self._answer)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=5)
        connector = aiohttp.TCPConnector(ssl=self._trust, limit=0)
        async with aiohttp.ClientSession(timeout=timeout, connector=connector, auto_decompress=False) as self._session:
            await runner.setup()
            await web.TCPSite(runner, self.address, self.port, ssl_context=self._shown).start()
            self._listening.set()
            await self._end.wait()
            for task in list(self._open):
                task.cancel()
            await runner.cleanup()

    def _begin(self, rule: Rule) -> None:
        self._rules.append(rule)
        for task, path in list(self._open.items()):
            if rule.is_about(path):
                task.cancel()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        rule = next((rule for rule in self._rules if rule.is_about(request.path)), None)
        if rule is not None:
            await asyncio.sleep(rule.delay_seconds)
            if (said := rule.answer(request.path)) is not None:
                return said
        return await self._pass_on(request)

    async def _pass_on(self, request: web.Request) -> web.StreamResponse:
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _CONNECTION_HEADERS}
        task = asyncio.current_task()
        if task is not None and "watch" in request.query:
            self._open[task] = request.path
        try:
            body = await request.read()
            url = self._upstream + request.raw_path
            async with self._session.request(request.method, url, headers=headers, data=body or None) as answer:
                kept = {
                    name: value for name, value in answer.headers.items() if name.lower() not in _CONNECTION_HEADERS
                }
                passed = web.StreamResponse(status=answer.status, headers=kept)
                await passed.prepare(request)
                async for chunk in answer.content.iter_any():
                    await passed.write(chunk)
                await passed.write_eof()
                return passed
        except (aiohttp.ClientError, TimeoutError) as error:
            # As of an API server that is gone: the connection breaks, and nothing is answered.
            if request.transport is not None:
                request.transport.abort()
            raise asyncio.CancelledError from error
        finally:
            if task is not None:
                self._open.pop(task, None)


def refusal(status: int, path: str) -> web.Response:
    """What the API server says when it refuses."""
    reason = _REASONS.get(status, "Unknown")
    said = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "message": f"{path}: refused by a test",
        "reason": reason,
        "code": status,
    }
    headers = {"Retry-After": "1"} if status == 429 else {}
    return web.Response(status=status, headers=headers, body=json.dumps(said).encode(), content_type="application/json")
