"""Step 6: what to say: the conditions of the status, which is in `status.py`.

What each condition means is documented where it is defined, in `rewardpool_api.status`, and what each reason means in
`rewardpool_api.reasons`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from rewardpool_api import Condition
from rewardpool_api.reasons import NOTHING_WANTED, ConditionReason
from rewardpool_api.status import CONDITION_TYPES, MAX_MESSAGE, ConditionType, ModelStatus, ScalingStatus
from rewardpool_control.autoscaler import budget
from rewardpool_control.decide.agreement import Agreement
from rewardpool_control.decide.load import missing_metrics
from rewardpool_control.decide.model_status import in_words
from rewardpool_control.decide.revisions import first_without_score, overdue_message
from rewardpool_control.decide.rollout import Rollout
from rewardpool_control.decide.room import lacks_room
from rewardpool_control.decide.router_readiness import PATIENCE_SECONDS
from rewardpool_control.decide.sleeping import Sleeping
from rewardpool_control.decide.worker_lists import WorkerListChanges
from rewardpool_control.snapshot import Failure, Snapshot, Worker
from rewardpool_runtime.untrusted import printable

LISTING_PATIENCE_SECONDS: Final = 60.0
METRICS_PATIENCE_SECONDS: Final = 30.0


@dataclass(frozen=True)
class FoundCondition:
    """A condition before it is compared with the one said before."""

    status: Literal["True", "False", "Unknown"]
    reason: str
    message: str = ""

    @property
    def holds(self) -> bool:
        return self.status == "True"


def _yes(reason: str, message: str) -> FoundCondition:
    return FoundCondition("True", reason, message)


def _no(reason: str, message: str = "") -> FoundCondition:
    return FoundCondition("False", reason, message)


def _not_for(failure: Failure | None) -> FoundCondition | None:
    return None if failure is None else _no(failure.reason, failure.message)


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Input of the conditions."""

    snapshot: Snapshot
    scaling: ScalingStatus
    model: ModelStatus
    staying: Sequence[Worker]
    lists: WorkerListChanges | None
    """None where the routers could not be asked, and it is not known whether they serve."""
    rollout: Rollout | None
    """None where nothing is decided."""
    agreement: Agreement = field(default_factory=Agreement)
    sleeping: Sleeping = field(default_factory=Sleeping)

    @property
    def ready(self) -> int:
        return len(self.lists.serving) if self.lists is not None else 0

    @property
    def asleep(self) -> int:
        return sum(worker.asleep for worker in self.staying)

    @property
    def failure(self) -> Failure | None:
        """Failure of the first worker that does not answer; a restarted one that answers again does not count."""
        return next((worker.failure for worker in self.staying if worker.failure and not worker.answering), None)

    @property
    def vocabulary(self) -> Failure | None:
        """Failure of a model that has another vocabulary than the gateway's callers."""
        gateway = self.snapshot.pool.spec.gateway
        wanted = gateway.vocabulary if gateway is not None else None
        other = next((one for one in self.model.revisions if wanted and one.tokenizer not in (None, wanted)), None)
        if other is None:
            return None
        message = (
            f"spec.gateway.vocabulary is {wanted}, and {other.source} has {other.tokenizer}: one token id would stand"
            " for different tokens; correct spec.gateway.vocabulary, or serve a teacher with the student's vocabulary"
        )
        return Failure(reason=ConditionReason.VOCABULARY_DIFFERS, message=message)

    @property
    def tls(self) -> Failure | None:
        """Failure where no router can have its certificate."""
        problem = self.snapshot.tls_problem
        return None if problem is None else Failure(reason=ConditionReason.TLS_UNUSABLE, message=problem)


def conditions_of(facts: Facts, *, held: Failure | None = None) -> list[Condition]:
    """All conditions, each with the time since when it is what it is."""
    # While the pool is held, it is not known whether it is as its spec declares.
    unknown = None if held is None else FoundCondition("Unknown", held.reason, held.message)
    stays = None if held is None else _no(held.reason, f"the size stays as it is: {held.message}")
    unasked = unknown if facts.lists is None else None
    resting = _resting(facts)
    serving = unasked or resting or _serving(facts)
    progressing = stays or _progressing(facts)
    degraded = _degraded(facts) if held is None else _yes(held.reason, held.message)
    findings: dict[ConditionType, FoundCondition] = {
        "Ready": unknown or _ready(facts, serving),
        "Serving": serving,
        "WorkersReady": unasked or resting or _workers_ready(facts),
        "RouterReady": unasked or _router_ready(facts),
        "ScalingActive": stays or _scaling_active(facts),
        "Progressing": progressing,
        "Degraded": _with_failures(degraded, facts.snapshot, progressing),
    }
    if (gateway := _gateway_ready(facts)) is not None:
        findings["GatewayReady"] = gateway
    if (sandboxed := _sandboxed(facts)) is not None:
        findings["Sandboxed"] = sandboxed
    return [_condition(facts.snapshot, kind, findings[kind]) for kind in CONDITION_TYPES if kind in findings]


