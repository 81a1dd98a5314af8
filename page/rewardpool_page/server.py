"""The page's HTTP server: its routes are read-only but for the session, for which a token is exchanged.

    GET    /                  the page, its script, style and icon; nothing of a pool is in them
    POST   /api/session       {"token": …} -> {"session": …}, which later requests have in X-RewardPool-Session
    DELETE /api/session       ends it
    GET    /api/pools         the pools once, as JSON; ?pool=NAMESPACE/NAME adds that one as a whole,
                              and &period=hour, day or week says of which time its history is
    GET    /api/events        the same as server-sent events, once a second where something changed
    GET    /api/manifest      ?pool=…: its manifest as YAML, without what may be secret
    GET    /api/logs          ?pool=…&name=…: the end of a log, as text

The session is no cookie: browsers send a host's cookies to each of its ports, where others may listen.

Bounded: watchers, logs, manifests and sign-ins at a time, and the sizes of bodies, logs and manifests. A watcher that
does not read is dropped.
"""

import asyncio
import json
import logging
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import Any, Final

from aiohttp import web

from rewardpool_page import manifest_text
from rewardpool_page.access import Failures, PageAccess, Sessions, Viewer
from rewardpool_page.history import History
from rewardpool_page.snapshots import PERIODS, SNAPSHOT_SECONDS, PageSnapshot, Period, PoolSnapshot, Snapshots
from rewardpool_page.source import NotShownError, PoolsSource
from rewardpool_runtime.http_server import LOOPBACK, host_name, is_of_another_page, read_body

log = logging.getLogger(__name__)

# The page keeps the secret of a session in the tab's own storage: of this address and port alone.
SESSION_HEADER: Final = "X-RewardPool-Session"
MAX_STREAMS: Final = 128
MAX_STREAMS_OF_ONE: Final = 8
MAX_READERS: Final = 4
MAX_BODY: Final = 16 << 10
SILENT_SECONDS: Final = 15.0
WRITE_SECONDS: Final = 10.0

