"""Step 5, before the lists: whose engine sleeps, where the pool shares its GPUs with trainers.

The pool is awake while a process holds it so, and asleep otherwise. A worker goes to sleep in the order in which one
leaves: off every router first, then asleep, which it refuses as long as it works on something. It joins again once it
woke and gave a score. A worker that was never asked before goes to sleep after its first score: starting takes the GPU,
so a pool is started before the trainer is.
"""

from dataclasses import dataclass

from rewardpool_api.status import SleepStatus
from rewardpool_control.decide.drain import Drain
from rewardpool_control.snapshot import Snapshot, Worker


@dataclass(frozen=True, kw_only=True)
class Sleeping:
    """Engines that should sleep and wake."""

    sleep: tuple[str, ...] = ()
    wake: tuple[str, ...] = ()
    barred: frozenset[str] = frozenset()
    hold_starts: bool = False
    status: SleepStatus | None = None


def plan_sleep(snapshot: Snapshot, leaving: Drain) -> Sleeping:
    """Decide which engines sleep: none where they cannot be put to sleep."""
    if snapshot.holders is None or not snapshot.pool.spec.engine.sleep.enabled:
        return Sleeping()
    staying = [worker for worker in snapshot.workers if worker.running and leaving.stays(worker)]
    asleep = [worker for worker in staying if worker.asleep]
    holders = list(snapshot.holders)
    if holders:
        return Sleeping(
            wake=tuple(worker.name for worker in asleep),
            barred=frozenset(worker.name for worker in asleep),
            status=SleepStatus(state="Changing" if asleep or not staying else "Awake", holders=holders),
        )
    lists_known = all(router.registered is not None for router in snapshot.routers if not router.deleting)
    ready_to = [worker for worker in staying if worker.answering and not worker.asleep]
    return Sleeping(
        sleep=tuple(worker.name for worker in ready_to if lists_known and not snapshot.is_listed(worker)),
        barred=frozenset(worker.name for worker in staying),
        hold_starts=snapshot.is_trainers_turn,
        # Who leaves has the GPU for as long as its process runs.
        status=SleepStatus(state="Asleep" if all(worker.asleep for worker in _running(snapshot)) else "Changing"),
    )


def _running(snapshot: Snapshot) -> list[Worker]:
    return [worker for worker in snapshot.workers if worker.running]
