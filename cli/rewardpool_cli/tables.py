"""A pool, or several, as tables."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from rewardpool_api import Condition, RewardPool, names
from rewardpool_api.costs import CostStatus
from rewardpool_api.first_score import FirstScoreStatus
from rewardpool_api.reasons import NOTHING_WANTED
from rewardpool_api.status import DemandStatus, GatewayStatus, LoadStatus, ScalingDecision
from rewardpool_cli.screens import PHASE_STYLES, wanted_replicas

DEMAND_STYLES = {"Live": "green", "Lapsed": "yellow", "Ignored": "red"}
GOOD_WHEN_FALSE = frozenset({"Progressing", "Degraded"})


@dataclass(frozen=True, kw_only=True)
class ProcessRow:
    """A worker or router, wherever it runs."""

    name: str
    component: str
    phase: str
    restarts: int = 0
    in_flight: int | None = None
    revision: str = ""
    place: str = ""
    age_seconds: int | None = None


def processes_of(pool: RewardPool) -> list[ProcessRow]:
    """The workers of a pool on this machine."""
    return [
        ProcessRow(
            name=worker.name,
            component=names.COMPONENT_WORKER,
            phase=worker.phase,
            restarts=worker.restarts,
            in_flight=worker.in_flight,
            revision=worker.revision,
            place="" if worker.pid is None else f"pid {worker.pid}",
        )
        for worker in pool.status.workers
    ]


def pool_screen(
    pool: RewardPool, processes: Sequence[ProcessRow], *, where: str, now: datetime | None = None
) -> RenderableType:
    """One pool: some lines, its workers and routers, what jobs announce and cost, its conditions."""
    status = pool.status
    parts: list[RenderableType] = [_headline(pool, where)]
    if status.rollout is not None and status.rollout.stable_revision not in (None, status.current_revision):
        parts.append(Text(f"revision {status.current_revision} · stable revision {status.rollout.stable_revision}"))
    if status.first_score is not None:
        parts.append(Text(first_score_line(status.first_score)))
    parts += ["", _process_table(processes)] if processes else []
    now = now or datetime.now(UTC)
    parts += ["", _demand_table(status.demands, now)] if status.demands else []
    parts += ["", _cost_table(status.costs, now)] if status.costs is not None else []
    return Group(*parts, "", _condition_table(status.conditions))


def _headline(pool: RewardPool, where: str) -> RenderableType:
    status = pool.status
    load = f" · {load_line(status.load)}" if status.load else ""
    first = Text.assemble(
        (pool.key, "bold"),
        f"  {pool.spec.model.type} {pool.spec.model.source} on {pool.spec.engine.name}, {where}",
    )
    parked = f", {status.parked_replicas} parked" if status.parked_replicas else ""
    counts = f"{status.ready_replicas}/{wanted_replicas(pool)} ready{parked}{load}"
    urls = [Text(f"url {status.url or '(none: it does not run)'}")]
    if status.gateway is not None:
        urls.append(Text(f"gateway {gateway_line(status.gateway)}"))
    return Group(first, Text(counts), *urls)


def load_line(load: LoadStatus) -> str:
    """Return the requests at the routers, and their tokens where these are known."""
    tokens = [f" of {count} tokens" if count else "" for count in (load.tokens_in_flight, load.tokens_waiting)]
    return f"{load.in_flight} in flight{tokens[0]}, {load.waiting} waiting{tokens[1]}"


def gateway_line(gateway: GatewayStatus) -> str:
    """Return where the gateway is, and its key."""
    where = gateway.key_file or f"the Secret {gateway.secret_name}"
    return f"{gateway.url}, its key in {where}"


def first_score_line(first: FirstScoreStatus) -> str:
    """A first score in a line: all of it, and the parts that took time, the longest first."""
    taken = sorted(((seconds, part) for part, seconds in first.parts if seconds), reverse=True)
    parts = ", ".join(f"{part} {seconds:.1f} s" for seconds, part in taken)
    waits = f", waits for {first.waits_for.lower()} now" if first.waits_for is not None else ""
    return f"first score {first.seconds:.1f} s{waits}" + (f": {parts}" if parts else "")


def _process_table(processes: Sequence[ProcessRow]) -> Table:
    table = _table("name", "part", "phase")
    for title in ("restarts", "in flight", "age"):
        table.add_column(title, justify="right")
    for title in ("revision", "where"):
        table.add_column(title, no_wrap=True)
    for item in sorted(processes, key=lambda found: (found.component, found.name)):
        table.add_row(
            item.name,
            item.component,
            Text(item.phase, style=PHASE_STYLES.get(item.phase, "red")),
            str(item.restarts),
            "" if item.in_flight is None else str(item.in_flight),
            "" if item.age_seconds is None else short_time(item.age_seconds),
            item.revision,
            item.place,
        )
    return table


def _demand_table(demands: Sequence[DemandStatus], now: datetime) -> Table:
    table = _table("job", "state", "phase")
    table.add_column("samples", justify="right")
    table.add_column("next burst")
    table.add_column("replicas", justify="right")
    table.add_column("message", overflow="fold")
    for demand in demands:
        table.add_row(
            Text(demand.job),
            Text(demand.state, style=DEMAND_STYLES.get(demand.state, "dim")),
            f"{demand.phase or ''}{', stalled' if demand.stalled else ''}",
            "" if demand.samples is None else str(demand.samples),
            next_burst(demand, now),
            str(demand.replicas) if demand.state == "Live" else "",
            Text(demand.message),
        )
    return table


def _cost_table(costs: CostStatus, now: datetime) -> Table:
    table = _table("job")
    table.add_column("samples", justify="right")
    table.add_column("GPU-hours", justify="right")
    seconds = max(0.0, (now - costs.until).total_seconds())
    for share in costs.shares():
        samples = "" if share.samples is None else str(share.samples)
        table.add_row(Text(share.name), samples, f"{(share.gpu_seconds + share.gpus * seconds) / 3600:.2f}")
    return table


def next_burst(demand: DemandStatus, now: datetime) -> str:
    """Return when the job's next burst begins, in words; empty where that is unknown."""
    if demand.state != "Live":
        return ""
    if demand.phase == "Rollout":
        return "now"
    if demand.next_burst is None:
        return "not known"
    seconds = (demand.next_burst - now).total_seconds()
    return (
        f"in {short_time(seconds)}" if seconds >= 1 else f"due for {short_time(-seconds)}" if seconds <= -1 else "now"
    )


