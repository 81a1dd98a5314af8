"""Observation of a pool: its objects from the store, its routers' lists and metrics, and the workers' answers.

Routers are asked at every pass, the API server never: watches fill the store. So routers stay right while the API
server is away, with the objects as they were last seen.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

from rewardpool_api import RewardPool, names
from rewardpool_api.reasons import ConditionReason
from rewardpool_api.times import CLOCKS_DIFFER, from_rfc3339
from rewardpool_control.golden_set import GoldenScores, scores_of_annotation
from rewardpool_control.snapshot import Failure, Gateway, Router, Snapshot, Worker, WorkerSet
from rewardpool_control.start_times import StartTimes
from rewardpool_control.throughput import Throughputs
from rewardpool_kube.resources import Object
from rewardpool_operator.kubernetes import render
from rewardpool_operator.kubernetes.cache.objects import Objects
from rewardpool_operator.kubernetes.credentials.keys import Keys
from rewardpool_operator.kubernetes.credentials.tls import Tls, ca_bundle, trust
from rewardpool_operator.kubernetes.polls.downloads import Downloads
from rewardpool_operator.kubernetes.polls.probes import Probes
from rewardpool_operator.kubernetes.polls.reading import Polling, Reading, keep_only
from rewardpool_operator.kubernetes.workload import containers, pods, sandboxes
from rewardpool_operator.left_out import readable
from rewardpool_operator.probe import read_in_flight
from rewardpool_operator.routers.admin import RouterAdmin
from rewardpool_runtime.untrusted import count_of, without_secrets


class Observer:
    """Asks one pool's routers and workers, and remembers what needs no asking twice."""

    def __init__(self, polling: Polling) -> None:
        self._polling = polling
        self._routers: dict[str, _PolledRouter] = {}
        self._in_flight: dict[tuple[str, str, str | None], Reading[int | None]] = {}
        self._probes = Probes(polling)
        self._downloads = Downloads(polling)
        self._start_times = StartTimes()
        self._throughputs = Throughputs()

    async def snapshot(self, pool: RewardPool, objects: Objects, *, keys: Keys, tls: Tls, revision: str) -> Snapshot:
        """Poll every router for its list, and every leaving worker for what it has in flight."""
        key = keys.pool if pool.spec.router.auth.uses_key else None
        router_pods = _sensible(objects.pods_of(names.COMPONENT_ROUTER), pods.router_of)
        worker_pods = _sensible(objects.pods_of(names.COMPONENT_WORKER), pods.worker_of)
        self._forget(router_pods, worker_pods)
        served = {fingerprint for pod in router_pods if (fingerprint := pods.served_certificate(pod))}
        bundle = ca_bundle(tls.certificate, before=pool.status.auth.ca_bundle, served=served)
        routers, workers = await asyncio.gather(
            asyncio.gather(*(self._router(pod, pool, objects, keys, bundle) for pod in router_pods)),
            asyncio.gather(*(self._worker(pod, objects, key) for pod in worker_pods)),
        )
        observed_at = self._polling.clock()
        starts = [pods.container_id(pod) for pod in worker_pods]
        workers = self._probes.observe(pool, list(zip(workers, starts, strict=True)), key=key)
        workers = await self._downloads.progress(workers, worker_pods)
        measured = self._start_times.measure(workers, now=observed_at)
        measured = self._throughputs.measure(measured, routers, now=observed_at)
        return replace(
            _snapshot(pool, objects, revision=revision),
            routers=tuple(routers),
            workers=tuple(_without_keys(worker, keys) for worker in measured),
            # Until there is a certificate, trainers find what there was.
            url=(tls.problem and pool.status.url) or render.pool_url(pool),
            protected_workers=_protected(pool, objects, names.COMPONENT_WORKER),
            protected_routers=_protected(pool, objects, names.COMPONENT_ROUTER),
            protected_gateways=_protected(pool, objects, names.COMPONENT_GATEWAY),
            ca_bundle=bundle,
            tls_problem=tls.problem,
        )

    def router_admin(self, name: str) -> RouterAdmin | None:
        """The router of that pod name; None for one that was not asked, or is silent at the moment."""
        polled = self._routers.get(name)
        return None if polled is None or polled.list.pending else polled.admin

    @property
    def is_waiting_for_first_answers(self) -> bool:
        """True if there is a router of which nothing is known yet."""
        return any(polled.list.pending and polled.list.last is None for polled in self._routers.values())

    async def _router(self, pod: Object, pool: RewardPool, objects: Objects, keys: Keys, bundle: str | None) -> Router:
        router = pods.router_of(pod, warning=objects.warnings.get(pod["metadata"]["name"]))
        url = pods.address(pod, containers.CONTAINER_ROUTER, containers.PORT_HTTP)
        metrics_url = pods.address(pod, containers.CONTAINER_ROUTER, containers.PORT_METRICS)
        if url is None or metrics_url is None or not pods.router_is_running(pod):
            if router.name in self._routers:
                self._routers.pop(router.name).list.close()
            return router
        # The same pod has another address once its sandbox was made anew, and another process once it was restarted.
        server = (pod["metadata"]["uid"], pods.container_id(pod, containers.CONTAINER_ROUTER), url, metrics_url)
        polled = self._routers.get(router.name)
        if polled is not None and polled.server != server:
            self._routers.pop(router.name).list.close()
            polled = None
        if polled is None:
            admin = RouterAdmin(
                self._polling.session,
                flavor=pods.router_flavor(pod),
                url=url,
                metrics_url=metrics_url,
                admin_key=keys.admin,
                served_name=pool.served_name,
                trust=trust(bundle, render.pool_host(pool)) if pods.served_certificate(pod) else None,
            )
            polled = self._routers[router.name] = _PolledRouter(server, admin, self._polling)
        polled.admin.set_keys(keys.admins)
        await polled.list.poll(partial(polled.admin.observe, router.name))
        # Of a router that takes long its last answer holds, until it is known that there is none.
        seen = polled.list.last or router
        return replace(
            seen,
            exposed=router.exposed,
            concealed=router.concealed,
            silent_seconds=polled.list.silent_seconds,
            deleting=router.deleting,
            failure=seen.failure or router.failure,
            age_seconds=polled.list.age_seconds,
        )

    async def _worker(self, pod: Object, objects: Objects, key: str | None) -> Worker:
        worker = pods.worker_of(pod, warning=objects.warnings.get(pod["metadata"]["name"]))
        if worker.draining_since is not None and worker.draining_since > datetime.now(UTC) + CLOCKS_DIFFER:
            # Of a time that is to come, it would never have left long enough ago.
            worker = replace(worker, draining_since=None)
        if worker.url is None or not worker.running or worker.draining_since is None:
            return worker
        server = (worker.name, pods.container_id(pod), worker.url)
        reading = self._in_flight.setdefault(server, Reading(self._polling, is_answer=lambda count: count is not None))
        over = await reading.poll(partial(read_in_flight, self._polling.session, worker.url, key=key))
        # An old count is none: it may be from before the last request came.
        return replace(worker, in_flight=reading.last if over else None)

    def _forget(self, router_pods: tuple[Object, ...], worker_pods: tuple[Object, ...]) -> None:
        for gone in self._routers.keys() - {pod["metadata"]["name"] for pod in router_pods}:
            self._routers.pop(gone).list.close()
        there = {
            (
                pod["metadata"]["name"],
                pods.container_id(pod),
                pods.address(pod, containers.CONTAINER_WORKER, containers.PORT_HTTP),
            )
            for pod in worker_pods
        }
        keep_only(self._in_flight, there)

    def close(self) -> None:
        self._forget((), ())
        self._probes.close()
        self._downloads.close()


