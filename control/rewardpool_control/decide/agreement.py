"""Step 5: which workers score the probe text differently from the others of their revision.

One model gives one text one score. A worker that differs, by a broken GPU or a file that was read wrong, is kept out of
the routers' lists. Of each revision, one worker is the reference: the one that most others agree with, then one that is
in a list already, then the oldest. It is never barred, so a revision that serves goes on serving.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from rewardpool_api.certificate import allowed
from rewardpool_api.reasons import ConditionReason
from rewardpool_api.status import MAX_MESSAGE
from rewardpool_control.snapshot import Failure, Snapshot, Worker
from rewardpool_runtime.untrusted import printable


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """Workers that may not serve because their score differs."""

    barred: frozenset[str] = frozenset()
    problem: Failure | None = None
    """The differing workers and the numbers; None while all agree."""


@dataclass(frozen=True)
class _Probed:
    worker: Worker
    score: float
    listed: bool


def check_agreement(snapshot: Snapshot, *, apart: Collection[str] = ()) -> Agreement:
    """Compare the scores of the probe text within each revision; those `apart` do not serve for another reason."""
    if snapshot.pool.spec.model.type not in ("Discriminative", "Teacher"):
        return Agreement()
    dtype = snapshot.pool.spec.engine.dtype
    barred: set[str] = set()
    messages: list[str] = []
    for revision in sorted({worker.revision for worker in snapshot.workers}):
        # A worker whose score is not known is neither compared nor barred.
        probed = [
            _Probed(worker, worker.probe_score, snapshot.is_listed(worker))
            for worker in snapshot.workers_of(revision)
            if worker.available and worker.probe_score is not None and worker.name not in apart
        ]
        if len(probed) < 2:
            continue
        reference = _reference(probed, dtype)
        for one in probed:
            if not _agree(one, reference, dtype):
                barred.add(one.worker.name)
                messages.append(_in_words(one, reference, dtype))
    if not messages:
        return Agreement()
    message = printable("; ".join(messages), most=MAX_MESSAGE, keep="head")
    return Agreement(
        barred=frozenset(barred), problem=Failure(reason=ConditionReason.REPLICAS_DISAGREE, message=message)
    )


def _reference(probed: Iterable[_Probed], dtype: str) -> _Probed:
    everyone = sorted(probed, key=lambda one: (not one.listed, one.worker.created, one.worker.name))
    # Of equals, max returns the first.
    return max(everyone, key=lambda one: sum(_agree(one, other, dtype) for other in everyone))


def _agree(one: _Probed, other: _Probed, dtype: str) -> bool:
    return abs(one.score - other.score) <= allowed(dtype, one.score, other.score)


def _in_words(one: _Probed, reference: _Probed, dtype: str) -> str:
    return (
        f"worker {one.worker.name} is kept from the routers: it scores the probe text {one.score:.6g}, and"
        f" {reference.worker.name} of the same revision {reference.score:.6g};"
        f" they may differ by {allowed(dtype, one.score, reference.score):.3g}. Delete it to have it started anew"
    )
