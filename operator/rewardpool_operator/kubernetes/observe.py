"""What is there: a pool's objects from the API server, its routers' lists and figures, and what its workers say.

`read_objects` asks the API server; `Observer.snapshot` asks routers and workers, and puts both into the snapshot's
words. Routers are asked at every pass, the API server only when something changed or some seconds have passed. So
routers stay right while the API server is away, with the objects as they were last seen.
"""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import aiohttp

from rewardpool_api import RewardPool, names
from rewardpool_operator.kubernetes import client, pods, render
from rewardpool_operator.kubernetes.client import Kube, Object
from rewardpool_operator.kubernetes.render import Keys
from rewardpool_operator.probe import probe_score, read_in_flight
from rewardpool_operator.router_admin import RouterAdmin
from rewardpool_operator.snapshot import Router, Snapshot, Worker, WorkerSet
from rewardpool_operator.times import from_rfc3339

log = logging.getLogger(__name__)

MAX_EXPLAINED = 3
"""Pods that do not start whose events are read per pass; of a hundred, all have the same trouble."""


@dataclass(frozen=True, kw_only=True)
class Objects:
    """A pool and everything it owns, as the API server has it."""

    pool: Object
    deployments: tuple[Object, ...] = ()
    pods: tuple[Object, ...] = ()
    """Pods of the pool's Deployments that run or shall run; those that ended for good are left out."""
    services: tuple[Object, ...] = ()
    config_maps: tuple[Object, ...] = ()
    key_secret: Object | None = None
    admin_secret: Object | None = None
    trouble: Mapping[str, str] = field(default_factory=dict)
    """Pod name -> last warning event, for pods whose containers do not even start."""

    def deployment(self, name: str) -> Object | None:
        """The Deployment of that name."""
        return next((item for item in self.deployments if item["metadata"]["name"] == name), None)

    def pods_of(self, component: str) -> tuple[Object, ...]:
        """The pods of one component."""
        return tuple(pod for pod in self.pods if pod["metadata"]["labels"].get(names.LABEL_COMPONENT) == component)

    def worker_deployments(self) -> tuple[Object, ...]:
        """The Deployments of all revisions."""
        return tuple(item for item in self.deployments if names.LABEL_REVISION in item["metadata"]["labels"])


async def read_objects(kube: Kube, namespace: str, name: str) -> Objects | None:
    """Read the pool and what it owns; None when there is no such pool.

    Raises:
        KubeError: the API server refuses.
        KubeUnreachableError: it does not answer.
    """
    selector = render.selector(name)
    labelled = (client.DEPLOYMENTS, client.PODS, client.SERVICES, client.CONFIG_MAPS)
    named = (
        (client.POOLS, name),
        (client.SECRETS, names.key_secret(name)),
        (client.SECRETS, names.admin_secret(name)),
    )
    lists, (pool, key_secret, admin_secret) = await asyncio.gather(
        asyncio.gather(*(kube.list(resource, namespace, selector=selector) for resource in labelled)),
        asyncio.gather(*(kube.get(resource, namespace, called) for resource, called in named)),
    )
    if pool is None:
        return None
    deployments, found_pods, services, config_maps = lists
    live_pods = tuple(pod for pod in found_pods if pods.is_managed(pod) and not pods.is_over(pod))
    return Objects(
        pool=pool,
        deployments=tuple(deployments),
        pods=live_pods,
        services=tuple(services),
        config_maps=tuple(config_maps),
        key_secret=key_secret,
        admin_secret=admin_secret,
        trouble=await _trouble(kube, namespace, live_pods),
    )


async def _trouble(kube: Kube, namespace: str, live_pods: tuple[Object, ...]) -> dict[str, str]:
    stuck = [pod for pod in live_pods if pods.is_stuck_before_start(pod)][:MAX_EXPLAINED]
    notes = await asyncio.gather(*(kube.last_warning(namespace, pod["metadata"]["uid"]) for pod in stuck))
    return {pod["metadata"]["name"]: note for pod, note in zip(stuck, notes, strict=True) if note}