def snapshot_without_routers(pool: RewardPool, objects: Objects) -> Snapshot:
    """Return the pods as Kubernetes alone describes them, where no router can be polled."""
    return replace(
        _snapshot(pool, objects, revision=pool.status.current_revision),
        routers=tuple(readable("pods", objects.pods_of(names.COMPONENT_ROUTER), pods.router_of, name=_name_of)),
        workers=tuple(
            _without_words(worker)
            for worker in readable("pods", objects.pods_of(names.COMPONENT_WORKER), pods.worker_of, name=_name_of)
        ),
    )


def _snapshot(pool: RewardPool, objects: Objects, *, revision: str) -> Snapshot:
    return Snapshot(
        now=datetime.now(UTC),
        pool=pool,
        revision=revision,
        url=render.pool_url(pool),
        worker_sets=tuple(
            readable("deployments", objects.worker_deployments(), partial(_worker_set, objects), name=_name_of)
        ),
        wanted_routers=objects.wanted_routers(pool),
        routers_refused=_refused(objects, names.router_name(pool.metadata.name)),
        gateway=_gateway(pool, objects),
    )


class _PolledRouter:
    def __init__(self, server: tuple[str, ...], admin: RouterAdmin, polling: Polling) -> None:
        self.server = server
        """Uid of the pod, id of the container, addresses."""
        self.admin = admin
        self.list: Reading[Router] = Reading(polling, is_answer=lambda router: router.answering)


