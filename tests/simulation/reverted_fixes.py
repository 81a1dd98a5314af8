"""Faults that were fixed, each switched on again: what shows that the simulation finds such.

A fix has the steps by which a run finds its fault, and a word of the violation.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from simulation.faults import Step

from rewardpool_operator.autoscaler import recommend
from rewardpool_operator.kubernetes import client, leader, pool_reconciler
from rewardpool_operator.kubernetes.credentials import key_rotator
from rewardpool_operator.kubernetes.reconcilers import status, worker_lists

Patch = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True)
class Fix:
    """One fault that is no more."""

    name: str
    switch_off: Patch
    seed: int
    steps: tuple[Step, ...]
    finds: str
    """In the violation."""


def _answers_unread(patch: pytest.MonkeyPatch) -> None:
    """An answer without metadata reaches whoever asked."""
    patch.setattr(client, "checked_object", lambda _, answer: answer)


def _whole_lists(patch: pytest.MonkeyPatch) -> None:
    """Without an API server an operator changes every router's list."""

    async def restore(self: Any, plan: Any, _: Any) -> bool:
        return bool(await self.reconcile(plan))

    patch.setattr(worker_lists.WorkerListReconciler, "restore", restore)


def _lease_made_at_once(patch: pytest.MonkeyPatch) -> None:
    """Whoever makes a Lease that was deleted acts at once."""

    def was_made(self: Any) -> None:
        self._acts_from = -math.inf

    patch.setattr(leader.Leadership, "_was_made", was_made)


def _keys_stay(patch: pytest.MonkeyPatch) -> None:
    """A pool of the same name has the keys of the one that was deleted."""
    patch.setattr(key_rotator, "is_another_pools", lambda *_: False)
    _uids_unread(patch)


def _uids_unread(patch: pytest.MonkeyPatch) -> None:
    """What was decided about a pool is written to another one of its name."""
    for module in (pool_reconciler, status):
        patch.setattr(module, "check_uid", lambda *_: None)


def _silent_jobs_uncounted(patch: pytest.MonkeyPatch) -> None:
    """A job that announces nothing is none."""
    patch.setattr(recommend, "_with_unannounced", lambda _scaling, _signals, memory, _plans: memory)


def step(at: float, kind: str, seconds: float = 1.0, seed: int = 1) -> Step:
    return Step(at, kind, seconds, seed)


FIXES = (
    Fix(
        "answers of the API server are read at one place",
        _answers_unread,
        seed=9,
        steps=(step(60, "api: 200-empty-object", 20, seed=4),),
        finds="ended: KeyError",
    ),
    Fix(
        "whoever makes a Lease that was deleted waits",
        _lease_made_at_once,
        seed=9,
        steps=tuple(step(at, "operator: lease deleted") for at in (60, 80, 100)),
        finds="two operators lead at once",
    ),
    Fix(
        "without an API server only empty routers are filled",
        _whole_lists,
        seed=5,
        steps=(step(60, "operator: partitioned", 60), step(75, "worker: crashes"), step(80, "people: edit")),
        finds="does not lead, and changes the list",
    ),
    Fix(
        "a pool made anew has keys of its own",
        _keys_stay,
        seed=9,
        steps=(step(60, "people: recreate"),),
        finds="has the key of a pool that was deleted",
    ),
    Fix(
        "a job that announces nothing is a job",
        _silent_jobs_uncounted,
        seed=79,
        steps=(step(600, "api: backed up"),),
        finds="goes from 1 to zero",
    ),
)