def _resting(facts: Facts) -> FoundCondition | None:
    status, staying, asleep = facts.sleeping.status, facts.staying, facts.asleep
    is_suspended = facts.snapshot.pool.spec.suspend
    if status is None or facts.ready > 0 or is_suspended or not any(worker.answering for worker in staying):
        return None
    if status.holders:
        message = f"{asleep} replicas wake, for {len(status.holders)} processes that hold the pool awake"
        return _no(ConditionReason.WAKING, message) if asleep else None
    if status.state == "Asleep":
        return _no(ConditionReason.ASLEEP, f"{asleep} replicas sleep until a trainer holds the pool awake")
    message = f"{asleep} of {len(staying)} replicas sleep, others are on their way to it"
    return _no(ConditionReason.FALLING_ASLEEP, message)


def _ready(facts: Facts, serving: FoundCondition) -> FoundCondition:
    """Return whether the pool is what its spec declares, which may be to serve no requests."""
    if facts.snapshot.pool.spec.suspend:
        return _yes(ConditionReason.SUSPENDED, "spec.suspend is set: no replica is wanted")
    if not serving.holds and serving.reason not in NOTHING_WANTED:
        return serving
    blind = _not_for(_blind(facts)) if facts.scaling.desired == 0 else None
    gateway = _gateway_ready(facts)
    waits_for = gateway if gateway is not None and not gateway.holds else None
    return _stopped(facts) or blind or _rolling(facts, holds="False") or waits_for or replace(serving, status="True")


def _serving(facts: Facts) -> FoundCondition:
    snapshot, scaling, staying = facts.snapshot, facts.scaling, facts.staying
    if facts.ready > 0:
        return _yes(ConditionReason.SERVING, f"{facts.ready} of {scaling.desired} replicas serve")
    if snapshot.pool.spec.suspend:
        return _no(ConditionReason.SUSPENDED, "spec.suspend is set; set it to false to serve again")
    if not any(router.answering for router in snapshot.routers):
        return _not_for(facts.tls) or _no(ConditionReason.ROUTER_NOT_READY, "no router answers yet")
    if scaling.desired == 0:
        return _no(ConditionReason.AT_ZERO, f"the pool is at zero replicas: {scaling.reason}")
    if facts.failure is not None:
        return _no(facts.failure.reason, facts.failure.message)
    if facts.model.download is not None:
        return _no(ConditionReason.DOWNLOADING, in_words(facts.model.download))
    no_score = first_without_score(staying)
    reason = ConditionReason.NO_SCORE if no_score else ConditionReason.STARTING
    return _no(reason, f"{len(staying)} of {scaling.desired} replicas are starting{no_score}")


def _workers_ready(facts: Facts) -> FoundCondition:
    ready, desired = facts.ready, facts.scaling.desired
    if ready >= desired:
        return _yes(ConditionReason.ALL_READY, f"{ready} replicas serve")
    no_score, others = first_without_score(facts.staying), len(facts.staying) - ready
    waiting = ConditionReason.NO_SCORE if no_score else ConditionReason.STARTING
    message = f"{ready} of {desired} replicas serve, {others} are starting or failing{no_score}"
    return _no(facts.failure.reason if facts.failure else waiting, message)


def _router_ready(facts: Facts) -> FoundCondition:
    routers = [router for router in facts.snapshot.routers if not router.deleting]
    answering, wanted = sum(router.answering for router in routers), facts.snapshot.wanted_routers
    failure = next((router.failure for router in routers if router.failure), None)
    changes = len(facts.lists.joins) + len(facts.lists.leaves) if facts.lists is not None else 0
    if facts.tls is not None:
        return _no(facts.tls.reason, facts.tls.message)
    if answering < wanted:
        return _not_for(failure) or _no(ConditionReason.STARTING, f"{answering} of {wanted} routers answer")
    if changes:
        return _no(ConditionReason.UPDATING_WORKER_LIST, f"{changes} changes to the routers' lists")
    return _yes(ConditionReason.ALL_READY, f"{answering} routers hold the right workers")


