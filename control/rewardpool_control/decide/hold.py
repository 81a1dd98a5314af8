"""Instead of a decision: the routers' lists alone, while nothing else can or may be decided.

That is so when the stored pool is not valid, when the operator has no key of the routers, and when deciding fails. What
there is stays as it is; workers that end leave the lists, and those that answer join.
"""

from dataclasses import replace

from rewardpool_api import RewardPoolStatus
from rewardpool_api.reasons import ConditionReason
from rewardpool_api.status import MAX_MESSAGE, ScalingStatus
from rewardpool_control.decide.agreement import check_agreement
from rewardpool_control.decide.conditions import Facts, conditions_of
from rewardpool_control.decide.drain import Drain
from rewardpool_control.decide.events import condition_events
from rewardpool_control.decide.model_status import model_status
from rewardpool_control.decide.node_loss import as_reached
from rewardpool_control.decide.parking import plan_parking
from rewardpool_control.decide.router_readiness import RouterReadiness, expose_and_conceal
from rewardpool_control.decide.worker_lists import WorkerListChanges, reconcile_routers
from rewardpool_control.plan import Plan
from rewardpool_control.snapshot import Failure, Snapshot


def kept_lists(snapshot: Snapshot, *, barred: frozenset[str] = frozenset()) -> WorkerListChanges:
    """The routers' lists by what the workers are, and by what was decided before; `barred` ones are about to leave."""
    snapshot = as_reached(snapshot)
    leaving = {worker.name for worker in snapshot.workers if worker.name in barred}
    apart = leaving | _unproven(snapshot) | _parked(snapshot)
    return reconcile_routers(snapshot, Drain(), barred=apart | check_agreement(snapshot, apart=apart).barred)


def _parked(snapshot: Snapshot) -> frozenset[str]:
    scaling, rollout = snapshot.pool.status.scaling, snapshot.pool.status.rollout
    if scaling is None:
        return frozenset()
    target = rollout.target_revision if rollout is not None else snapshot.revision
    return plan_parking(snapshot, desired=scaling.desired, target=target, leaving=Drain())


def hold(snapshot: Snapshot, cause: Failure, *, routers_asked: bool = True) -> Plan:
    """Keep the routers' lists and say why nothing else is done."""
    cause = replace(cause, message=cause.message[:MAX_MESSAGE])
    # A valid spec that the cluster cannot have: nothing else is to be said of it, so nothing waits for its generation.
    is_refused = cause.reason == ConditionReason.NO_AGENT_SANDBOX
    reached = as_reached(snapshot)
    # Of routers that could not be asked it is not known whether they serve.
    lists = kept_lists(snapshot) if routers_asked else None
    readiness = expose_and_conceal(reached, lists) if lists else RouterReadiness()
    staying = [worker for worker in reached.workers if Drain().stays(worker)]
    old = reached.pool.status
    ready = len(lists.serving) if lists else old.ready_replicas
    scaling = old.scaling or ScalingStatus(desired=len(staying), reason=cause.message)
    model = model_status(reached, staying)
    facts = Facts(snapshot=reached, scaling=scaling, model=model, staying=staying, lists=lists, rollout=None)
    status: RewardPoolStatus = old.model_copy(
        update={
            "observed_generation": reached.pool.metadata.generation if is_refused else old.observed_generation,
            "ready": f"{ready}/{scaling.desired}",
            "replicas": len([worker for worker in staying if worker.name not in _parked(reached)]),
            "ready_replicas": ready,
            "draining_replicas": len(reached.workers) - len(staying),
            "load": None,
            "conditions": conditions_of(facts, held=cause),
        }
    )
    return Plan(
        leaves=lists.leaves if lists else (),
        joins=lists.joins if lists else (),
        expose=readiness.expose,
        conceal=readiness.conceal,
        status=status,
        events=condition_events(old, status),
    )


def _unproven(snapshot: Snapshot) -> set[str]:
    """Workers that no router has and whose revision has yet to pass a comparison of scores."""
    memory = snapshot.pool.status.rollout
    if memory is None or (memory.parity is None and snapshot.pool.spec.rollout.parity is None):
        return set()
    proven = {memory.stable_revision}
    if memory.parity is not None and memory.parity.outcome == "Passed":
        proven.add(memory.parity.revision)
    return {
        worker.name for worker in snapshot.workers if worker.revision not in proven and not snapshot.is_listed(worker)
    }
