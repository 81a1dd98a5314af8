"""Comparison of the present revision's scores with the stable one's, or with the golden set.

The first worker of it that answers scores the golden set before any worker of it is in a router. Each text is compared
with its expected score, or else with what the stable revision made of it. A revision that passed once has passed:
what is changed about the golden set later is for the next one.
"""

from dataclasses import dataclass

from rewardpool_api.status import MAX_MESSAGE, ParityStatus
from rewardpool_control.golden_set import GoldenProblem, GoldenScores, GoldenSet, GoldenText
from rewardpool_control.plan import Measure
from rewardpool_control.snapshot import Snapshot, Worker

EXCERPT = 40  # characters


@dataclass(frozen=True, kw_only=True)
class Parity:
    """The outcome, and what is to be measured for it."""

    status: ParityStatus | None = None
    """None when nothing has to be compared."""
    hold: bool = False
    """The comparison needs what only the good revision has now, or cannot be made: leave the good revision as it is."""
    measure: tuple[Measure, ...] = ()

    @property
    def admits(self) -> bool:
        """True if workers of the present revision may be in routers."""
        return self.status is None or self.status.outcome == "Passed"


@dataclass(frozen=True)
class _Pair:
    item: GoldenText
    score: float
    reference: float
    origin: str

    @property
    def difference(self) -> float:
        return abs(self.score - self.reference)


def check_parity(snapshot: Snapshot, good: str | None) -> Parity:
    """Compare the present revision's scores, as far as they are known, with the stable one's, `good`."""
    asked, golden = snapshot.pool.spec.rollout.parity, snapshot.golden
    if asked is None or golden is None:
        return Parity()
    measure = _to_measure(snapshot, golden, good) if isinstance(golden, GoldenSet) else ()
    before = snapshot.pool.status.rollout.parity if snapshot.pool.status.rollout else None
    passed = before is not None and before.revision == snapshot.revision and before.outcome == "Passed"
    if passed or snapshot.revision == good:
        return Parity(status=before if passed else None, measure=measure)
    if isinstance(golden, GoldenProblem):
        return Parity(status=_status(snapshot, "Unusable", golden.message), hold=True)
    if good is not None and _lacks_reference(snapshot, golden, good):
        message = f"revision {good}, which serves, is scoring the golden set first"
        return Parity(status=_status(snapshot, "Waiting", message), hold=True, measure=measure)
    scores = _scores(snapshot, snapshot.revision, golden)
    if scores is None:
        message = f"no worker of revision {snapshot.revision} has scored the golden set yet"
        return Parity(status=_status(snapshot, "Waiting", message), measure=measure)
    old = _scores(snapshot, good, golden) if good is not None else None
    outcome, message = _compare(golden, scores, old, limit=asked.max_abs_diff, good=good)
    return Parity(status=_status(snapshot, outcome, message), measure=measure)


def admits(snapshot: Snapshot, revision: str, good: str | None) -> bool | None:
    """Return whether an earlier revision scores as it should; None when it may never have been compared."""
    asked, golden = snapshot.pool.spec.rollout.parity, snapshot.golden
    if asked is None or golden is None:
        return True
    scores = _scores(snapshot, revision, golden) if isinstance(golden, GoldenSet) else None
    if not isinstance(golden, GoldenSet) or scores is None:
        return None
    old = _scores(snapshot, good, golden) if good is not None else None
    return _compare(golden, scores, old, limit=asked.max_abs_diff, good=good)[0] == "Passed"


def _status(snapshot: Snapshot, outcome: str, message: str) -> ParityStatus:
    return ParityStatus.model_validate(
        {"revision": snapshot.revision, "outcome": outcome, "message": message[:MAX_MESSAGE]}
    )


def _scores(snapshot: Snapshot, revision: str, golden: GoldenSet) -> GoldenScores | None:
    worker_set = snapshot.set_of(revision)
    scores = worker_set.golden if worker_set else None
    known = scores is not None and scores.digest == golden.digest and len(scores.scores) == len(golden.texts)
    return scores if known else None


def _to_measure(snapshot: Snapshot, golden: GoldenSet, good: str | None) -> tuple[Measure, ...]:
    # The good revision is measured while it has workers: under Replace with one replica it will have none.
    revisions = {good} if good is not None and _needs_the_good_one(golden) else set()
    if snapshot.revision != good:
        revisions |= {snapshot.revision}
    return tuple(
        Measure(revision=revision, worker_url=worker.url)
        for revision in sorted(revisions)
        if _scores(snapshot, revision, golden) is None
        and (worker := _least_busy(snapshot, revision)) is not None
        and worker.url is not None
    )


def _needs_the_good_one(golden: GoldenSet) -> bool:
    return any(item.expected is None for item in golden.texts)


def _least_busy(snapshot: Snapshot, revision: str) -> Worker | None:
    able = [worker for worker in snapshot.workers_of(revision) if worker.available and worker.url]
    return min(able, key=lambda worker: (worker.in_flight or 0, worker.name), default=None)


def _lacks_reference(snapshot: Snapshot, golden: GoldenSet, good: str) -> bool:
    """Return whether the good revision could still score the texts, and has not."""
    unknown = _needs_the_good_one(golden) and _scores(snapshot, good, golden) is None
    # Without a worker that answers nothing waits for it: a broken revision never blocks the next.
    return unknown and snapshot.available_of(good) > 0


def _compare(
    golden: GoldenSet, new: GoldenScores, old: GoldenScores | None, *, limit: float, good: str | None
) -> tuple[str, str]:
    """Outcome and message."""
    unscored = [item for item, score in zip(golden.texts, new.scores, strict=True) if score is None]
    if unscored:
        why = f": {new.refusal}" if new.refusal else ""
        return "Failed", (
            f"{len(unscored)} of {len(golden.texts)} golden texts have no score,"
            f" first line {unscored[0].line} ({_excerpt(unscored[0])}){why}"
        )
    pairs = _pairs(golden, new, old, good)
    if not pairs:
        return "Passed", (
            "there was nothing to compare with: no line of the golden set has a score,"
            " and no good revision before has scored it"
        )
    worst = max(pairs, key=lambda pair: pair.difference)
    over = sum(pair.difference > limit for pair in pairs)
    numbers = (
        f"the largest difference is {worst.difference:.6g}, at line {worst.item.line} ({_excerpt(worst.item)}):"
        f" {worst.score:.6g} against {worst.reference:.6g} {worst.origin}"
    )
    if over:
        return "Failed", f"{over} of {len(pairs)} golden texts differ by more than {limit:g}; {numbers}"
    return "Passed", f"{len(pairs)} golden texts agree within {limit:g}; {numbers}"


def _pairs(golden: GoldenSet, new: GoldenScores, old: GoldenScores | None, good: str | None) -> list[_Pair]:
    references = old.scores if old is not None else (None,) * len(golden.texts)
    pairs = []
    for item, score, before in zip(golden.texts, new.scores, references, strict=True):
        reference, origin = (before, f"of revision {good}") if item.expected is None else (item.expected, "expected")
        if score is not None and reference is not None:
            pairs.append(_Pair(item, score, reference, origin))
    return pairs


def _excerpt(item: GoldenText) -> str:
    return repr(item.text if len(item.text) <= EXCERPT else item.text[:EXCERPT] + "…")