_STATIC: Final = {
    "/": ("index.html", "text/html"),
    "/page.js": ("page.js", "text/javascript"),
    "/page.css": ("page.css", "text/css"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}
_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self';"
    " connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def page_app(source: PoolsSource, access: PageAccess, *, history: History | None = None) -> web.Application:
    """The server of one source; it looks at nothing before it is started."""
    return _Server(access, source, Snapshots(source, history=history)).app()


class _Server:
    def __init__(self, access: PageAccess, source: PoolsSource, snapshots: Snapshots) -> None:
        self._source = source
        self._access = access
        self._sessions = Sessions()
        self._failures = Failures()
        self._snapshots = snapshots
        self._streams: dict[asyncio.Task[Any], str] = {}
        self._readers = asyncio.Semaphore(MAX_READERS)
        self._judges = asyncio.Semaphore(MAX_READERS)

    def app(self) -> web.Application:
        app = web.Application(middlewares=[self._guard], client_max_size=MAX_BODY)
        folder = files("rewardpool_page") / "static"
        for path, (name, content_type) in _STATIC.items():
            app.router.add_get(path, _static((folder / name).read_bytes(), content_type))
        app.router.add_post("/api/session", self._sign_in)
        app.router.add_delete("/api/session", self._sign_out)
        app.router.add_get("/api/pools", self._pools)
        app.router.add_get("/api/events", self._events)
        app.router.add_get("/api/manifest", self._manifest)
        app.router.add_get("/api/logs", self._logs)
        app.cleanup_ctx.append(self._remembering)
        app.on_shutdown.append(self._end_streams)
        app.on_response_prepare.append(_add_headers)
        return app

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Refuse other names than the page's own, and requests that another site's page makes."""
        refusal = is_of_another_page(request, self._access.hosts, linked=request.path == "/")
        if refusal is not None:
            raise web.HTTPForbidden(text=f"{refusal}\n")
        try:
            return await handler(request)
        except OSError as error:
            log.warning("%s: %s", request.path, error)
            raise web.HTTPServiceUnavailable(text=f"the pools cannot be read: {error}\n") from None

    async def _sign_in(self, request: web.Request) -> web.Response:
        try:
            body = json.loads(await read_body(request))
        except (ValueError, RecursionError):
            raise web.HTTPBadRequest(text="the body is not JSON\n") from None
        token = body.get("token") if isinstance(body, dict) else None
        if not isinstance(token, str) or not token.isascii() or request.content_type != "application/json":
            raise web.HTTPBadRequest(text='post {"token": "…"} as application/json\n')
        viewer = await self._judged(request, token.strip())
        if viewer is None:
            return web.json_response({"error": "the token is not valid", "hint": self._access.hint}, status=401)
        return web.json_response({"where": self._source.where, "session": self._sessions.begin(viewer)})

    async def _judged(self, request: web.Request, token: str) -> Viewer | None:
        """Whose token it is.

        Raises:
            HTTPForbidden: it came over a network that anybody can listen to.
            HTTPTooManyRequests: too many were wrong.
        """
        if not _is_https(request) and host_name(request.host) not in LOOPBACK:
            answer = {"error": "a token is taken over HTTPS or a forwarded port only", "hint": self._access.hint}
            raise web.HTTPForbidden(text=json.dumps(answer), content_type="application/json")
        address = request.remote or ""
        async with self._judges:
            wait = math.ceil(self._failures.seconds_to_wait(address))
            if wait:
                answer = {"error": f"too many tokens were wrong; try again in {wait} s", "hint": self._access.hint}
                raise web.HTTPTooManyRequests(
                    text=json.dumps(answer), content_type="application/json", headers={"Retry-After": str(wait)}
                )
            viewer = await self._access.viewer(token)
            if viewer is None:
                self._failures.add(address)
            return viewer

    async def _sign_out(self, request: web.Request) -> web.Response:
        self._sessions.end(_secret_of(request))
        return web.json_response({"error": "signed out", "hint": self._access.hint})

    async def _pools(self, request: web.Request) -> web.Response:
        viewer = await self._viewer(request)
        snapshot = await self._snapshots.latest()
        shown = await self._shown_to(viewer, snapshot, request.query.get("pool"), _period_of(request))
        return web.json_response({**shown["pools"], "history": shown["history"], "at": snapshot.at})

    async def _events(self, request: web.Request) -> web.StreamResponse:
        user = (await self._viewer(request)).user
        _period_of(request)  # an odd one is refused before the answer begins
        if len(self._streams) >= MAX_STREAMS:
            raise web.HTTPServiceUnavailable(text=f"{MAX_STREAMS} browsers watch already\n")
        if list(self._streams.values()).count(user) >= MAX_STREAMS_OF_ONE:
            raise web.HTTPTooManyRequests(text=f"{MAX_STREAMS_OF_ONE} of your browsers watch already\n")
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("aiohttp handles every request in a task")
        self._streams[task] = user
        try:
            return await self._stream(request)
        finally:
            del self._streams[task]

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "X-Accel-Buffering": "no"})
        await response.prepare(request)
        try:
            async for events in self._news(request):
                async with asyncio.timeout(WRITE_SECONDS):
                    await response.write(events.encode())
        except (OSError, TimeoutError) as error:
            # The browser went away or does not read, or the pools cannot be read just now; it asks again by itself.
            log.debug("a stream ended: %s", error)
        return response

    async def _news(self, request: web.Request) -> AsyncIterator[str]:
        """News for this watcher, once a second at most, until its session ends."""
        chosen, period, silent = request.query.get("pool"), _period_of(request), 0.0
        said: dict[str, Any] = {}
        while (viewer := await self._find_viewer(request)) is not None:
            snapshot = await self._snapshots.latest()
            now = await self._shown_to(viewer, snapshot, chosen, period)
            events = [
                f"event: {kind}\ndata: {json.dumps({**data, 'at': snapshot.at})}\n\n"
                for kind, data in now.items()
                if data is not None and data != said.get(kind)
            ]
            said = now
            silent += SNAPSHOT_SECONDS
            if events or silent >= SILENT_SECONDS:
                silent = 0.0
                yield "".join(events) or ": nothing changed\n\n"
            await asyncio.sleep(SNAPSHOT_SECONDS)

    async def _manifest(self, request: web.Request) -> web.Response:
        viewer = await self._viewer(request)
        pool = request.query.get("pool", "")
        if await self._known_to(viewer, pool) is None:
            raise web.HTTPNotFound(text="there is no such pool\n")
        try:
            async with self._readers:
                text = await asyncio.to_thread(manifest_text.shown, await self._source.manifest(pool, viewer))
        except NotShownError as error:
            raise web.HTTPNotFound(text=f"{error}\n") from None
        return web.Response(text=text)

    async def _known_to(self, viewer: Viewer, pool: str) -> PoolSnapshot | None:
        known = (await self._snapshots.latest()).pools.get(pool)
        return known if known is not None and await viewer.may_see(known.namespace) else None

    async def _logs(self, request: web.Request) -> web.Response:
        viewer = await self._viewer(request)
        pool, name = request.query.get("pool", ""), request.query.get("name", "")
        known = await self._known_to(viewer, pool)
        if known is None or name not in known.detail["logs"]:
            raise web.HTTPNotFound(text="there is no such log\n")
        try:
            async with self._readers:
                text = await self._source.log(pool, name, viewer)
        except NotShownError as error:
            raise web.HTTPNotFound(text=f"{error}\n") from None
        return web.Response(text=text)

    async def _shown_to(
        self, viewer: Viewer, snapshot: PageSnapshot, chosen: str | None, period: Period
    ) -> dict[str, Any]:
        seen = await _seen_by(viewer, snapshot)
        pool = snapshot.pools.get(chosen or "")
        pool = pool if pool is not None and pool.namespace in seen else None
        detail = pool.detail if pool else None
        if pool and not await viewer.may_see_workers(pool.namespace):
            detail = {**pool.detail, "workers": [], "more_workers": 0, "logs": [], "workers_hidden": True}
        overview = {"where": self._source.where, "starts_by": self._source.starts_by, "signs_out": self._signs_out}
        return {
            "pools": {**overview, "pools": snapshot.listed(seen), "pool": detail},
            "history": pool.history(period) if pool else None,
        }

    @property
    def _signs_out(self) -> bool:
        """True if a browser may be somebody else's than the machine's own user."""
        return self._access.hosts is None

    async def _find_viewer(self, request: web.Request) -> Viewer | None:
        secret = _secret_of(request)
        viewer = self._sessions.find(secret)
        if viewer is not None and not await viewer.is_valid():
            self._sessions.end(secret)
            return None
        return viewer

    async def _viewer(self, request: web.Request) -> Viewer:
        viewer = await self._find_viewer(request)
        if viewer is None:
            answer = json.dumps({"error": "sign in first", "hint": self._access.hint})
            raise web.HTTPUnauthorized(text=answer, content_type="application/json")
        return viewer

    async def _remembering(self, _: web.Application) -> AsyncIterator[None]:
        async with _running(self._snapshots.remember()):
            yield

    async def _end_streams(self, _: web.Application) -> None:
        for task in self._streams:
            task.cancel()
        await asyncio.gather(*self._streams, return_exceptions=True)


async def _seen_by(viewer: Viewer, snapshot: PageSnapshot) -> frozenset[str]:
    namespaces = sorted({pool.namespace for pool in snapshot.pools.values()})
    allowed = await asyncio.gather(*(viewer.may_see(namespace) for namespace in namespaces))
    return frozenset(namespace for namespace, may_see in zip(namespaces, allowed, strict=True) if may_see)


def _period_of(request: web.Request) -> Period:
    """Return the time of which the history is asked.

    Raises:
        HTTPBadRequest: it is none of those.
    """
    asked = request.query.get("period", "hour")
    for period in PERIODS:
        if asked == period:
            return period
    raise web.HTTPBadRequest(text=f"period: one of {', '.join(PERIODS)}\n")


def _secret_of(request: web.Request) -> str:
    """Return the secret of the session that a request says it is of; aiohttp has surrogates for bytes of no UTF-8."""
    return request.headers.get(SESSION_HEADER, "").encode(errors="replace").decode()


def _is_https(request: web.Request) -> bool:
    """Return whether the browser speaks HTTPS, to this server or to the proxy before it."""
    return request.headers.get("X-Forwarded-Proto", request.scheme) == "https"


def _static(body: bytes, content_type: str) -> Handler:
    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(body=body, content_type=content_type, charset="utf-8")

    return answer


async def _add_headers(_: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(_HEADERS)


@asynccontextmanager
async def _running(work: Any) -> AsyncIterator[None]:
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
