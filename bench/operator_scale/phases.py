"""The two halves of the measurement, in one cluster and one after the other.

1. The operator: all pools are made at once, and time runs until every pool says that all its workers are in its
   router. Then silence, in which nothing may be written.
2. Deployments alone: the operator is ended, its pools are deleted and everything they owned is gone; then the very
   Deployments and Services that the operator had made are made again by a bare client, in a namespace of their own, and
   time runs until every Deployment has all its pods Ready.

The second half leaves out what only the operator makes: Secrets, the ConfigMap of mounted files, statuses, events.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from math import inf
from typing import Any, Final

from cluster.processes import ClusterError
from cluster.progress import Say
from operator_scale.api import Api, Followed, Object
from operator_scale.audit import Audit
from operator_scale.machine import Programs
from operator_scale.under_test import OperatorUnderTest, buckets_of, quantile, since
from rewardpool_api import names

WITH_OPERATOR: Final = "with-operator"
ALONE: Final = "deployments-alone"
"""The two namespaces."""

POLL_SECONDS: Final = 0.5
TELL_SECONDS: Final = 5.0
QUIET_SECONDS: Final = 8.0
"""Without a write, after which the operator is taken to have nothing left to do."""
RECONCILE: Final = "rewardpool_reconcile_seconds"
OWN: Final = "rewardpool_reconcile_own_seconds"

DEPLOYMENTS: Final = "/apis/apps/v1/namespaces/{}/deployments"
SERVICES: Final = "/api/v1/namespaces/{}/services"
POOLS: Final = f"/apis/{names.GROUP}/{names.VERSION}/namespaces/{{}}/{names.PLURAL}"
NAMESPACES: Final = "/api/v1/namespaces"


@dataclass(frozen=True, kw_only=True)
class Made:
    """What the operator made of the pools, for the bare client to make again."""

    deployments: list[Object]
    services: list[Object]

    @property
    def pods(self) -> int:
        """Pods of all Deployments."""
        return sum(deployment["spec"]["replicas"] for deployment in self.deployments)


class Patience:
    """Waits that tell how far things are and do not last for ever."""

    def __init__(self, *, say: Say, deadline_seconds: float) -> None:
        self._say = say
        self._deadline_seconds = deadline_seconds

    async def until(
        self, count: Callable[[], Awaitable[int]], *, of: int, what: str, why_not: Callable[[], str] = str
    ) -> float:
        """Seconds until `count` is `of`.

        Raises:
            ClusterError: it is not, at the deadline; the message ends with what `why_not` says.
        """
        began = told = time.monotonic()
        while (there := await count()) < of:
            now = time.monotonic()
            if now - began > self._deadline_seconds:
                raise ClusterError(f"after {self._deadline_seconds:.0f} s {there} of {of} {what}\n{why_not()}")
            if now - told > TELL_SECONDS:
                self._say(f"{there} of {of} {what} after {now - began:.0f} s")
                told = now
            await asyncio.sleep(POLL_SECONDS)
        return time.monotonic() - began


def pool(name: str, *, workers: int) -> Object:
    """An ordinary pool: a model from the hub, vLLM, a GPU for each worker, one router, a fixed number of replicas."""
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "metadata": {"name": name, "namespace": WITH_OPERATOR},
        "spec": {
            "model": {"source": "hf://bench/reward-model"},
            "engine": {"name": "vllm"},
            "replicas": workers,
        },
    }


async def measure_operator(
    api: Api,
    operator: OperatorUnderTest,
    audit: Audit,
    programs: Programs,
    *,
    pools: int,
    workers: int,
    idle_seconds: float,
    patience: Patience,
) -> dict[str, Any]:
    """The first half; returns its figures by their names in the result."""
    path = POOLS.format(WITH_OPERATOR)
    audit.writes()
    programs.cpu_seconds()
    at_rest, began = operator.cpu_seconds(), time.monotonic()
    async with api.following(path) as followed:
        await api.create_all((path, pool(f"pool-{number}", workers=workers)) for number in range(pools))
        created_seconds = time.monotonic() - began

        async def ready() -> int:
            operator.sample()
            return followed.count(is_complete)

        await patience.until(ready, of=pools, what="pools are ready", why_not=lambda: first_incomplete(followed))
    made = audit.writes()
    figures: dict[str, Any] = {
        "pools_created_seconds": created_seconds,
        "all_ready_seconds": time.monotonic() - began,
        "cpu_seconds": operator.cpu_seconds() - at_rest,
        "cpu_seconds_of_all": programs.cpu_seconds(),
        "api_writes": dict(sorted(made.items())),
        "api_writes_a_pool": made.total() / pools,
    }
    metrics = await operator.metrics()
    figures["reconciles_a_pool"] = buckets_of(metrics, RECONCILE).get(inf, 0.0) / pools
    figures["reconcile_p99_ms"] = in_ms(quantile(0.99, buckets_of(metrics, RECONCILE)))
    figures["reconcile_own_p99_ms"] = in_ms(quantile(0.99, buckets_of(metrics, OWN)))
    figures["quiet_after_seconds"], later = await quiet(audit, patience)
    figures["api_writes_later"] = dict(sorted(later.items()))
    cpu_seconds, before = operator.cpu_seconds(), buckets_of(await operator.metrics(), RECONCILE)
    writes = await count_writes(audit, operator, seconds=idle_seconds)
    figures["api_writes_idle_60s"] = writes.total()
    figures["idle"] = {
        "seconds": idle_seconds,
        "api_writes": dict(sorted(writes.items())),
        "cpu_seconds": operator.cpu_seconds() - cpu_seconds,
        "reconcile_p99_ms": in_ms(quantile(0.99, since(buckets_of(await operator.metrics(), RECONCILE), before))),
    }
    figures["rss_mb"] = operator.rss_mb
    return figures


async def quiet(audit: Audit, patience: Patience) -> tuple[float, Counter[str]]:
    """Seconds until the operator's last write, after which it wrote nothing for `QUIET_SECONDS`; and what it wrote."""
    last_write, written = time.monotonic(), Counter[str]()

    async def silence() -> int:
        nonlocal last_write
        new = audit.writes()
        if new:
            written.update(new)
            last_write = time.monotonic()
        return int(time.monotonic() - last_write)

    seconds = await patience.until(
        silence,
        of=int(QUIET_SECONDS),
        what="seconds without a write",
        why_not=lambda: f"it wrote: {dict(written.most_common(8))}",
    )
    return seconds - QUIET_SECONDS, written


