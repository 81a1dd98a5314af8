"""The operator on Kubernetes: kopf's watches, each of which only wakes the loop of its pool.

All work is in `kubernetes/`. kopf brings lists, watches and reconnects; its own writes (finalizers, progress
annotations, events) are off, so a pool can always be deleted, also while the operator is away.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from time import monotonic
from typing import Any, Final, cast

import aiohttp
import kopf
from aiohttp import web
from kubernetes_asyncio.config import ConfigException

from rewardpool_api import names
from rewardpool_operator.kubernetes.client import (
    POOLS,
    Kube,
    KubeError,
    KubeUnreachableError,
    Object,
    kopf_credentials,
    load_configuration,
)
from rewardpool_operator.kubernetes.images import own_image
from rewardpool_operator.kubernetes.pool_loop import PoolLoop

log = logging.getLogger(__name__)

OWNED: Final = (("apps", "v1", "deployments"), ("", "v1", "pods"), ("", "v1", "services"), ("", "v1", "configmaps"))
"""Watched by label. Secrets are not among them: their names are known, and nobody should be able to list them."""

RUNNING: Final = "the operator runs"
"""First line of the log once the cluster answered."""

STUCK_SECONDS: Final = 120.0
"""A loop whose last pass is older is stuck; every wait in a pass has a deadline far below this."""


class Operator:
    """The loops of all pools, and what they share."""

    def __init__(self, kube: Kube, session: aiohttp.ClientSession, *, image: str) -> None:
        self._kube = kube
        self._session = session
        self._image = image
        self._loops: dict[tuple[str, str], tuple[PoolLoop, asyncio.Task[None]]] = {}

    def pool_changed(self, pool: Object, *, deleted: bool) -> None:
        """Start, wake or end the loop of this pool."""
        key = pool["metadata"]["namespace"], pool["metadata"]["name"]
        if deleted:
            self._end(key)
        elif key not in self._loops or self._loops[key][1].done():
            # A loop that ended saw the pool gone before its event came, or instead of it.
            loop = PoolLoop(self._kube, self._session, namespace=key[0], name=key[1], image=self._image)
            self._loops[key] = loop, asyncio.create_task(loop.run(), name="/".join(key))
        elif not self._loops[key][0].knows(pool):
            self._loops[key][0].wake()

    def owned_changed(self, namespace: str, pool: str) -> None:
        """Wake the loop of the pool that an object belongs to; objects of pools that are gone are none of ours."""
        if (namespace, pool) in self._loops:
            self._loops[namespace, pool][0].wake()

    def health(self) -> dict[str, Any]:
        """What /healthz answers; `ok` is false when a loop is stuck."""
        ages = [monotonic() - loop.passed_at for loop, task in self._loops.values() if not task.done()]
        oldest = max(ages, default=0.0)
        return {"ok": oldest < STUCK_SECONDS, "pools": len(ages), "oldest_pass_seconds": round(oldest, 1)}

    async def close(self) -> None:
        """End all loops; the pools go on serving."""
        tasks = [task for _, task in self._loops.values()]
        for key in list(self._loops):
            self._end(key)
        await asyncio.gather(*tasks, return_exceptions=True)

    def _end(self, key: tuple[str, str]) -> None:
        if key in self._loops:
            _, task = self._loops.pop(key)
            task.cancel()


def wiring(operator: Operator) -> kopf.OperatorRegistry:
    """The handlers, each of which only tells the operator what to look at."""
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    async def login(**_: Any) -> kopf.ConnectionInfo:
        return await kopf_credentials()

    @kopf.on.cleanup(registry=registry)
    async def stopping(**_: Any) -> None:
        # kopf waits 5 s for tasks that it did not start before it cancels them.
        await operator.close()

    @kopf.on.event(names.GROUP, names.VERSION, names.PLURAL, registry=registry)
    async def pool_event(event: Mapping[str, Any], **_: Any) -> None:
        operator.pool_changed(event["object"], deleted=event["type"] == "DELETED")

    for group, version, plural in OWNED:

        @kopf.on.event(group, version, plural, labels={names.LABEL_POOL: kopf.PRESENT}, registry=registry)
        async def owned_event(namespace: str | None, labels: Mapping[str, str], **_: Any) -> None:
            operator.owned_changed(namespace or "", labels[names.LABEL_POOL])

    return registry


def watch_settings() -> kopf.OperatorSettings:
    """Settings under which kopf writes nothing and never trusts a silent watch for long."""
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.peering.standalone = True
    # The CRD is there at the start (see `run`), and namespaces are served by name or all at once.
    settings.scanning.disabled = True
    # Seconds. A connection that was cut without a word otherwise looks like a quiet cluster for ever.
    settings.watching.server_timeout = 300
    settings.watching.client_timeout = 310
    settings.watching.connect_timeout = 30
    settings.watching.reconnect_backoff = 1
    settings.networking.connect_timeout = 10
    settings.networking.request_timeout = 30
    settings.process.ultimate_exiting_timeout = 30
    for group, version, plural in OWNED:
        settings.watching.label_selectors[group, version, plural] = names.LABEL_POOL
    return settings


async def serve(*, namespaces: Sequence[str] = (), health_port: int | None = None) -> None:
    """Run the operator until SIGTERM or SIGINT.

    Args:
        namespaces: namespaces to serve; none of them means all.
        health_port: port of /healthz on all addresses; None serves none.

    Raises:
        SystemExit: the cluster does not know RewardPools.
    """
    # Direct connections only: pods are never behind the proxy that the environment may name.
    async with Kube(await load_configuration()) as kube, aiohttp.ClientSession() as session:
        if not await kube.serves(POOLS):
            raise SystemExit(
                f"the CRD {names.PLURAL}.{names.GROUP} is not installed: kubectl apply --server-side -f it"
            )
        operator = Operator(kube, session, image=own_image())
        log.info("%s: %s", RUNNING, ", ".join(namespaces) or "all namespaces")
        runner = await _serve_health(operator, health_port) if health_port is not None else None
        try:
            await kopf.operator(
                registry=wiring(operator),
                settings=watch_settings(),
                standalone=True,
                # kopf would ask for the name of the user, and the bare user id of a container has none.
                identity=cast(Any, names.FIELD_MANAGER),
                clusterwide=not namespaces,
                namespaces=namespaces,
            )
        finally:
            if runner is not None:
                await runner.cleanup()


async def _serve_health(operator: Operator, port: int) -> web.AppRunner:
    async def healthz(_: web.Request) -> web.Response:
        health = operator.health()
        return web.json_response(health, status=200 if health["ok"] else 503)

    application = web.Application()
    application.router.add_get("/healthz", healthz)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, port=port).start()
    return runner


def run(*, namespaces: Sequence[str] = (), health_port: int | None = None, verbose: bool = False) -> None:
    """`rewardpool operator run`, in a pod or outside the cluster; see `serve`."""
    logging.basicConfig(
        level=logging.DEBUG if verbose else logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    logging.getLogger("kopf").setLevel(logging.WARNING)
    try:
        asyncio.run(serve(namespaces=namespaces, health_port=health_port))
    except (ConfigException, KubeError, KubeUnreachableError) as error:
        raise SystemExit(f"no cluster to work on: {error}") from None