def history_table(history: Sequence[ScalingDecision], now: datetime) -> Table:
    """The last changes of the wanted number of replicas, newest first."""
    table = _table("changed")
    table.add_column("replicas", justify="right")
    table.add_column("limit")
    table.add_column("why", overflow="fold")
    earlier: list[int | None] = [None, *(change.replicas for change in history)]
    for before, change in reversed(list(zip(earlier, history, strict=False))):
        ago = (now - change.time).total_seconds()
        size = str(change.replicas) if before is None else f"{before} → {change.replicas}"
        table.add_row(f"{short_time(max(0.0, ago))} ago", size, change.limit or "", Text(change.reason))
    return table


def _condition_table(conditions: Sequence[Condition]) -> Table:
    table = _table("condition", "status", "reason", "message")
    for condition in conditions:
        holds = (condition.status == "True") != (condition.type in GOOD_WHEN_FALSE)
        fine = holds or condition.reason in NOTHING_WANTED
        style = "green" if fine else "yellow" if condition.type == "Progressing" else "red"
        table.add_row(
            condition.type, Text(condition.status, style=style), Text(condition.reason), Text(condition.message)
        )
    return table


def pools_screen(pools: Sequence[RewardPool], *, wide: bool = False) -> RenderableType:
    """Several pools, a line each; `wide` says also what they serve, and in which revision."""
    titles = ("pool", "type", "ready", "in flight", "waiting", "url", "state")
    table = _table(*titles, *(("engine", "model", "revision") if wide else ()))
    for pool in sorted(pools, key=lambda found: found.key):
        ready, load = pool.status.condition("Ready"), pool.status.load
        table.add_row(
            pool.key,
            pool.spec.model.type,
            f"{pool.status.ready_replicas}/{wanted_replicas(pool)}",
            str(load.in_flight) if load else "",
            str(load.waiting) if load else "",
            pool.status.url or "",
            state_of(pool) if ready else "",
            *((pool.spec.engine.name, Text(pool.spec.model.source), pool.status.current_revision) if wide else ()),
        )
    return table


def state_of(pool: RewardPool) -> Text:
    """The reason of the condition Ready, or why it is not served as it should."""
    ready, degraded = pool.status.condition("Ready"), pool.status.condition("Degraded")
    if ready is None:
        return Text("not looked at", style="red")
    if degraded is not None and degraded.status == "True":
        return Text(degraded.reason, style="red")
    return Text(ready.reason, style="green" if ready.status == "True" else "yellow")


def short_time(seconds: float) -> str:
    """Seconds as kubectl writes an age: 45s, 12m, 3h, 5d."""
    for limit, unit, size in ((120, "s", 1), (7200, "m", 60), (172_800, "h", 3600)):
        if seconds < limit:
            return f"{int(seconds // size)}{unit}"
    return f"{int(seconds // 86_400)}d"


def _table(*titles: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in titles:
        table.add_column(title, overflow="fold")
    return table