def _gateway_ready(facts: Facts) -> FoundCondition | None:
    gateway = facts.snapshot.gateway
    if gateway is None:
        return None
    if (other := _not_for(facts.vocabulary)) is not None:
        return other
    if gateway.ready >= gateway.wanted:
        return _yes(ConditionReason.ALL_READY, f"{gateway.ready} gateways answer")
    return _not_for(gateway.failure) or _no(
        ConditionReason.STARTING, f"{gateway.ready} of {gateway.wanted} gateways answer"
    )


def _scaling_active(facts: Facts) -> FoundCondition:
    snapshot, scaling = facts.snapshot, facts.snapshot.pool.spec.autoscaling
    if snapshot.pool.spec.suspend:
        return _no(ConditionReason.SUSPENDED, facts.scaling.reason)
    if scaling is None:
        return _yes(ConditionReason.FIXED, "spec.replicas holds")
    missing = _needed_metrics(snapshot)
    if missing is not None:
        return _no(ConditionReason.METRICS_UNAVAILABLE, f"{missing}, so the size may grow and not shrink")
    if scaling.budget is not None:
        disagreement = budget.disagreement(scaling.budget, snapshot.pool.metadata.name, snapshot.claims)
        if disagreement is not None:
            return _yes(ConditionReason.BUDGET_DISAGREES, disagreement)
    if scaling.is_external and snapshot.pool.spec.replicas is None:
        message = "spec.replicas is not set, so the pool has no scale that an HPA could read: write it once, by"
        return _no(ConditionReason.REPLICAS_NOT_SET, f"{message} kubectl scale")
    if scaling.is_external:
        return _yes(ConditionReason.EXTERNAL, "spec.replicas holds, within bounds")
    types = [policy.type for policy in scaling.combined]
    # A policy alone is a reason of its own name.
    reason = next(reason for reason in ConditionReason if reason == (types[0] if len(types) == 1 else "Combined"))
    return _yes(reason, f"{facts.scaling.desired} replicas are wanted")


def _progressing(facts: Facts) -> FoundCondition:
    snapshot, rollout, download = facts.snapshot, facts.rollout, facts.model.download
    stopped = _stopped(facts)
    if stopped is not None:
        return stopped
    if rollout is not None and rollout.unschedulable is not None and rollout.replace_reason is None:
        message = f"a worker of revision {rollout.choice.target} fits nowhere: {rollout.unschedulable}"
        return _yes(ConditionReason.UNSCHEDULABLE, message)
    parity = rollout.memory.parity if rollout is not None else None
    if parity is not None and parity.outcome == "Waiting":
        return _yes(ConditionReason.CHECKING_PARITY, parity.message)
    rolling = _rolling(facts, holds="True")
    if rolling is not None:
        return replace(rolling, message=f"{rolling.message}; {in_words(download)}") if download else rolling
    if download is not None:
        return _yes(ConditionReason.DOWNLOADING, in_words(download))
    # Those that serve, and those that sleep.
    ready, there, desired = facts.ready + facts.asleep, len(facts.staying), facts.scaling.desired
    if ready < desired or there != desired:
        return _yes(ConditionReason.SCALING, f"{there} replicas, {ready} of them serving, {desired} wanted")
    if snapshot.pool.spec.rollout.paused:
        return _no(ConditionReason.PAUSED, "spec.rollout.paused is set; no other revision waits")
    if snapshot.offer is not None:
        message = (
            f"revision {snapshot.revision} runs as it was made; new workers would have {snapshot.offer}:"
            f" `rewardpool restart {snapshot.pool.key}` or a changed spec brings them"
        )
        return _no(ConditionReason.UPDATE_AVAILABLE, message)
    return _no(ConditionReason.STABLE, "nothing is changing")


def _rolling(facts: Facts, *, holds: Literal["True", "False"]) -> FoundCondition | None:
    rollout = facts.rollout
    if rollout is None or rollout.reason is None:
        return None
    message = f"rolling to revision {rollout.choice.target} from {', '.join(rollout.others)}"
    if rollout.replace_reason is not None:
        message += f"; replacing one by one, since there was no room: {rollout.replace_reason}"
    return FoundCondition(holds, rollout.reason, message)


