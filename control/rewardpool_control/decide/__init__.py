"""The decision: what to do about one pool, as a pure function of what was observed.

    0. who is there node_loss.py         workers of nodes that do not report -> there or not
    1. how many     load.py              what the routers hold, or the least that they do
                    replicas.py          spec, suspend or autoscaler -> wanted replicas
    2. which        revisions.py         the present revision, or the stable one; parity.py compares their scores
    3. how many of  rollout.py           wanted replicas -> a size for every revision
    4. who leaves   drain.py             sizes -> workers to drain, to undrain, to stop
                    sleeping.py          who holds the pool awake -> engines to put to sleep, to wake
                    parking.py           wanted replicas -> who is kept out of the lists
    5. who serves   agreement.py         scores of the probe text -> who differs from the others of its revision
                    worker_lists.py      workers -> changes to every router's list
                    router_readiness.py  which routers may be asked
                    disruption.py        how many a node's drain may not take
    6. what to say  status.py            all of it -> status; conditions.py -> its conditions; events.py -> what is news
                    first_score.py       what the first request at a pool at zero waits for
                    costs.py             GPU-seconds and samples of each job

Each step is a function of the snapshot and of the steps before it; none has a clock or a client. The memory from one
pass to the next is the object's status and the draining marks on the workers, so a restarted operator goes on where it
was, and losing an event or a pass costs a delay and never a wrong state.
"""

from rewardpool_control.decide.agreement import check_agreement
from rewardpool_control.decide.disruption import protected_gateways, protected_routers, protected_workers
from rewardpool_control.decide.drain import plan_drain
from rewardpool_control.decide.load import observed_load
from rewardpool_control.decide.node_loss import as_reached
from rewardpool_control.decide.parking import parked_beyond, plan_parking
from rewardpool_control.decide.replicas import wanted_replicas
from rewardpool_control.decide.revisions import as_admitted, choose_revision
from rewardpool_control.decide.rollout import allocate
from rewardpool_control.decide.router_readiness import expose_and_conceal
from rewardpool_control.decide.sleeping import plan_sleep
from rewardpool_control.decide.status import status_and_events
from rewardpool_control.decide.worker_lists import reconcile_routers
from rewardpool_control.plan import Plan
from rewardpool_control.snapshot import Snapshot

__all__ = ["decide"]


def decide(snapshot: Snapshot) -> Plan:
    """Turn an observation into a plan. Pure: the same snapshot gives the same plan."""
    snapshot = as_reached(snapshot)
    load = observed_load(snapshot)
    recommendation = wanted_replicas(snapshot)
    scaling = recommendation.scaling
    parked_beyond_desired = parked_beyond(snapshot.pool, scaling.desired)
    choice = choose_revision(snapshot, scaling.desired, parked=parked_beyond_desired)
    snapshot = as_admitted(snapshot, choice)
    rollout = allocate(snapshot, scaling.desired, choice, parked=parked_beyond_desired)
    leaving = plan_drain(snapshot, rollout.sizes, choice.kept)
    sleeping = plan_sleep(snapshot, leaving)
    parked = plan_parking(snapshot, desired=scaling.desired, target=choice.target, leaving=leaving)
    apart = choice.barred | sleeping.barred | parked
    agreement = check_agreement(snapshot, apart=apart)
    lists = reconcile_routers(snapshot, leaving, barred=apart | agreement.barred)
    readiness = expose_and_conceal(snapshot, lists)
    status, events = status_and_events(
        snapshot,
        load=load,
        recommendation=recommendation,
        rollout=rollout,
        leaving=leaving,
        lists=lists,
        agreement=agreement,
        sleeping=sleeping,
        parked=parked,
    )
    return Plan(
        leaves=lists.leaves,
        drain=leaving.drain,
        undrain=leaving.undrain,
        stop=leaving.stop,
        worker_sets=leaving.worker_sets,
        sleep=sleeping.sleep,
        wake=sleeping.wake,
        hold_starts=sleeping.hold_starts,
        parked=parked,
        joins=lists.joins,
        expose=readiness.expose,
        conceal=readiness.conceal,
        measure=choice.parity.measure,
        protected_workers=protected_workers(snapshot),
        protected_routers=protected_routers(snapshot),
        protected_gateways=protected_gateways(snapshot),
        status=status,
        events=events,
    )