async def count_writes(audit: Audit, operator: OperatorUnderTest, *, seconds: float) -> Counter[str]:
    """The operator's writes in so many seconds in which nobody asks anything of it."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        operator.sample()
        await asyncio.sleep(min(1.0, seconds))
    return audit.writes()


async def read_made(api: Api) -> Made:
    """The Deployments and Services of all pools, as somebody else would make them."""
    return Made(
        deployments=[
            bare(item, "apps/v1", "Deployment") for item in await api.items(DEPLOYMENTS.format(WITH_OPERATOR))
        ],
        services=[bare(item, "v1", "Service") for item in await api.items(SERVICES.format(WITH_OPERATOR))],
    )


def bare(live: Object, version: str, kind: str) -> Object:
    """A live object without what the API server and its place in the other namespace gave it."""
    metadata, spec = live["metadata"], dict(live["spec"])
    for given in ("clusterIP", "clusterIPs"):
        spec.pop(given, None)
    kept = {field: metadata[field] for field in ("name", "labels", "annotations") if field in metadata}
    return {"apiVersion": version, "kind": kind, "metadata": kept, "spec": spec}


async def clear(api: Api, patience: Patience) -> None:
    """Delete the pools with their namespace, and wait until all of it is gone."""
    path = f"{NAMESPACES}/{WITH_OPERATOR}"
    await api.delete(path)

    async def gone() -> int:
        return int(await api.is_gone(path))

    await patience.until(gone, of=1, what="namespaces are gone")


async def measure_alone(api: Api, made: Made, programs: Programs, patience: Patience) -> dict[str, Any]:
    """The second half; returns its figures by their names in the result."""
    path = DEPLOYMENTS.format(ALONE)
    programs.cpu_seconds()
    began = time.monotonic()
    objects = [(path, deployment) for deployment in made.deployments]
    objects += [(SERVICES.format(ALONE), service) for service in made.services]
    async with api.following(path) as followed:
        await api.create_all(objects)

        async def ready() -> int:
            return followed.count(is_full)

        await patience.until(ready, of=len(made.deployments), what="Deployments are ready")
    return {
        "deployments_alone_seconds": time.monotonic() - began,
        "deployments_alone_cpu_seconds_of_all": programs.cpu_seconds(),
    }


def is_complete(pool: Object) -> bool:
    """Whether all workers of the pool are in its routers, by the pool's own word."""
    conditions = {entry["type"]: entry["status"] for entry in pool.get("status", {}).get("conditions", [])}
    return all(conditions.get(kind) == "True" for kind in ("Serving", "WorkersReady", "RouterReady"))


def first_incomplete(pools: Followed) -> str:
    """What one of the pools that are not complete says of itself."""
    incomplete = next((pool for pool in pools.objects.values() if not is_complete(pool)), {})
    conditions = incomplete.get("status", {}).get("conditions", [])
    return "\n".join(
        " ".join(str(entry.get(key)) for key in ("type", "status", "reason", "message")) for entry in conditions
    )


def is_full(deployment: Object) -> bool:
    """Whether all pods of a Deployment are Ready."""
    return bool(deployment.get("status", {}).get("readyReplicas", 0) == deployment["spec"]["replicas"])


def in_ms(seconds: float | None) -> float | None:
    """Seconds as milliseconds."""
    return None if seconds is None else seconds * 1000
