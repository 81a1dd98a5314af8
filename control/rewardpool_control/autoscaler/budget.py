"""Budget of replicas that several pools share, of a namespace or of several, dealt out by need and rank.

Every pool of a budget deals all of it out, from the claims of all its pools, and takes what falls to itself:

    1  every pool's minimum
    2  what is wanted beyond that, by rank: pools for which a trainer waits, then the higher priority
       among equals: one replica each where a trainer waits, what each of them has already, then the rest by name

A trainer may wait for several pools at once. If some of them had all of the budget to the end of its burst, and another
one nothing, the burst would never end.

A pool that has more than its share shrinks to it. One that has less grows into what no pool holds, and no further:
replicas of another pool's share that are still there, draining or ending, are no room. So all pools together stay
within the budget while replicas change hands, as long as each sees what the others hold; old news of what they want
does no harm. Only what a rollout adds for a while comes on top.

Moving a replica costs a drain at one pool and a start at the other, so no other one is moved among equals, and a name
alone takes nothing from anybody. A rank can change back and forth, as a trainer waits for every few samples. A pool
from which replicas were taken therefore stands behind all others for `YIELD_SECONDS` with what it wants to have back:
the first taking is never delayed, and no two pools take from each other more often than that.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Final

from rewardpool_api.autoscaling import AutoscalingSpec, BudgetSpec
from rewardpool_api.status import DemandStatus, LoadStatus, ScalingDecision, ScalingStatus
from rewardpool_control.autoscaler.signals import Claim, Signals

# About what a start takes: taken back sooner, a replica would have started for nothing.
YIELD_SECONDS: Final = 60.0
NAMED: Final = 3


@dataclass(frozen=True, kw_only=True)
class Allowance:
    """Replicas that a pool may have of its budget now."""

    replicas: int
    reason: str | None = None
    """Reason for which it is less, in words; None when it is not."""
    taken_by: tuple[str, ...] = ()
    """Names of the pools that have the rest, most first; empty when nothing is missing."""


def allowance(mine: Claim, others: Sequence[Claim]) -> Allowance:
    """Return the allowance of a pool, by what all pools of the budget want and hold."""
    claims = [mine, *others]
    # Others may state other totals.
    total = min(claim.total for claim in claims)
    shares = _deal(_bids(claims), total)
    share, kept = shares[mine.pool], _kept(mine)
    if share <= kept:
        replicas = share
    else:
        room = total - sum(claim.allocated for claim in claims)
        replicas = kept + _deal(_growth(claims, shares), room)[mine.pool]
    if replicas >= mine.wanted:
        return Allowance(replicas=replicas)
    takers = _takers(mine, others, shares)
    return Allowance(
        replicas=replicas,
        reason=_reason(total, takers, to_come=share - replicas),
        taken_by=tuple(taker.claim.pool for taker in takers),
    )


def claim(
    *,
    pool: str,
    scaling: AutoscalingSpec,
    budget: BudgetSpec,
    wanted: int,
    there: int,
    decided: int,
    ending: int,
    stalled: bool,
    history: Sequence[ScalingDecision],
    now: datetime,
) -> Claim:
    """Return the claim of a pool, the same for its own pass and for the others; see `Claim`.

    `wanted` is before the budget; `there` counts what is declared too, and not what is `ending`.
    """
    return Claim(
        pool=pool,
        total=budget.max_replicas,
        priority=budget.priority,
        wanted=wanted,
        minimum=min(scaling.min_replicas, wanted),
        allocated=max(there, decided) + ending,
        ending=ending,
        stalled=stalled,
        yielded=has_yielded(history, now=now),
    )


def allowed(
    signals: Signals,
    *,
    scaling: AutoscalingSpec,
    budget: BudgetSpec,
    wanted: int,
    demands: Sequence[DemandStatus],
    before: ScalingStatus | None,
) -> Allowance:
    """Return the allowance for what the pool wants, as its own pass sees it.

    `wanted` is before the budget, and `before` the last decision.
    """
    mine = claim(
        pool=signals.pool,
        scaling=scaling,
        budget=budget,
        wanted=wanted,
        there=signals.there,
        decided=before.desired if before else 0,
        ending=signals.ending,
        stalled=is_stalled(demands, load=signals.load, serving=signals.serving),
        history=before.history if before else (),
        now=signals.now,
    )
    return allowance(mine, signals.others)


def wanted_without(scaling: AutoscalingSpec, decided: ScalingStatus | None) -> int:
    """Return the size that a pool would have without the budget, by its last decision."""
    if decided is None:
        return scaling.min_replicas
    if decided.limit != "Budget":
        return decided.desired
    return min(scaling.max_replicas, max(decided.recommended_replicas or 0, decided.desired + 1))


def is_stalled(demands: Sequence[DemandStatus], *, load: LoadStatus | None, serving: int) -> bool:
    """Return whether a trainer waits: by its own word, or since no replica serves and requests are there."""
    said = any(demand.stalled for demand in demands if demand.state == "Live")
    return said or (load is not None and load.waiting > 0 and serving == 0)


def has_yielded(history: Sequence[ScalingDecision], *, now: datetime) -> bool:
    """Return whether a budget took replicas from the pool within the last `YIELD_SECONDS`."""
    since = now - timedelta(seconds=YIELD_SECONDS)
    return any(
        change.limit == "Budget" and change.replicas < before.replicas and change.time > since
        for before, change in pairwise(history)
    )


def disagreement(budget: BudgetSpec, pool: str, others: Sequence[Claim]) -> str | None:
    """Return the totals that pools state, in words that stay the same while they do; None when all state the same."""
    stated: dict[int, list[str]] = {budget.max_replicas: [pool]}
    for claim in others:
        stated.setdefault(claim.total, []).append(claim.pool.rpartition("/")[2])
    if len(stated) == 1:
        return None
    parts = [f"{total} by {_some(sorted(pools))}" for total, pools in sorted(stated.items())]
    return f"maxReplicas of budget {budget.name} is {', '.join(parts)}; {min(stated)} holds"


@dataclass(frozen=True, kw_only=True, order=True)
class _Bid:
    """A pool wants some of the budget; what is first in order is served first."""

    round: int
    unstalled: bool
    behind: int
    is_further: bool
    """It is for more than the one replica without which a trainer waits for ever."""
    beyond_kept: bool
    pool: str
    up_to: int


def _bids(claims: Sequence[Claim]) -> list[_Bid]:
    return sorted(bid for claim in claims for bid in _bids_of(claim))


def _bids_of(claim: Claim) -> tuple[_Bid, ...]:
    def bid(up_to: int, *, turn: int, is_first: bool = False, beyond_kept: bool = False) -> _Bid:
        return _Bid(
            round=turn,
            unstalled=not claim.stalled,
            behind=-claim.priority,
            is_further=not is_first,
            beyond_kept=beyond_kept,
            pool=claim.pool,
            up_to=up_to,
        )

    first = min(int(claim.stalled), claim.wanted)
    later = 2 if claim.yielded else 1
    return (
        bid(min(claim.minimum, claim.wanted), turn=0),
        bid(min(_kept(claim), first), turn=1, is_first=True),
        bid(first, turn=later, is_first=True, beyond_kept=True),
        bid(min(_kept(claim), claim.wanted), turn=1),
        bid(claim.wanted, turn=later, beyond_kept=True),
    )


def _kept(claim: Claim) -> int:
    return claim.allocated - claim.ending


def _growth(claims: Sequence[Claim], shares: Mapping[str, int]) -> list[_Bid]:
    """Return the same bids, for what the pools lack of their shares."""
    kept = {claim.pool: _kept(claim) for claim in claims}
    return [replace(bid, up_to=min(bid.up_to, shares[bid.pool]) - kept[bid.pool]) for bid in _bids(claims)]


def _deal(bids: Sequence[_Bid], left: int) -> dict[str, int]:
    """Serve the bids in their order until nothing is left; pool -> what it got."""
    got: dict[str, int] = {}
    for bid in bids:
        before = got.setdefault(bid.pool, 0)
        more = max(0, min(bid.up_to - before, left))
        got[bid.pool] = before + more
        left -= more
    return got


@dataclass(frozen=True, kw_only=True)
class _Taker:
    claim: Claim
    shown: str
    share: int

    @property
    def replicas(self) -> int:
        return max(self.claim.allocated, self.share)

    @property
    def words(self) -> str:
        why = ", for which a trainer waits," if self.claim.stalled else ""
        return f"{self.shown}{why} {'is to have' if self.share > self.claim.allocated else 'has'} {self.replicas}"


def _takers(mine: Claim, others: Sequence[Claim], shares: Mapping[str, int]) -> list[_Taker]:
    """Return those pools, the ones with most first."""
    takers = [
        _Taker(claim=claim, shown=_shown(claim.pool, beside=mine.pool), share=shares[claim.pool]) for claim in others
    ]
    return sorted((taker for taker in takers if taker.replicas), key=lambda taker: (-taker.replicas, taker.claim.pool))


def _reason(total: int, takers: Sequence[_Taker], *, to_come: int) -> str:
    parts = [taker.words for taker in takers[:NAMED]]
    if len(takers) > NAMED:
        rest = takers[NAMED:]
        parts.append(f"{len(rest)} more pools have {sum(taker.replicas for taker in rest)}")
    words = f"the budget has {_replicas(total)}"
    if parts:
        words += f": {', '.join(parts)}"
    return f"{words}; {to_come} of them are to come here" if to_come else words


def _shown(pool: str, *, beside: str) -> str:
    """Return the name of a pool for readers of another one, who need not see the names of another namespace."""
    namespace, _, name = pool.rpartition("/")
    return name if namespace == beside.rpartition("/")[0] else f"a pool of {namespace}"


def _some(pools: Sequence[str]) -> str:
    more = f" and {len(pools) - NAMED} more" if len(pools) > NAMED else ""
    return " ".join(pools[:NAMED]) + more


def _replicas(count: int) -> str:
    return "1 replica" if count == 1 else f"{count} replicas"