class Observer:
    """Asks one pool's routers and workers, and remembers what needs no asking twice."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session
        self._routers: dict[str, RouterAdmin] = {}
        self._lengths: dict[str, asyncio.Task[int | None]] = {}

    async def snapshot(self, pool: RewardPool, objects: Objects, *, keys: Keys, revision: str) -> Snapshot:
        """Ask every router for its list, and every leaving worker for what it has in flight."""
        key = keys.pool if render.uses_key(pool) else None
        router_pods = objects.pods_of(names.COMPONENT_ROUTER)
        worker_pods = objects.pods_of(names.COMPONENT_WORKER)
        self._forget(router_pods, worker_pods)
        routers, workers = await asyncio.gather(
            asyncio.gather(*(self._router(pod, objects.trouble, keys) for pod in router_pods)),
            asyncio.gather(*(self._worker(pod, objects.trouble, pool, key) for pod in worker_pods)),
        )
        return Snapshot(
            routers=tuple(routers),
            workers=tuple(workers),
            now=datetime.now(UTC),
            pool=pool,
            revision=revision,
            url=render.pool_url(pool),
            worker_sets=tuple(_worker_set(item) for item in objects.worker_deployments()),
        )

    def router_admin(self, name: str) -> RouterAdmin | None:
        """The router of that pod name, if it was asked before."""
        return self._routers.get(name)

    async def _router(self, pod: Object, trouble: Mapping[str, str], keys: Keys) -> Router:
        router = pods.router_of(pod, trouble=trouble.get(pod["metadata"]["name"]))
        url = pods.address(pod, render.CONTAINER_ROUTER, render.PORT_HTTP)
        metrics_url = pods.address(pod, render.CONTAINER_ROUTER, render.PORT_METRICS)
        if url is None or metrics_url is None or not pods.router_is_running(pod):
            return router
        admin = self._routers.get(router.name)
        if admin is None:
            admin = RouterAdmin(self._session, url=url, metrics_url=metrics_url, admin_key=keys.admin)
            self._routers[router.name] = admin
        seen = await admin.observe(router.name)
        return replace(seen, deleting=router.deleting, failure=seen.failure or router.failure)

    async def _worker(self, pod: Object, trouble: Mapping[str, str], pool: RewardPool, key: str | None) -> Worker:
        worker = pods.worker_of(pod, trouble=trouble.get(pod["metadata"]["name"]))
        if worker.url is None or not worker.running:
            return worker
        leaving = worker.draining_since is not None
        in_flight = await read_in_flight(self._session, worker.url, key=key) if leaving else None
        return replace(worker, in_flight=in_flight, max_model_len=self._length(pod, worker, pool, key))

    def _length(self, pod: Object, worker: Worker, pool: RewardPool, key: str | None) -> int | None:
        """The longest sample, asked once per start of an engine, aside: an answer may take long under load."""
        if not worker.answering or worker.url is None:
            return None
        started = pods.container_id(pod)
        if started not in self._lengths:
            self._lengths[started] = asyncio.create_task(self._ask_length(worker.url, pool, key))
        task = self._lengths[started]
        if not task.done():
            return None
        if task.exception() is not None:
            log.warning("worker %s does not say how long a sample may be: %s", worker.name, task.exception())
            del self._lengths[started]
            return None
        return task.result()

    async def _ask_length(self, url: str, pool: RewardPool, key: str | None) -> int | None:
        model_type = pool.spec.model.type
        result = await probe_score(self._session, url, key=key, served_name=pool.served_name, model_type=model_type)
        if not result.ok:
            raise RuntimeError(result.error)
        return result.max_model_len

    def _forget(self, router_pods: tuple[Object, ...], worker_pods: tuple[Object, ...]) -> None:
        """Drop what is remembered of pods that are gone."""
        there = {pod["metadata"]["name"] for pod in router_pods}
        self._routers = {name: admin for name, admin in self._routers.items() if name in there}
        started = {pods.container_id(pod) for pod in worker_pods}
        for gone in self._lengths.keys() - started:
            self._lengths.pop(gone).cancel()

    def close(self) -> None:
        """Stop asking."""
        self._forget((), ())


def _worker_set(deployment: Object) -> WorkerSet:
    return WorkerSet(
        revision=deployment["metadata"]["labels"][names.LABEL_REVISION],
        replicas=deployment["spec"].get("replicas", 1),
        created=from_rfc3339(deployment["metadata"]["creationTimestamp"]),
    )
