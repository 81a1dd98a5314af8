"""Plan for a pool, the only output of `decide`; the operator or `rewardpool_local` carries it out."""

from dataclasses import dataclass
from typing import Literal

from rewardpool_api import RewardPoolStatus
from rewardpool_control.snapshot import WorkerSet


@dataclass(frozen=True, kw_only=True)
class Join:
    """Add a worker to a router's list."""

    router: str
    worker_url: str


@dataclass(frozen=True, kw_only=True)
class Leave:
    """Remove a worker from a router's list."""

    router: str
    worker_id: str
    worker_url: str


@dataclass(frozen=True, kw_only=True)
class Measure:
    """Score the golden set by a worker in the background, and keep the scores with its revision."""

    revision: str
    worker_url: str


@dataclass(frozen=True, kw_only=True)
class Event:
    """Something worth telling people, once."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One pass over one pool. The order of carrying out is the order of the fields; but that in a cluster, where the
    API server may take long, `joins` and `expose` come right after `leaves`.
    """

    leaves: tuple[Leave, ...] = ()
    drain: tuple[str, ...] = ()
    undrain: tuple[str, ...] = ()
    stop: tuple[str, ...] = ()
    """Workers, by name, that have left every router and have nothing in flight: stop them now."""
    worker_sets: tuple[WorkerSet, ...] = ()
    """Every revision that shall exist, with its number of workers (those in `stop` no longer counted)."""
    sleep: tuple[str, ...] = ()
    wake: tuple[str, ...] = ()
    hold_starts: bool = False
    """Start no worker that has no process, as one that died: the GPU is the trainer's now."""
    parked: frozenset[str] = frozenset()
    """Workers, by name, that stay out of the routers' lists until more are wanted."""
    joins: tuple[Join, ...] = ()
    expose: tuple[str, ...] = ()
    conceal: tuple[str, ...] = ()
    """Routers, by name, that trainers shall not be sent to any more; never all of them, so on one machine never any."""
    measure: tuple[Measure, ...] = ()
    protected_workers: int = 0
    protected_routers: int = 0
    protected_gateways: int = 0
    status: RewardPoolStatus
    events: tuple[Event, ...] = ()
