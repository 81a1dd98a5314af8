"""Small builders: a test names only what it is about."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from rewardpool_api import RewardPool, RewardPoolStatus
from rewardpool_control.snapshot import RegisteredWorker, Router, Snapshot, Worker, WorkerSet

NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)


def a_pool(status: RewardPoolStatus | None = None, **spec: Any) -> RewardPool:
    """A pool of vLLM replicas; `spec` is in the manifest's own camelCase."""
    pool = RewardPool.model_validate(
        {
            "metadata": {"name": "rm", "namespace": "rl"},
            "spec": {"model": {"source": "hf://org/model"}, "engine": {"name": "vllm"}, **spec},
        }
    )
    return pool.model_copy(update={"status": status}) if status else pool


def a_worker(name: str, *, revision: str = "new", age_seconds: float = 100, **fields: Any) -> Worker:
    """A worker that answers and is empty, unless said otherwise."""
    defaults: dict[str, Any] = {"running": True, "answering": True, "in_flight": 0, "url": f"http://{name}:8000"}
    return Worker(name=name, revision=revision, created=NOW - timedelta(seconds=age_seconds), **{**defaults, **fields})


def a_router(name: str = "router", *, workers: tuple[Worker, ...] = (), **fields: Any) -> Router:
    """A router that answers and lists the given workers."""
    entries = tuple(RegisteredWorker(id=f"id-{worker.name}", url=worker.url or "", in_flight=0) for worker in workers)
    defaults: dict[str, Any] = {"answering": True, "registered": entries, "waiting": 0}
    return Router(name=name, **{**defaults, **fields})


def a_snapshot(
    *workers: Worker,
    routers: tuple[Router, ...] | None = None,
    pool: RewardPool | None = None,
    now: datetime = NOW,
    sets: tuple[WorkerSet, ...] | None = None,
) -> Snapshot:
    """By default one router that lists exactly the workers, and a set for every revision among them."""
    counts = {worker.revision: 0 for worker in workers}
    for worker in workers:
        counts[worker.revision] += worker.active
    made = tuple(WorkerSet(revision=name, replicas=count, created=NOW) for name, count in counts.items())
    return Snapshot(
        now=now,
        pool=pool or a_pool(replicas=len(workers)),
        revision="new",
        url="http://rm-router.rl.svc:8080",
        worker_sets=made if sets is None else sets,
        workers=workers,
        routers=(a_router(workers=workers),) if routers is None else routers,
    )


def leaving(worker: Worker, *, for_seconds: float) -> Worker:
    """The worker, told to leave that long ago."""
    return replace(worker, draining_since=NOW - timedelta(seconds=for_seconds))
