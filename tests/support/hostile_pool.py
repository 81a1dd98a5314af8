"""A pool whose surroundings say whatever a test wants: a fake API server, and one server for all routers and workers.

A pass over it is a real one: store, reconciler, router administration, decision, writes.
"""

import asyncio
import json
import logging
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from aiohttp import web
from aiohttp.test_utils import TestServer
from support.kube_builders import a_pool
from support.pool_surroundings import KEY, FakeKube

from rewardpool_api import RewardPoolStatus, names
from rewardpool_kube import resources
from rewardpool_kube.resources import Object, Resource
from rewardpool_operator.kubernetes.budgets import Budgets
from rewardpool_operator.kubernetes.cache.store import Store
from rewardpool_operator.kubernetes.leader import Acting
from rewardpool_operator.kubernetes.mounted_files import MountedFiles
from rewardpool_operator.kubernetes.pool_reconciler import PoolReconciler
from rewardpool_operator.kubernetes.shared import SharedParts
from rewardpool_operator.kubernetes.upgrade_slots import UpgradeSlots

MAX_NOTE_BYTES = 1024
"""Of an event, as the API server checks it."""


class WatchfulKube(FakeKube):
    """Takes nothing that an API server could not, and keeps events."""

    def __init__(self) -> None:
        super().__init__()
        self.warning: str | None = None
        """The last warning event of every pod."""
        self.events: list[Object] = []

    def keep(self, resource: Resource, manifest: Object) -> Object:
        json.dumps(manifest, allow_nan=False)
        return super().keep(resource, manifest)

    def is_away(self) -> bool:
        return False

    async def last_warning(self, namespace: str, uid: str) -> str | None:
        return self.warning

    async def delete(self, resource: Resource, namespace: str, name: str, *, version: str | None = None) -> None:
        await super().delete(resource, namespace, name)

    async def create(self, resource: Resource, manifest: Object) -> Object:
        if resource == resources.EVENTS:
            self.events.append(manifest)
        return await super().create(resource, manifest)


@dataclass(frozen=True)
class Answer:
    """What a router or a worker says to one request."""

    body: bytes = b"{}"
    status: int = 200
    content_type: str = "application/json"
    hangs_up: bool = False
    """It closes the connection without a word."""


class Talker:
    """One server in the place of all routers and workers; what it says to a path is up to the test."""

    def __init__(self) -> None:
        self.port = 0
        self.answers: Mapping[str, Answer] = {}
        """By the first word of the path."""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        said = self.answers.get(request.path.strip("/").split("/")[-1].split("?")[0], Answer(status=404))
        if said.hangs_up and request.transport is not None:
            request.transport.abort()
        return web.Response(body=said.body, status=said.status, headers={"Content-Type": said.content_type})


EMPTY_ROUTER: Mapping[str, Answer] = {
    "workers": Answer(body=b'{"workers": []}'),
    "metrics": Answer(body=b"smg_http_connections_active 0"),
}
"""Says of a router that all is well, and that it has no workers."""


class FailedPasses(logging.Handler):
    """What the log said of passes that failed by a defect."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.found.append(self.format(record))


@dataclass
class HostilePool:
    """The pool `rl/rm` with everything around it."""

    talker: Talker
    session: aiohttp.ClientSession
    kube: WatchfulKube = field(default_factory=WatchfulKube)
    store: Store = field(default_factory=Store)

    def put(self, resource: Resource, found: Object) -> None:
        """The API server has this, and its watch told so."""
        self.store.put(resource, self.kube.keep(resource, found))

    def put_pool(self, spec: Mapping[str, Any], **parts: Any) -> None:
        """The pool itself, as somebody wrote it."""
        manifest = json.loads(a_pool(**spec).model_dump_json(by_alias=True, exclude_none=True))
        manifest["metadata"] |= parts.pop("metadata", {})
        self.put(resources.POOLS, {**manifest, **parts})

    async def passes(self, count: int) -> None:
        """Passes of one operator; raises AssertionError when one of them failed by a defect."""
        shared = SharedParts(
            kube=self.kube,  # type: ignore[arg-type]
            session=self.session,
            store=self.store,
            files=MountedFiles(self.kube, self.store),  # type: ignore[arg-type]
            image="x:1",
            identity=None,
            poll_limit=asyncio.Semaphore(8),
            budgets=Budgets(self.store),
            upgrade_slots=UpgradeSlots(1),
        )
        failed, logger = FailedPasses(), logging.getLogger("rewardpool_operator")
        logger.addHandler(failed)
        logger.propagate = False  # a thousand passes over nonsense have a lot to say
        reconciler = PoolReconciler(shared, KEY, wake=lambda: None)
        try:
            for _ in range(count):
                assert await reconciler.reconcile(Acting.FULL, pools=1) is not None
        finally:
            reconciler.close()
            logger.removeHandler(failed)
            logger.propagate = True
        assert not failed.found, failed.found[0]

    def check(self) -> None:
        """That the API server would take what was written, and that it makes sense to a reader."""
        pool = self.store.pool(KEY)
        assert pool is not None
        status = RewardPoolStatus.model_validate(pool["status"])
        assert status.conditions
        for condition in status.conditions:
            assert re.fullmatch("[A-Z][A-Za-z]*", condition.reason), condition
            assert all(letter.isprintable() or letter in "\n\t" for letter in condition.message), condition
        for event in self.kube.events:
            assert 0 < len(event["reason"]) <= 128, event
            assert len(event["note"].encode()) <= MAX_NOTE_BYTES, event


@asynccontextmanager
async def hostile_pool() -> AsyncIterator[HostilePool]:
    """A pool that is not there yet, and whoever its pods are."""
    talker = Talker()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", talker.answer)
    async with TestServer(app) as server, aiohttp.ClientSession() as session:
        talker.port = server.port or 0
        yield HostilePool(talker, session)


def a_hostile_pod(name: str, component: str, *, port: int, revision: str) -> Object:
    """A pod of ours on this machine, as the API server has it before anybody said anything odd."""
    labels = {names.LABEL_POOL: KEY[1], names.LABEL_COMPONENT: component}
    if component == names.COMPONENT_WORKER:
        labels[names.LABEL_REVISION] = revision
    ports = [{"name": "http", "containerPort": port}, {"name": "metrics", "containerPort": port}]
    return {
        "metadata": {
            "name": name,
            "labels": labels,
            "ownerReferences": [{"kind": "ReplicaSet", "uid": "set"}],
        },
        "spec": {"nodeName": "node", "containers": [{"name": component, "ports": ports}]},
    }
