"""News of a status: one event for each change that people want to find in `kubectl describe`.

That a pool starts, and that it serves, is no event: conditions say so, and since when. What it lost is one, since a
condition says nothing of it once it is back.
"""

from collections.abc import Sequence

from rewardpool_api import Condition, RewardPoolStatus
from rewardpool_api.reasons import NOTHING_WANTED, ConditionReason, EventReason
from rewardpool_api.status import DemandStatus, KeyRotation
from rewardpool_control.decide.drain import Drain
from rewardpool_control.decide.rollout import Rollout
from rewardpool_control.plan import Event

_WARNINGS = frozenset(
    {
        ConditionReason.NO_ROOM,
        ConditionReason.UNSCHEDULABLE,
        ConditionReason.DEADLINE_EXCEEDED,
        ConditionReason.GOLDEN_SET_UNUSABLE,
    }
)
_PROGRESSING_EVENTS = _WARNINGS | {ConditionReason.PAUSED}
# For these reasons the condition's event would be the same news twice.
_WITH_OWN_EVENT = frozenset({ConditionReason.ROLLED_BACK, ConditionReason.PARITY_EXCEEDED})


def events_of(
    old: RewardPoolStatus, status: RewardPoolStatus, leaving: Drain, rollout: Rollout, *, key_refused: str | None
) -> tuple[Event, ...]:
    """Return the events on the way from the old status to the new one."""
    return (
        *_scaling_events(old, status),
        *demand_events(old.demands, status.demands),
        *_rollout_events(old, status, rollout),
        *(_normal(EventReason.DRAINING, f"{name} leaves the routers") for name in leaving.drain),
        *condition_events(old, status),
        *key_events(old.auth.rotation, status.auth.rotation, refused=key_refused),
    )


def _normal(reason: EventReason, message: str) -> Event:
    return Event(type="Normal", reason=reason.value, message=message)


def _warning(reason: EventReason, message: str) -> Event:
    return Event(type="Warning", reason=reason.value, message=message)


def scaling_change(old: RewardPoolStatus, status: RewardPoolStatus) -> str | None:
    """A change of the wanted number of replicas in words; None when there is none."""
    now = status.scaling
    before = old.scaling.desired if old.scaling else 0
    if now is None or before == now.desired:
        return None
    asked = f", {now.recommended_replicas} recommended" if now.recommended_replicas not in (None, now.desired) else ""
    limit = f", limit {now.limit}" if now.limit is not None else ""
    return f"from {before} to {now.desired} replicas{asked}{limit}: {now.reason}"


def _scaling_events(old: RewardPoolStatus, status: RewardPoolStatus) -> list[Event]:
    """Return the news of the size; none of the first one, which is as the spec says."""
    change = scaling_change(old, status) if old.scaling is not None else None
    return [] if change is None else [_normal(EventReason.SCALED, change)]


def demand_events(old: Sequence[DemandStatus], new: Sequence[DemandStatus]) -> list[Event]:
    """Return the news of the jobs' demands: those that began, lapsed and ended, and malformed ones."""
    before = {demand.job: demand for demand in old}
    gone = [demand for demand in old if demand.job not in {demand.job for demand in new}]
    events = [_demand_event(demand, before.get(demand.job)) for demand in new]
    events += [_ended(demand.job, "took its demand away") for demand in gone if demand.state == "Live"]
    return [event for event in events if event is not None]


def _demand_event(now: DemandStatus, before: DemandStatus | None) -> Event | None:
    was = before.state if before is not None else None
    if now.state == "Ignored":
        is_known = before is not None and (before.state, before.message) == (now.state, now.message)
        return None if is_known else _warning(EventReason.DEMAND_IGNORED, f"{now.job} is no demand: {now.message}")
    if now.state == "Live" and was != "Live":
        back = " is back" if was == "Lapsed" else ""
        return _normal(EventReason.DEMAND_BEGAN, f"job {now.job}{back}: {_in_words(now)}")
    if now.state == "Lapsed" and was == "Live":
        return _normal(EventReason.DEMAND_LAPSED, f"job {now.job} did not renew its demand in time; it counts no more")
    if now.state == "Ended" and was == "Live":
        return _ended(now.job, "has ended")
    return None


def _ended(job: str, how: str) -> Event:
    return _normal(EventReason.DEMAND_ENDED, f"job {job} {how}")