def _stopped(facts: Facts) -> FoundCondition | None:
    if facts.rollout is None:
        return None
    snapshot, choice, present = facts.snapshot, facts.rollout.choice, facts.snapshot.revision
    failed = _failed_revision(facts.rollout)
    if failed is not None:
        return failed
    if choice.parity_unusable is not None:
        message = f"revision {present} waits: {choice.parity_unusable.message}"
        return _no(ConditionReason.GOLDEN_SET_UNUSABLE, message)
    if choice.overdue:
        return _no(choice.hopeless or ConditionReason.DEADLINE_EXCEEDED, overdue_message(snapshot, choice.parity))
    if snapshot.pool.spec.rollout.paused and choice.target != present:
        message = f"spec.rollout.paused is set: revision {choice.target} is kept, revision {present} waits"
        return _no(ConditionReason.PAUSED, message)
    return None


def _failed_revision(rollout: Rollout) -> FoundCondition | None:
    """A present revision that failed, rolled back or with nothing to go back to."""
    failed, parity = rollout.memory.failed, rollout.choice.parity_failed
    if failed is not None:
        message = f"revision {rollout.memory.stable_revision} serves until the spec changes, since {failed.revision}"
        return _no(ConditionReason.ROLLED_BACK, f"{message} failed: {failed.reason}: {failed.message}")
    if parity is not None:
        return _no(ConditionReason.PARITY_EXCEEDED, f"revision {parity.revision} gets no traffic: {parity.message}")
    return None


def _degraded(facts: Facts) -> FoundCondition:
    snapshot, rollout = facts.snapshot, facts.rollout
    failed = _failed_revision(rollout) if rollout is not None else None
    if rollout is not None and failed is not None:
        known = rollout.memory.failed
        compared = known is not None and known.reason == ConditionReason.PARITY_EXCEEDED
        return _yes(ConditionReason.PARITY_EXCEEDED if compared else failed.reason, failed.message)
    unusable = rollout.choice.parity_unusable if rollout is not None else None
    if unusable is not None:
        return _yes(ConditionReason.GOLDEN_SET_UNUSABLE, unusable.message)
    failure = (
        facts.tls
        or facts.failure
        or facts.agreement.problem
        or next((router.failure for router in snapshot.routers if router.failure), None)
        or facts.vocabulary
        or (snapshot.gateway and snapshot.gateway.failure)
        or _silence(snapshot)
        or _unlisted(facts)
        or _blind(facts)
        or _sleepless(snapshot)
    )
    return _no(ConditionReason.AS_EXPECTED) if failure is None else _yes(failure.reason, failure.message)


def _with_failures(degraded: FoundCondition, snapshot: Snapshot, progressing: FoundCondition) -> FoundCondition:
    """The condition with what of the pool could not be read or written, the first of it as its reason."""
    failures = [*snapshot.failures, *_refusals(snapshot, progressing)]
    if not failures:
        return degraded
    messages = [failure.message for failure in failures]
    if degraded.holds:
        messages.append(f"{degraded.reason}: {degraded.message}")
    # Of one message the end counts, where a program's last words are; of several the first is the most important.
    message = messages[0] if len(messages) == 1 else printable("; ".join(messages), most=MAX_MESSAGE, keep="head")
    return _yes(failures[0].reason, message)


def _refusals(snapshot: Snapshot, progressing: FoundCondition) -> list[Failure]:
    """Pods that Kubernetes does not make, the first refusal alone."""
    refused = [*(worker_set.refused for worker_set in snapshot.worker_sets), snapshot.routers_refused]
    # A rollout that makes the room by itself says so; there is nothing for people to do.
    makes_room = progressing.reason == ConditionReason.NO_ROOM
    found = (words for words in refused if words is not None and not (makes_room and lacks_room(words)))
    return [Failure(reason=ConditionReason.FAILED_CREATE, message=words) for words in found][:1]


