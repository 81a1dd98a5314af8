"""Costs: a pool's GPU-seconds, divided between the jobs that it scores for.

    idle           neither a request nor an answer; a pool at rest has the same costs at every pass
    window         from the first request on: its GPU-seconds are divided by the samples scored for each job meanwhile
    divided        after half a minute in which a job's samples came, or once it is quiet
    without any    requests of callers that announce nothing: they are `other`

Jobs say with every renewal of their demand how many samples they have scores of. A job that counts from the beginning
was started again.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final

from rewardpool_api.costs import MAX_JOBS, BusyWindow, CostStatus, JobCost
from rewardpool_api.quantities import MAX_DURATION
from rewardpool_control.decide.load import least_load
from rewardpool_control.snapshot import Snapshot

# Several renewals of a demand, so that the jobs' samples are of the same time.
WINDOW: Final = timedelta(seconds=30)
QUIET: Final = timedelta(seconds=10)
LONGEST: Final = timedelta(minutes=10)  # judges may be slow
MAX_COUNT: Final = 10**18


def costs(snapshot: Snapshot) -> CostStatus | None:
    """Return the costs up to now; None for a pool that never had a GPU."""
    before, now, gpus = snapshot.pool.status.costs, snapshot.now, snapshot.pool.spec.worker.gpus
    held = gpus * sum(worker.placed and not worker.asleep for worker in snapshot.workers)
    announced = _announced(snapshot)
    if before is None:
        jobs = [JobCost(job=name, announced=count) for name, count in sorted(announced.items())]
        return CostStatus(since=now, until=now, gpus=held, jobs=jobs) if gpus else None
    jobs, came, former = _jobs(before.jobs, announced)
    is_active = came or _has_requests(snapshot)
    if before.window is None and not is_active and held == before.gpus and jobs == before.jobs:
        return before
    gained = before.held(now)
    after = before.model_copy(
        update={
            "until": now,
            "gpus": held,
            "jobs": jobs,
            "former_gpu_seconds": _sum(before.former_gpu_seconds, former),
        }
    )
    if before.window is None:
        window = BusyWindow(begun=now, active=now) if is_active else None
        return after.model_copy(update={"idle_gpu_seconds": _sum(before.idle_gpu_seconds, gained), "window": window})
    window = BusyWindow(
        # A clock that was set back must not keep it open until it is right again.
        begun=min(before.window.begun, now),
        active=now if is_active else min(before.window.active, now),
        gpu_seconds=_sum(before.window.gpu_seconds, gained),
    )
    if not _is_over(window, snapshot, jobs):
        return after.model_copy(update={"window": window})
    following = BusyWindow(begun=now, active=window.active) if now - window.active < QUIET else None
    return _divided(after, window.gpu_seconds).model_copy(update={"window": following})


def _announced(snapshot: Snapshot) -> dict[str, int]:
    demands = [one.demand for one in snapshot.announcements if one.demand is not None]
    return {demand.job: demand.scored for demand in demands if demand.scored is not None}


def _has_requests(snapshot: Snapshot) -> bool:
    load = least_load(snapshot)
    is_loaded = load is not None and load.in_flight + load.waiting > 0
    return is_loaded or any(worker.answered for worker in snapshot.workers)


def _jobs(before: Sequence[JobCost], announced: Mapping[str, int]) -> tuple[list[JobCost], bool, float]:
    """The jobs with their new samples, whether there are any, and the GPU-seconds of those that make room."""
    known = {job.job: job for job in before}
    came = False
    for name, count in announced.items():
        job = known.get(name) or JobCost(job=name)
        more = count - job.announced if count >= job.announced else count
        came |= more > 0
        known[name] = job.model_copy(
            update={
                "samples": min(job.samples + more, MAX_COUNT),
                "announced": count,
                "pending": min(job.pending + more, MAX_COUNT),
            }
        )
    # Those that are over leave, the cheapest first: all that announce have a place.
    over = sorted((job for name, job in known.items() if name not in announced), key=lambda job: job.gpu_seconds)
    leaving = over[: max(0, len(known) - MAX_JOBS)]
    for job in leaving:
        del known[job.job]
    return [known[name] for name in sorted(known)], came, sum(job.gpu_seconds for job in leaving)


def _is_over(window: BusyWindow, snapshot: Snapshot, jobs: Sequence[JobCost]) -> bool:
    age = snapshot.now - window.begun
    if snapshot.now - window.active >= QUIET:
        return True
    may_come = any(
        one.is_live(snapshot.now) and one.demand is not None and one.demand.scored is not None
        for one in snapshot.announcements
    )
    return age >= (WINDOW if any(job.pending for job in jobs) or not may_come else LONGEST)


def _divided(costs: CostStatus, seconds: float) -> CostStatus:
    """The costs with a window's GPU-seconds, by the samples that are pending."""
    samples = sum(job.pending for job in costs.jobs)
    if not samples:
        return costs.model_copy(update={"other_gpu_seconds": _sum(costs.other_gpu_seconds, seconds)})
    jobs = [
        job.model_copy(update={"gpu_seconds": _sum(job.gpu_seconds, seconds * job.pending / samples), "pending": 0})
        for job in costs.jobs
    ]
    return costs.model_copy(update={"jobs": jobs})


def _sum(one: float, more: float) -> float:
    # A stored figure may be as large as the schema allows, and what is written must be within it.
    return min(one + more, MAX_DURATION)
