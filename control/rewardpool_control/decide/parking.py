"""Step 5, before the lists: which replicas are parked: started, answering, and in no router's list.

A pool with `spec.autoscaling.parked` makes so many more than are wanted, up to its largest size. So growing is a change
of the routers' lists, and shrinking is one too: who is not wanted leaves the lists, finishes what it has, and is parked
while there is room for it. Parked ones that die, or are of an older revision, are replaced like any other.

Of a rollout's two revisions the newer one's answering replicas serve first. Those of the older one stay in the lists
until as many of the newer one are in them.
"""

from rewardpool_api import RewardPool
from rewardpool_control.decide.drain import Drain, least_to_lose
from rewardpool_control.snapshot import Snapshot


def parked_beyond(pool: RewardPool, desired: int) -> int:
    """Return the number of replicas that are made beyond the wanted ones."""
    scaling = pool.spec.autoscaling
    if scaling is None or pool.spec.suspend:
        return 0
    return max(0, min(scaling.parked, scaling.max_replicas - desired))


def plan_parking(snapshot: Snapshot, *, desired: int, target: str, leaving: Drain) -> frozenset[str]:
    """The names of those that no router may have; none of a pool that parks none."""
    scaling = snapshot.pool.spec.autoscaling
    if scaling is None or not scaling.parked:
        return frozenset()
    staying = [worker for worker in snapshot.workers if leaving.stays(worker)]
    staying.sort(key=lambda worker: least_to_lose(worker, snapshot), reverse=True)
    newer = [worker for worker in staying if worker.revision == target]
    older = [worker for worker in staying if worker.revision != target]
    left = max(0, desired - snapshot.serving_of(target))
    return frozenset(worker.name for worker in [*newer[desired:], *older[left:]])