def _silence(snapshot: Snapshot) -> Failure | None:
    """A router that trainers are or were sent to, and that has not answered for a while; None when all do."""
    silent = [
        router.name
        for router in snapshot.routers
        if not router.deleting and (router.exposed or router.concealed) and router.silent_seconds >= PATIENCE_SECONDS
    ]
    if not silent:
        return None
    message = f"router {', '.join(silent)} does not answer the operator"
    scaling = snapshot.pool.spec.autoscaling
    if scaling is not None and not scaling.is_external:
        message += "; until it does, the size may grow and not shrink"
    return Failure(reason=ConditionReason.ROUTER_SILENT, message=message)


def _unlisted(facts: Facts) -> Failure | None:
    late = {router.name for router in facts.snapshot.routers if router.late_seconds >= LISTING_PATIENCE_SECONDS}
    missing = [join for join in facts.lists.joins if join.router in late] if facts.lists is not None else []
    if not missing:
        return None
    message = f"router {missing[0].router} does not list {', '.join(join.worker_url for join in missing[:3])}"
    advice = "most often it does not reach it: a NetworkPolicy, a mesh, or a worker that does not answer"
    return Failure(reason=ConditionReason.WORKER_NOT_LISTED, message=f"{message}; {advice}")


def _sleepless(snapshot: Snapshot) -> Failure | None:
    if snapshot.holders is not None or not snapshot.pool.spec.engine.sleep.enabled:
        return None
    message = (
        "spec.engine.sleep.enabled is for a pool on one machine (`rewardpool up`): here nobody wakes an engine, so the"
        " workers are started as any others and stay awake; set it to false"
    )
    return Failure(reason=ConditionReason.NO_SLEEP_HERE, message=message)


def _sandboxed(facts: Facts) -> FoundCondition | None:
    """Return whether the function is sandboxed, by the worst worker; None where there is none."""
    pool = facts.snapshot.pool
    if pool.spec.model.type != "Function":
        return None
    failures = (one.failure for one in facts.staying if one.failure is not None)
    refused = next((one for one in failures if one.reason == ConditionReason.SANDBOX_UNAVAILABLE), None)
    if refused is not None:
        return _no(refused.reason, refused.message)
    said = [(one.unsandboxed, one.name) for one in facts.staying if one.unsandboxed is not None]
    if said:
        missing, name = max(said, key=lambda one: len(one[0]))
        lacking = sum(bool(words) for words, _ in said)
        if missing:
            others = f"; {lacking} of {len(said)} workers lack something" if len(said) > 1 else ""
            return _no(ConditionReason.WEAKENED, f"{name}: {'; '.join(missing)}{others}")
        return _yes(ConditionReason.ENFORCED, f"tried and refused on {len(said)} workers: key, other calls, the server")
    before = pool.status.condition("Sandboxed")
    if before is not None and before.observed_generation == pool.metadata.generation:
        return FoundCondition(before.status, before.reason, before.message)  # of workers that have left since
    return FoundCondition("Unknown", ConditionReason.NOT_TRIED, "no worker has answered yet")


def _needed_metrics(snapshot: Snapshot) -> str | None:
    spec = snapshot.pool.spec
    follows_load = spec.autoscaling is not None and not spec.autoscaling.is_external and not spec.suspend
    return missing_metrics(snapshot) if follows_load else None


def _blind(facts: Facts) -> Failure | None:
    """Metrics that have been missing for a while; None when they have not."""
    snapshot = facts.snapshot
    missing, before = _needed_metrics(snapshot), snapshot.pool.status.condition("ScalingActive")
    if missing is None or before is None or before.reason != ConditionReason.METRICS_UNAVAILABLE:
        return None
    if (snapshot.now - before.last_transition_time).total_seconds() < METRICS_PATIENCE_SECONDS:
        return None
    effect = "no request there wakes the pool" if facts.scaling.desired == 0 else "the size may grow and not shrink"
    message = f"{missing}: {effect} until the operator reaches ports 8080 and 9090 of its routers"
    return Failure(reason=ConditionReason.METRICS_UNAVAILABLE, message=message)


def _condition(snapshot: Snapshot, kind: ConditionType, finding: FoundCondition) -> Condition:
    before = snapshot.pool.status.condition(kind)
    unchanged = before is not None and before.status == finding.status
    return Condition(
        type=kind,
        status=finding.status,
        reason=str(finding.reason),
        message=printable(finding.message, most=MAX_MESSAGE, keep="tail"),
        last_transition_time=before.last_transition_time if before and unchanged else snapshot.now,
        observed_generation=snapshot.pool.metadata.generation,
    )