def _without_keys(worker: Worker, keys: Keys) -> Worker:
    """The worker without the pool's keys in what it said: its last words are those of users' code."""
    failure, no_score = worker.failure, worker.no_score
    if failure is None and no_score is None:
        return worker
    if failure is not None:
        failure = replace(failure, message=without_secrets(failure.message, keys.all))
    return replace(worker, failure=failure, no_score=no_score and without_secrets(no_score, keys.all))


def _without_words(worker: Worker) -> Worker:
    """The worker without its last words: while no key is known, none can be left out of them."""
    if worker.failure is None:
        return worker
    message = "its last words are not quoted while the pool's keys cannot be read"
    return replace(worker, failure=replace(worker.failure, message=message))


def _sensible(found: tuple[Object, ...], read: Callable[[Object], object]) -> tuple[Object, ...]:
    """The pods that can be read; one that cannot is left out, and the others are looked after."""

    def checked(pod: Object) -> Object:
        read(pod)
        return pod

    return tuple(readable("pods", found, checked, name=_name_of))


def _name_of(found: Object) -> object:
    return found["metadata"]["name"]


def _protected(pool: RewardPool, objects: Objects, component: str) -> int | None:
    found = objects.find("PodDisruptionBudget", render.disruption_budget_name(pool, component))
    least = count_of(found["spec"].get("minAvailable")) if found is not None else None
    return None if least is None else least + 1


def _worker_set(objects: Objects, deployment: Object) -> WorkerSet:
    return WorkerSet(
        revision=deployment["metadata"]["labels"][names.LABEL_REVISION],
        replicas=deployment["spec"].get("replicas", 1),
        created=from_rfc3339(deployment["metadata"]["creationTimestamp"]),
        golden=_golden_scores(deployment),
        refused=pods.refusal_of(deployment) or sandboxes.refusal_of(objects.claims_of(deployment)),
    )


def _refused(objects: Objects, deployment: str) -> str | None:
    found = objects.find("Deployment", deployment)
    return None if found is None else pods.refusal_of(found)


def _gateway(pool: RewardPool, objects: Objects) -> Gateway | None:
    if pool.spec.gateway is None:
        return None
    name = pool.metadata.name
    there = [pod for pod in objects.pods_of(names.COMPONENT_GATEWAY) if not pods.is_deleting(pod)]
    refused = _refused(objects, names.gateway_name(name))
    failures = (
        pods.gateway_failure(pod, warning=objects.warnings.get(pod["metadata"]["name"]))
        for pod in there
        if not pods.is_ready(pod)
    )
    return Gateway(
        url=names.gateway_url(name, pool.metadata.namespace),
        wanted=pool.spec.gateway.replicas,
        ready=sum(map(pods.is_ready, there)),
        failure=Failure(reason=ConditionReason.FAILED_CREATE.value, message=refused)
        if refused
        else next((failure for failure in failures if failure is not None), None),
    )


def _golden_scores(deployment: Object) -> GoldenScores | None:
    annotation = (deployment["metadata"].get("annotations") or {}).get(names.ANNOTATION_GOLDEN_SCORES)
    return scores_of_annotation(annotation) if annotation else None