def _in_words(demand: DemandStatus) -> str:
    # Without the moment of the next burst, which every renewal moves: an event that is said again, because the status
    # could not be written beside it, has to be the same one.
    samples = "samples" if demand.samples is None else f"{demand.samples} samples"
    return f"{demand.phase}, {samples} in a burst"


def _rollout_events(old: RewardPoolStatus, status: RewardPoolStatus, rollout: Rollout) -> list[Event]:
    now, before = rollout.memory, old.rollout
    events = []
    if rollout.others and old.current_revision and old.current_revision != status.current_revision:
        events.append(
            _normal(EventReason.ROLLOUT_STARTED, f"revision {old.current_revision} to {status.current_revision}")
        )
    outcome_before = (before.parity.revision, before.parity.outcome) if before and before.parity else None
    if now.parity is not None and outcome_before != (now.parity.revision, now.parity.outcome):
        said = f"revision {now.parity.revision}: {now.parity.message}"
        if now.parity.outcome == "Passed":
            events.append(_normal(EventReason.PARITY_PASSED, said))
        if now.parity.outcome == "Failed":
            events.append(_warning(EventReason.PARITY_EXCEEDED, said))
    if now.failed is not None and (before is None or before.failed != now.failed):
        said = f"revision {now.failed.revision} to {now.stable_revision}: {now.failed.reason}: {now.failed.message}"
        events.append(_warning(EventReason.ROLLED_BACK, said))
    if (
        before is not None
        and before.stable_revision is not None
        and now.stable_revision not in (None, before.stable_revision)
    ):
        events.append(
            _normal(
                EventReason.ROLLOUT_COMPLETED,
                f"revision {now.stable_revision} serves; before it, {before.stable_revision}",
            )
        )
    return events


def key_events(
    before: KeyRotation | None, after: KeyRotation | None, *, refused: str | None = None
) -> tuple[Event, ...]:
    """The beginning and the end of a change of keys, a wait that takes too long, an edit that was taken back."""
    found = [_warning(EventReason.KEY_REFUSED, refused)] if refused else []
    was, now = (before.phase if before else "Done"), (after.phase if after else "Done")
    if was == "Done" != now:
        message = "the keys change: workers learn the next one, then routers change to it one by one"
        found.append(_normal(EventReason.KEY_ROTATION_STARTED, message))
    if was == "Changing" and now == "Done":
        message = "all routers have the new keys; the previous ones are taken nowhere any more"
        found.append(_normal(EventReason.KEY_ROTATED, message))
    if after and after.message and now != "Done" and not (before and before.message):
        found.append(_warning(EventReason.KEY_ROTATION_WAITS, after.message))
    return tuple(found)


def condition_events(old: RewardPoolStatus, status: RewardPoolStatus) -> tuple[Event, ...]:
    """Return the news of the conditions."""
    events: list[Event] = []
    known = {condition.type: condition for condition in old.conditions}
    for condition in status.conditions:
        before = known.get(condition.type)
        if before is not None and (condition.status, condition.reason) == (before.status, before.reason):
            continue
        event = _condition_event(condition, before)
        if event is not None and condition.reason not in _WITH_OWN_EVENT:
            events.append(event)
    return tuple(events)


def _condition_event(now: Condition, before: Condition | None) -> Event | None:
    message = f"{now.reason}: {now.message}"
    match now.type, now.status:
        case "Serving", "False" | "Unknown" if before is not None and before.status == "True":
            return None if now.reason in NOTHING_WANTED else _warning(EventReason.NOT_SERVING, message)
        case "Degraded", "True" if now.reason in set(EventReason):
            return Event(type="Warning", reason=now.reason, message=now.message)
        case "Degraded", "True":
            return _warning(EventReason.DEGRADED, message)
        case "Degraded", _:
            return None if before is None else _normal(EventReason.NOT_DEGRADED, message)
        case "ScalingActive", _ if now.reason == ConditionReason.BUDGET_DISAGREES:
            return _warning(EventReason.BUDGET_DISAGREES, now.message)
        case "Progressing", holds if now.reason in _PROGRESSING_EVENTS:
            reason = EventReason.PROGRESSING if holds == "True" else EventReason.NOT_PROGRESSING
            return _warning(reason, message) if now.reason in _WARNINGS else _normal(reason, message)
        case _:
            return None
