"""One pool as the page shows it: a pure function of what was seen and of what is remembered.

All that is decided about a pool (which word says its state, what of it is news) is decided here; the page's script only
draws it. Times are RFC 3339 as the status has them, or Unix seconds, and the browser makes ages of them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from rewardpool_api import Condition, RewardPool, RewardPoolStatus
from rewardpool_api.costs import Share
from rewardpool_api.reasons import NOTHING_WANTED
from rewardpool_api.status import DemandStatus, ScalingDecision
from rewardpool_page.history import HistoryPoint, Remembered, Traffic
from rewardpool_page.source import PageWorker, Seen

Tone = Literal["good", "busy", "bad", "idle"]
"""Good: as asked for. Busy: on its way. Bad: a person is needed. Idle: nothing is wanted."""

MAX_WORKERS: Final = 200
MAX_CHANGES: Final = 20
MAX_TEXT: Final = 2000
# Every other phase is trouble.
_PHASES: Final[dict[str, Tone]] = {
    "Ready": "good",
    "Starting": "busy",
    "Pending": "busy",
    "Draining": "busy",
    "Asleep": "idle",
    "Parked": "idle",
}
_DEMANDS: Final[dict[str, Tone]] = {"Live": "good", "Lapsed": "busy", "Ended": "idle", "Ignored": "bad"}
_GOOD_WHEN_FALSE: Final = frozenset({"Progressing", "Degraded"})


@dataclass(frozen=True, kw_only=True)
class Summary:
    """A line in the list of pools."""

    key: str
    """`namespace/name`."""
    type: str
    model: str
    engine: str
    state: str
    tone: Tone
    ready: int
    desired: int
    starting: int
    draining: int
    in_flight: int | None
    """Requests at workers; None while the routers do not say."""
    waiting: int | None
    tokens_in_flight: int | None
    """Of the requests at workers; None where no job says how long its samples are."""
    tokens_waiting: int | None
    per_second: float | None
    mean_seconds: float | None
    p95_seconds: float | None


@dataclass(frozen=True, kw_only=True)
class ReplicaView(PageWorker):
    """A worker with the colour of its phase."""

    tone: Tone


@dataclass(frozen=True, kw_only=True)
class Job:
    """A training job that announces to the pool."""

    name: str
    state: str
    tone: Tone
    phase: str
    samples: int | None
    next_burst: float | None
    """Unix time in seconds; None where nobody knows."""
    replicas: int
    stalled: bool
    score_wait: float | None
    """Share of its latest step in which it waited for nothing but scores; None where it does not say."""
    scores: dict[str, Any] | None
    message: str


@dataclass(frozen=True, kw_only=True)
class Sizing:
    """Reason why the pool has its size."""

    reason: str
    limit: str | None
    recommended: int | None
    least: int | None
    most: int | None
    """None for a pool that does not scale itself."""
    policies: tuple[str, ...]
    service_rate: float | None
    """Requests per second of one busy replica, as measured."""
    start_seconds: float | None
    idle_since: float | None


@dataclass(frozen=True, kw_only=True)
class Fact:
    """A condition."""

    type: str
    status: str
    reason: str
    message: str
    tone: Tone
    since: float


@dataclass(frozen=True, kw_only=True)
class PoolEvent:
    """Something that happened to the pool."""

    at: float
    what: str
    why: str
    tone: Tone


@dataclass(frozen=True, kw_only=True)
class RolloutView:
    """Revisions of the pool."""

    current: str
    stable: str | None
    failed: str | None
    message: str
    parity: str | None


@dataclass(frozen=True, kw_only=True)
class DownloadView:
    """Progress of the model."""

    phase: str
    done_bytes: int
    total_bytes: int | None
    note: str


@dataclass(frozen=True, kw_only=True)
class Detail:
    """A pool as a whole."""

    summary: Summary
    url: str | None
    revision: str
    gpus: int
    router: str
    max_model_len: int | None
    sleep: str | None
    headline: str
    """Why nothing is served, or what a person is needed for; empty for a pool in good order, or on its way to it."""
    sizing: Sizing | None
    workers: tuple[ReplicaView, ...]
    more_workers: int
    jobs: tuple[Job, ...]
    costs: tuple[Share, ...]
    costs_since: float | None
    """Unix time in seconds; None for a pool without GPUs."""
    costs_until: float | None
    rollout: RolloutView | None
    download: DownloadView | None
    conditions: tuple[Fact, ...]
    changes: tuple[PoolEvent, ...]
    """Newest first."""
    logs: tuple[str, ...]


def summary_of(pool: RewardPool, traffic: Traffic | None) -> Summary:
    """A pool as a line of the list."""
    status = pool.status
    state, tone = state_of(status)
    return Summary(
        key=pool.key,
        type=pool.spec.model.type,
        model=pool.spec.model.source,
        engine=pool.spec.engine.name,
        state=state,
        tone=tone,
        ready=status.ready_replicas,
        desired=desired_of(status),
        starting=max(0, status.replicas - status.ready_replicas),
        draining=status.draining_replicas,
        in_flight=status.load.in_flight if status.load else None,
        waiting=status.load.waiting if status.load else None,
        tokens_in_flight=status.load.tokens_in_flight if status.load else None,
        tokens_waiting=status.load.tokens_waiting if status.load else None,
        per_second=traffic.per_second if traffic else None,
        mean_seconds=traffic.mean_seconds if traffic else None,
        p95_seconds=traffic.p95_seconds if traffic else None,
    )


def detail_of(seen: Seen, remembered: Remembered) -> Detail:
    """A pool as a whole; a message that several parts have stands in the first one alone."""
    pool, status, texts = seen.pool, seen.pool.status, _Texts()
    shown = sorted(seen.workers, key=lambda worker: (_phase_tone(worker) == "good", _by_number(worker.name)))
    return Detail(
        summary=summary_of(pool, remembered.traffic),
        url=status.url,
        revision=status.current_revision,
        gpus=pool.spec.worker.gpus,
        router=pool.spec.router.flavor,
        max_model_len=status.model.max_model_len if status.model else None,
        sleep=status.sleep.state if status.sleep else None,
        headline=texts.first(_headline(status)),
        sizing=_sizing(pool, texts),
        workers=tuple(ReplicaView(**vars(worker), tone=_phase_tone(worker)) for worker in shown[:MAX_WORKERS]),
        more_workers=max(0, len(shown) - MAX_WORKERS),
        jobs=tuple(_job(demand) for demand in status.demands),
        costs=tuple(status.costs.shares()) if status.costs else (),
        costs_since=status.costs.since.timestamp() if status.costs else None,
        costs_until=status.costs.until.timestamp() if status.costs else None,
        rollout=_rollout(status, texts),
        download=_download(status),
        conditions=tuple(_fact(condition, texts) for condition in status.conditions),
        changes=tuple(sorted(_changes(status), key=lambda change: -change.at)[:MAX_CHANGES]),
        logs=tuple(seen.logs),
    )


def state_of(status: RewardPoolStatus) -> tuple[str, Tone]:
    """A word for how the pool is, and its colour."""
    ready, degraded = status.condition("Ready"), status.condition("Degraded")
    if ready is None:
        return "NotSeen", "bad"
    if degraded is not None and degraded.status == "True":
        return degraded.reason, "bad"
    serving = status.condition("Serving")
    if ready.status == "True":
        return ready.reason, "idle" if ready.reason in NOTHING_WANTED else "good"
    moves = status.condition("Progressing")
    if (moves is not None and moves.status == "True") or (serving is not None and serving.status == "True"):
        return ready.reason, "busy"
    # Somebody stopped it, or it cannot go on.
    return ready.reason, "idle" if ready.reason == "Stopped" else "busy" if ready.reason in (
        "Starting",
        "NoScore",
    ) else "bad"


def desired_of(status: RewardPoolStatus) -> int:
    """Return the wanted number of replicas."""
    return status.scaling.desired if status.scaling else status.replicas


def desired_steps(history: Sequence[ScalingDecision], samples: Sequence[HistoryPoint]) -> list[tuple[float, int]]:
    """The desired size over time: as the status remembers it before the first sample, then as it was sampled."""
    first = samples[0].at if samples else float("inf")
    decided = [(one.time.timestamp(), one.replicas) for one in history]
    steps = [(at, replicas) for at, replicas in decided if at < first]
    for sample in samples:
        if not steps or steps[-1][1] != sample.desired:
            # A decision is dated to the moment, a sample is not.
            dated = [at for at, replicas in decided if replicas == sample.desired and at <= sample.at]
            after = steps[-1][0] if steps else 0.0
            steps.append((max((at for at in dated if at > after), default=sample.at), sample.desired))
    return steps


class _Texts:
    def __init__(self) -> None:
        self._shown: set[str] = set()

    def first(self, text: str) -> str:
        """Return the text, cut where it is long; empty where it was given before."""
        if text in self._shown:
            return ""
        self._shown.add(text)
        return _cut(text)


def _headline(status: RewardPoolStatus) -> str:
    if state_of(status)[1] not in ("bad", "idle"):
        return ""
    degraded, ready = status.condition("Degraded"), status.condition("Ready")
    said = degraded if degraded is not None and degraded.status == "True" else ready
    return said.message if said else "no operator or supervisor has seen this pool yet"


def _sizing(pool: RewardPool, texts: _Texts) -> Sizing | None:
    scaling, spec = pool.status.scaling, pool.spec.autoscaling
    if scaling is None:
        return None
    return Sizing(
        reason=texts.first(scaling.reason),
        limit=scaling.limit,
        recommended=scaling.recommended_replicas,
        least=spec.min_replicas if spec else None,
        most=spec.max_replicas if spec else None,
        policies=tuple(policy.type for policy in spec.combined) if spec else (),
        service_rate=scaling.service_rate.samples_per_second if scaling.service_rate else None,
        start_seconds=max((start.seconds for start in scaling.starts), default=None),
        idle_since=scaling.idle_since.timestamp() if scaling.idle_since else None,
    )


def _job(demand: DemandStatus) -> Job:
    return Job(
        name=demand.job,
        state=demand.state,
        tone="busy" if demand.stalled and demand.state == "Live" else _DEMANDS[demand.state],
        phase=demand.phase or "",
        samples=demand.samples,
        next_burst=demand.next_burst.timestamp() if demand.next_burst and demand.state == "Live" else None,
        replicas=demand.replicas,
        stalled=demand.stalled,
        score_wait=demand.score_wait,
        scores=demand.scores.model_dump() if demand.scores else None,
        message=demand.message,
    )


def _rollout(status: RewardPoolStatus, texts: _Texts) -> RolloutView | None:
    rollout = status.rollout
    if rollout is None:
        return None
    failed = rollout.failed
    return RolloutView(
        current=status.current_revision,
        stable=rollout.stable_revision,
        failed=failed.reason if failed else None,
        message=texts.first(failed.message if failed else rollout.replace_reason or ""),
        parity=f"{rollout.parity.outcome}: {_cut(rollout.parity.message)}" if rollout.parity else None,
    )


def _download(status: RewardPoolStatus) -> DownloadView | None:
    found = status.model.download if status.model else None
    if found is None:
        return None
    return DownloadView(
        phase=found.phase, done_bytes=found.downloaded_bytes, total_bytes=found.total_bytes, note=found.note or ""
    )


def _fact(condition: Condition, texts: _Texts) -> Fact:
    return Fact(
        type=condition.type,
        status=condition.status,
        reason=condition.reason,
        message=texts.first(condition.message),
        tone=_tone(condition),
        since=condition.last_transition_time.timestamp(),
    )


def _tone(condition: Condition) -> Tone:
    if condition.status == "Unknown":
        return "busy"
    if (condition.status == "True") != (condition.type in _GOOD_WHEN_FALSE):
        return "good"
    if condition.reason in NOTHING_WANTED or condition.reason == "Stopped":
        return "idle"
    return (
        "bad"
        if condition.type in ("Degraded", "Serving") and condition.reason not in ("Starting", "NoScore")
        else "busy"
    )


def _changes(status: RewardPoolStatus) -> Iterator[PoolEvent]:
    """Dated parts of a status: new sizes, conditions that turned, and a revision that failed; by their reasons."""
    scaling = status.scaling
    before: int | None = None
    for decision in scaling.history if scaling else ():
        what = f"{decision.replicas} replicas" if before is None else f"{before} → {decision.replicas} replicas"
        tone: Tone = "good" if before is None or decision.replicas > before else "idle"
        yield PoolEvent(at=decision.time.timestamp(), what=what, why=_cut(decision.reason), tone=tone)
        before = decision.replicas
    for condition in status.conditions:
        yield PoolEvent(
            at=condition.last_transition_time.timestamp(),
            what=f"{condition.type} is {condition.status}",
            why=condition.reason,
            tone=_tone(condition),
        )
    failed = status.rollout.failed if status.rollout else None
    if failed is not None:
        what = f"revision {failed.revision} failed"
        yield PoolEvent(at=failed.time.timestamp(), what=what, why=failed.reason, tone="bad")


def _phase_tone(worker: PageWorker) -> Tone:
    return _PHASES.get(worker.phase, "bad")


def _by_number(name: str) -> tuple[str, int, str]:
    """worker-10 after worker-9."""
    stem, _, number = name.rpartition("-")
    return (stem, int(number), "") if number.isdecimal() else (name, 0, name)


def _cut(text: str) -> str:
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 1]}…"
