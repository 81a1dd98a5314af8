"""Step 6: what to say: the status. Its conditions are made in `conditions.py`; what of it is news, in `events.py`."""

from rewardpool_api import RewardPoolStatus, names
from rewardpool_api.status import MAX_PARKED_NAMES, AuthStatus, GatewayStatus, LoadStatus
from rewardpool_control.autoscaler.recommend import Recommendation
from rewardpool_control.decide.agreement import Agreement
from rewardpool_control.decide.conditions import Facts, conditions_of
from rewardpool_control.decide.costs import costs
from rewardpool_control.decide.drain import Drain
from rewardpool_control.decide.events import events_of
from rewardpool_control.decide.first_score import first_score
from rewardpool_control.decide.model_status import model_status
from rewardpool_control.decide.rollout import Rollout
from rewardpool_control.decide.sleeping import Sleeping
from rewardpool_control.decide.worker_lists import WorkerListChanges
from rewardpool_control.plan import Event
from rewardpool_control.snapshot import Snapshot


def status_and_events(
    snapshot: Snapshot,
    *,
    load: LoadStatus | None,
    recommendation: Recommendation,
    rollout: Rollout,
    leaving: Drain,
    lists: WorkerListChanges,
    agreement: Agreement,
    sleeping: Sleeping,
    parked: frozenset[str],
) -> tuple[RewardPoolStatus, tuple[Event, ...]]:
    """The new status, and events for what differs from the old one."""
    scaling = recommendation.scaling
    staying = [worker for worker in snapshot.workers if leaving.stays(worker)]
    in_use = [worker for worker in staying if worker.name not in parked]
    waiting = sorted(worker.name for worker in staying if worker.name in parked and worker.answering)
    model = model_status(snapshot, staying)
    facts = Facts(
        snapshot=snapshot,
        scaling=scaling,
        model=model,
        rollout=rollout,
        lists=lists,
        agreement=agreement,
        sleeping=sleeping,
        # One that is to be parked and does not answer yet is on its way, as any other.
        staying=[worker for worker in staying if worker.name not in waiting],
    )
    old = snapshot.pool.status
    status = RewardPoolStatus(
        observed_generation=snapshot.pool.metadata.generation,
        url=snapshot.url,
        ready=f"{len(lists.serving)}/{scaling.desired}",
        replicas=len(in_use),
        ready_replicas=len(lists.serving),
        draining_replicas=len(snapshot.workers) - len(staying),
        parked_replicas=len(waiting),
        parked_workers=waiting[:MAX_PARKED_NAMES],
        router_replicas=snapshot.wanted_routers,
        # Of worker pods, as the scale subresource shows it to HPA.
        selector=f"{names.LABEL_POOL}={snapshot.pool.metadata.name},{names.LABEL_COMPONENT}={names.COMPONENT_WORKER}",
        current_revision=snapshot.revision,
        model=model,
        auth=_auth(snapshot),
        gateway=_gateway(snapshot),
        load=load,
        conditions=conditions_of(facts),
        scaling=scaling,
        demands=recommendation.demands,
        costs=costs(snapshot),
        first_score=first_score(snapshot, load=load, desired=scaling.desired, leaving=leaving),
        rollout=rollout.memory,
        sleep=sleeping.status,
        workers=old.workers,
    )
    return status, events_of(old, status, leaving, rollout, key_refused=snapshot.key_refused)


def _gateway(snapshot: Snapshot) -> GatewayStatus | None:
    gateway = snapshot.gateway
    if gateway is None:
        return None
    secret = None if gateway.key_file else names.gateway_name(snapshot.pool.metadata.name)
    return GatewayStatus(url=gateway.url, secret_name=secret, key_file=gateway.key_file, ready_replicas=gateway.ready)


def _auth(snapshot: Snapshot) -> AuthStatus:
    """Return where the key is: `local/` puts a file there once; on Kubernetes it is the Secret."""
    if snapshot.pool.spec.router.auth.mode == "Disabled":
        return AuthStatus(ca_bundle=snapshot.ca_bundle, rotation=snapshot.rotation)
    before = snapshot.pool.status.auth
    if before.key_file:
        return before
    secret = names.key_secret(snapshot.pool.metadata.name)
    return AuthStatus(secret_name=secret, ca_bundle=snapshot.ca_bundle, rotation=snapshot.rotation)
