"""An `OpenReward` of one or several parts.

    gates, one after the other -> closed: its floor is the total, and nothing behind it is asked
                               -> open:   all other parts at once -> policy -> clip -> normalize -> weight -> combine
    the group's ratings -> post_process

Every episode goes this way by itself: its parts are asked when its own gates are open, whatever the others of its batch
wait for. Only a part that compares episodes needs them all, and waits until each of them has come to it or dropped out.

One part is a mixture of one, so that every reward behaves the same.
"""

import asyncio
import logging
import math
import time
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from numbers import Real
from typing import Any

from rewardpool._client.answering import Answering, answering
from rewardpool._client.pool import Pool
from rewardpool._client.rules.breaker import NOTHING_PROVEN, Breaker
from rewardpool._config import Penalty, RewardConfig, action_for
from rewardpool._rewards.config import without_steps
from rewardpool._rewards.episode import Episode
from rewardpool._rewards.groups import compared, in_order, siblings
from rewardpool._rewards.job_claims import ClaimStore, ClaimsUnavailableError, JobClaims
from rewardpool._rewards.ledger.record import LedgerScorer, judge_hash
from rewardpool._rewards.ledger.writer import Ledger, LedgerReport
from rewardpool._rewards.mixture import Scaling, clipped, combined, normalized
from rewardpool._rewards.one_revision import ROUNDS, Answered, differ, is_split, wanted_of
from rewardpool._rewards.part_config import FixedMoments, Part, PoolPart
from rewardpool._rewards.rating import Rating, StepReward
from rewardpool._rewards.requests import Asked, requests_by_pool
from rewardpool._rewards.reward_function import GroupRewardFunction, PartScore, RewardFunction, gathered
from rewardpool._rewards.running import RunningMoments
from rewardpool._rewards.score_noise import ScoreDtype
from rewardpool.errors import (
    ConfigError,
    FunctionFailedError,
    PoolError,
    RevisionGoneError,
    SampleError,
    ScoreError,
)
from rewardpool_runtime.functions.outcome import error_text
from rewardpool_runtime.json_values import finite, shown

log = logging.getLogger(__name__)

_NEVER_AGREED = f"two revisions of a pool scored its group, also when asked {ROUNDS} times"

PostProcess = Callable[[Sequence[Rating]], Sequence[float | None]]


@dataclass(frozen=True)
class OpenPart:
    config: Part
    path: str
    reward_function: RewardFunction | GroupRewardFunction
    score_dtype: ScoreDtype = "float32"
    # A function that always raises is as broken as a pool.
    breaker: Breaker = field(default_factory=lambda: Breaker(RewardConfig().breaker_threshold))
    pool: Pool | None = None

    @cached_property
    def scorer(self) -> LedgerScorer:
        if self.pool is None:
            return LedgerScorer(part=self.name, commits={})
        endpoint = self.pool.endpoint
        judge = self.config.judge if isinstance(self.config, PoolPart) and endpoint.model_type == "Generative" else None
        return LedgerScorer(
            part=self.name,
            pool=endpoint.pool,
            commits=_Commits(self.pool),
            judge=None if judge is None else judge_hash(judge),
            seed=None if judge is None else judge.seed,
        )

    # Once each: `isinstance` of a protocol takes 15 µs.

    @cached_property
    def scoring(self) -> RewardFunction | None:
        return self.reward_function if isinstance(self.reward_function, RewardFunction) else None

    @cached_property
    def comparison(self) -> GroupRewardFunction | None:
        return self.reward_function if isinstance(self.reward_function, GroupRewardFunction) else None

    @property
    def name(self) -> str:
        return self.config.name

    @property
    def needs_group(self) -> str | None:
        """The config's field by which only whole groups can be scored; None if single episodes can."""
        if self.config.normalize == "group":
            return f"{self.path}.normalize"
        return f"{self.path}.judge.against" if self.comparison else None


class _Commits(Mapping[str, str | None]):
    """Commit of the model of each revision of a pool, by the pool's present object."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    def __getitem__(self, revision: str) -> str | None:
        return self._known()[revision]

    def __iter__(self) -> Iterator[str]:
        return iter(self._known())

    def __len__(self) -> int:
        return len(self._known())

    def _known(self) -> dict[str, str | None]:
        return {one.revision: one.commit for one in self._pool.endpoint.revisions}


@dataclass(frozen=True)
class _Result:
    """Result of one part for one episode, after the failure policy and the clip."""

    raw: float | None
    used: float | None
    info: Mapping[str, Any] = field(default_factory=dict)
    error: SampleError | None = None
    # Clipped, as `used` is.
    steps: tuple[StepReward, ...] | None = None


@dataclass
class _Draft:
    episode: Episode
    place: int
    results: dict[str, _Result] = field(default_factory=dict)
    floor: float | None = None
    """The total that a closed gate gave; None where none is closed."""
    answering: Answering = field(default_factory=lambda: Answering({}))

    @property
    def is_open(self) -> bool:
        """True if no gate has closed, and every part that was asked has a score."""
        return self.floor is None and all(result.used is not None for result in self.results.values())


class CompositeReward:
    """Rates by its parts; `open_reward` makes it."""

    def __init__(
        self,
        parts: Sequence[OpenPart],
        *,
        combine: str = "sum",
        pools: Mapping[str, Pool] | None = None,
        asked: Sequence[Asked] = (),
        post_process: PostProcess | None = None,
        claims: ClaimStore | None = None,
        ledger: Ledger | None = None,
        path: str = "reward",
    ) -> None:
        self._gates = [part for part in parts if part.config.gate is not None]
        self._others = [part for part in parts if part.config.gate is None]
        self._parts = tuple(parts)
        self._combine = combine
        self._pools = dict(pools or {})
        self._asked = tuple(asked)
        self._post_process = post_process
        self._compares = any(part.comparison for part in parts)
        self._names = tuple(part.name for part in parts)
        self._process = next((part for part in parts if getattr(part.config, "supervision", None) == "process"), None)
        running = [part for part in parts if part.config.normalize == "running"]
        self._needs_version_for = f"{running[0].path}.normalize" if running else None
        self._moments = RunningMoments({part.name: part.config.clip for part in running}) if running else None
        grouping = [part.needs_group for part in parts]
        if post_process is not None:
            grouping.append(f"{path}.post_process")
        self._needs_group_for = next(filter(None, grouping), None)
        self._one_revision = frozenset(name for name, pool in self._pools.items() if pool.one_revision)
        self._claims = JobClaims(claims)
        self._ledger = ledger

    @property
    def names(self) -> tuple[str, ...]:
        return self._names

    @property
    def needs_group(self) -> bool:
        return self._needs_group_for is not None

    @property
    def moments(self) -> RunningMoments | None:
        return self._moments

    @property
    def pools(self) -> Mapping[str, Pool]:
        return self._pools

    @property
    def ledger(self) -> LedgerReport | None:
        return None if self._ledger is None else self._ledger.report()

    def flush_ledger(self) -> None:
        if self._ledger is not None:
            self._ledger.flush()

    def requests(self, *, members: int) -> Mapping[str, int]:
        return requests_by_pool(self._asked, members)

    async def rate(self, episode: Episode) -> Rating:
        self._refuse_single()
        [rating] = await self.rate_group([episode])
        return rating

    async def rate_next(self, episode: Episode) -> Rating:
        if episode.group is None or not self._one_revision:
            return await self.rate(episode)
        self._refuse_single()
        return self._ratings([await self._next_draft(episode, episode.group)])[0]

    async def _next_draft(self, episode: Episode, group: Hashable) -> _Draft:
        """Return a member that only the revisions of its group's first scored; without a score if that is not sure."""
        wanted = self._claims.for_group(group)
        for number in range(ROUNDS):
            [draft] = await self._drafts([episode], wanted)
            answered = self._answered(draft)
            try:
                wanted = await self._claims.enter(group, answered)
            except ClaimsUnavailableError as error:
                return self._unscored(episode, 0, str(error))
            if answered.gone or answered.agrees(wanted):
                return draft
            # Another member was answered first, or a gate that the first revision kept closed is open by the other.
            by_first = Answered({pool: frozenset({one}) for pool, one in wanted.items()})
            self._count_asked_again([by_first, answered], 1, is_first=number == 0)
        return self._unscored(episode, 0, _NEVER_AGREED)

    async def rate_group(self, episodes: Sequence[Episode]) -> list[Rating]:
        drafts = await self._drafts(episodes)
        if len(drafts) > 1:
            anew = await self._asked_again(episodes, [self._answered(draft) for draft in drafts])
            drafts = [anew.get(draft.place, draft) for draft in drafts]
        ratings = self._ratings(drafts)
        return _post_processed(ratings, self._post_process) if self._post_process and ratings else ratings

    async def rate_batch(self, episodes: Sequence[Episode]) -> list[Rating]:
        if self._needs_group_for is not None:
            groups = compared(episodes)
            rated = await gathered([self.rate_group([episodes[place] for place in group]) for group in groups])
            return in_order(groups, rated)
        ratings = self._ratings(await self._drafts(episodes))
        return await self._groups_settled(episodes, ratings)

    async def settled(self, episodes: Sequence[Episode], ratings: Sequence[Rating]) -> list[Rating]:
        answered = [Answered(self._to_agree(rating.revisions)) for rating in ratings]
        if self._needs_group_for is not None or not is_split(answered):
            return list(ratings)
        anew = await self._asked_again(episodes, answered)
        by_place = dict(zip(anew, self._ratings(list(anew.values())), strict=True))
        return [by_place.get(place, rating) for place, rating in enumerate(ratings)]

    async def _groups_settled(self, episodes: Sequence[Episode], ratings: list[Rating]) -> list[Rating]:
        if not differ(self._to_agree(rating.revisions) for rating in ratings):
            return ratings  # as nearly always, and then nobody asks which episodes are a group
        groups = siblings(episodes)
        rated = await gathered(
            [
                self.settled([episodes[place] for place in group], [ratings[place] for place in group])
                for group in groups
            ]
        )
        return in_order(groups, rated)

    async def _asked_again(self, episodes: Sequence[Episode], answered: list[Answered]) -> dict[int, _Draft]:
        """Return, by their place, the members of a group that had to be asked again; see `one_revision.py`."""
        anew: dict[int, _Draft] = {}
        for number in range(ROUNDS):
            if not is_split(answered):
                return anew
            wanted = wanted_of(answered)
            # A comparison shows all of them to one judge.
            again = [place for place, one in enumerate(answered) if self._compares or not one.agrees(wanted)]
            self._count_asked_again(answered, len(again), is_first=number == 0)
            drafts = [_Draft(episodes[place], place, answering=Answering(wanted)) for place in again]
            await self._fill_all(drafts)
            anew |= {draft.place: draft for draft in drafts}
            answered = [self._answered(anew[place]) if place in anew else one for place, one in enumerate(answered)]
        wanted = wanted_of(answered)
        split = [place for place, one in enumerate(answered) if not one.agrees(wanted)]
        for place in range(len(episodes)) if self._compares and split else split:
            anew[place] = self._unscored(episodes[place], place, _NEVER_AGREED)
        return anew

    def _unscored(self, episode: Episode, place: int, problem: str) -> _Draft:
        error = ScoreError(episode.label, problem)
        return _Draft(episode, place, results={name: _Result(None, None, error=error) for name in self._names})

    def _count_asked_again(self, answered: Sequence[Answered], samples: int, *, is_first: bool = True) -> None:
        for name, pool in self._pools.items():
            if differ({name: one.seen.get(name, ())} for one in answered):
                pool.count_asked_again(samples, groups=int(is_first))

    def _answered(self, draft: _Draft) -> Answered:
        errors = [one.error for one in draft.results.values()]
        gone = {error.pool: error.found for error in errors if isinstance(error, RevisionGoneError)}
        return Answered(self._to_agree(draft.answering.seen), gone)

    def _to_agree(self, revisions: Mapping[str, Collection[str]]) -> dict[str, frozenset[str]]:
        return {pool: frozenset(seen) for pool, seen in revisions.items() if pool in self._one_revision}

    def _refuse_single(self) -> None:
        if self._needs_group_for is not None:
            raise ConfigError(
                self._needs_group_for, "needs the whole group of a prompt, and single episodes are rated here"
            )

    async def _drafts(self, episodes: Sequence[Episode], wanted: Mapping[str, str] | None = None) -> list[_Draft]:
        if self._needs_version_for is not None and any(episode.version is None for episode in episodes):
            raise without_steps(self._needs_version_for)
        drafts = [_Draft(episode, place, answering=Answering(wanted or {})) for place, episode in enumerate(episodes)]
        await self._fill_all(drafts)
        return drafts

    def _ratings(self, drafts: Sequence[_Draft]) -> list[Rating]:
        _raise_unsettled(drafts, self._parts)
        totals = self._totals(drafts)
        return [self._rating(draft, total) for draft, total in zip(drafts, totals, strict=True)]

    async def _fill_all(self, drafts: Sequence[_Draft]) -> None:
        meetings = {
            part.name: _Meeting(part, part.comparison, expected=len(drafts), ledger=self._ledger)
            for part in self._parts
            if part.comparison
        }
        await gathered([self._fill(draft, meetings) for draft in drafts])

    async def _fill(self, draft: _Draft, meetings: Mapping[str, "_Meeting"]) -> None:
        with answering(draft.answering):
            for gate in self._gates:
                await self._ask(gate, draft, meetings, wanted=draft.is_open)
                _close(gate, draft)
            # Decided before any of the parts behind the gates answers: one without a score stops no other.
            passed = draft.is_open
            await gathered([self._ask(part, draft, meetings, wanted=passed) for part in self._others])

    async def _ask(self, part: OpenPart, draft: _Draft, meetings: Mapping[str, "_Meeting"], *, wanted: bool) -> None:
        """Enter what a part says of a draft, if that is wanted. Raises SampleError under `raise`, and PoolError."""
        if meeting := meetings.get(part.name):
            await meeting.join(draft, wanted=wanted)
        elif wanted and part.scoring:
            draft.results[part.name] = await _score(part, part.scoring, draft, self._ledger)

    def _totals(self, drafts: Sequence[_Draft]) -> list[float | None]:
        weighted: list[list[float]] = [[] for _ in drafts]
        for part in self._others:
            # An episode that another part leaves unscored is in no mean and no deviation: the others are scaled as if
            # their group had been without it.
            found = [
                (number, result.used)
                for number, draft in enumerate(drafts)
                if draft.is_open and (result := draft.results.get(part.name)) is not None and result.used is not None
            ]
            episodes = [drafts[number].episode for number, _ in found]
            values = self._normalized(part, episodes, [used for _, used in found])
            for (number, _), value in zip(found, values, strict=True):
                weighted[number].append(part.config.weight * value)
        return [
            combined(scores, how=self._combine) if draft.is_open else draft.floor
            for scores, draft in zip(weighted, drafts, strict=True)
        ]

    def _normalized(self, part: OpenPart, episodes: Sequence[Episode], values: Sequence[float]) -> Sequence[float]:
        match part.config.normalize:
            case "group":
                return normalized(values, dtype=part.score_dtype)
            case "running":
                return [
                    self._scale_of(part, episode).apply(value) for episode, value in zip(episodes, values, strict=True)
                ]
            case FixedMoments(mean=mean, std=std):
                return [Scaling(mean, std).apply(value) for value in values]
            case None:
                return values

    def _scale_of(self, part: OpenPart, episode: Episode) -> Scaling:
        if self._moments is None or episode.version is None:  # `rate_group` has refused that
            raise without_steps(f"{part.path}.normalize")
        return self._moments.scale_of(part.name, episode.version)

    def _rating(self, draft: _Draft, total: float | None) -> Rating:
        if total is not None and not math.isfinite(total):
            problem = f"its weighted scores come to {total}; lower the weights, or clip"
            raise ScoreError(draft.episode.label, problem, fault="verifier")
        results = {name: draft.results.get(name) for name in self._names}
        return Rating(
            total=total,
            components={name: result.raw if result else None for name, result in results.items()},
            info={name: result.info for name, result in results.items() if result and result.info},
            revisions={pool: tuple(sorted(seen)) for pool, seen in draft.answering.seen.items()},
            steps=None if total is None else self._step_rewards(draft, total),
            error=next((result.error for result in results.values() if result and result.error), None),
        )

    def _step_rewards(self, draft: _Draft, total: float) -> tuple[StepReward, ...] | None:
        """Return the rewards of steps under process supervision, which has one part."""
        part = self._process
        if part is None:
            return None
        steps = draft.results[part.name].steps
        if steps is None:  # a penalty
            return (StepReward(value=total, end=len(draft.episode.response)),)
        return tuple(replace(step, value=part.config.weight * step.value) for step in steps)


class _Meeting:
    """Rendezvous of the drafts of one call at a part that compares them: all come, and the last one begins it."""

    def __init__(self, part: OpenPart, function: GroupRewardFunction, *, expected: int, ledger: Ledger | None) -> None:
        self._part = part
        self._ledger = ledger
        self._function = function
        self._missing = expected
        self._drafts: list[_Draft] = []
        self._done = asyncio.Event()

    async def join(self, draft: _Draft, *, wanted: bool) -> None:
        """Come, to be compared or not; returns when the comparison is done, for those that are part of it."""
        self._missing -= 1
        if wanted:
            self._drafts.append(draft)
        if not self._missing:
            await self._compare()
        elif wanted:
            await self._done.wait()  # an error cancels who waits, as they are gathered

    async def _compare(self) -> None:
        if self._drafts:
            drafts = sorted(self._drafts, key=lambda draft: draft.place)
            noted = Answering(drafts[0].answering.wanted, notes_workers=self._ledger is not None)
            began = time.monotonic()
            with _under_way(self._part, len(drafts)), answering(noted):
                outcomes = await self._function.compare([draft.episode for draft in drafts])
                for draft, outcome in zip(drafts, outcomes, strict=True):
                    _record(self._ledger, self._part, draft.episode, outcome, began=began, seen=noted)
                for outcome in outcomes:
                    _note(self._part, outcome)
            for draft, outcome in zip(drafts, outcomes, strict=True):
                draft.answering.add(noted)
                draft.results[self._part.name] = await _settled(self._part, outcome)
        self._done.set()


async def _score(part: OpenPart, function: RewardFunction, draft: _Draft, ledger: Ledger | None) -> _Result:
    began = time.monotonic()
    noted = Answering(draft.answering.wanted, notes_workers=ledger is not None)
    with _under_way(part, 1):
        try:
            with answering(noted):
                outcome: PartScore | SampleError = await function.score(draft.episode)
        except SampleError as error:
            outcome = error
        finally:
            draft.answering.add(noted)
        _record(ledger, part, draft.episode, outcome, began=began, seen=noted)
        _note(part, outcome)
    return await _settled(part, outcome)


def _record(
    ledger: Ledger | None,
    part: OpenPart,
    episode: Episode,
    outcome: PartScore | SampleError,
    *,
    began: float,
    seen: Answering,
) -> None:
    """Keep what a part said, where there is a ledger; one that is to be asked again has said nothing yet."""
    if ledger is None or isinstance(outcome, RevisionGoneError):
        return
    pool = part.scorer.pool
    revisions, workers = ((), ()) if pool is None else (seen.seen.get(pool, ()), seen.workers.get(pool, ()))
    seconds = time.monotonic() - began
    ledger.add(part.scorer, episode, outcome, seconds=seconds, revisions=sorted(revisions), workers=sorted(workers))


@contextmanager
def _under_way(part: OpenPart, episodes: int) -> Iterator[None]:
    part.breaker.begun(episodes)
    try:
        yield
    finally:
        part.breaker.ended(episodes)


def _note(part: OpenPart, outcome: PartScore | SampleError) -> None:
    """Record a part's result for an episode. Raises PoolError where that shows that it is broken."""
    if isinstance(outcome, PartScore):
        part.breaker.scored()
    elif not isinstance(outcome, RevisionGoneError):  # then the group is asked again, of another revision
        failure = part.breaker.failed(outcome, where=f"{part.path} ({part.name})")
        if isinstance(failure, PoolError):
            raise failure


async def _settled(part: OpenPart, outcome: PartScore | SampleError) -> _Result:
    """Clip a score, or apply the failure policy. Raises SampleError under `raise`, and PoolError for a broken part."""
    config = part.config
    if isinstance(outcome, PartScore):
        steps = outcome.steps and tuple(replace(one, value=clipped(one.value, config.clip)) for one in outcome.steps)
        used = clipped(outcome.value, config.clip)
        return _Result(outcome.value, used, outcome.info, steps=steps)
    if isinstance(outcome, RevisionGoneError):
        return _Result(None, None, error=outcome)
    action = action_for(config.on_failure, outcome.fault)
    if action == "raise":
        raise outcome
    if isinstance(action, Penalty):
        if (failure := await part.breaker.settled()) is not None:
            raise failure
        if part.breaker.is_proven:
            log.warning(
                "%s (%s, %s): %s gets the penalty %g", outcome, outcome.fault, outcome.kind, part.name, action.penalty
            )
            return _Result(None, action.penalty, error=outcome)
        log.warning("%s (%s, %s): %s", outcome, outcome.fault, outcome.kind, NOTHING_PROVEN)
    return _Result(None, None, error=outcome)


def _raise_unsettled(drafts: Sequence[_Draft], parts: Sequence[OpenPart]) -> None:
    """Raise why a member could not be brought to its group's revision, where the part's failure policy is `raise`."""
    raising = {part.name for part in parts if action_for(part.config.on_failure, "infra") == "raise"}
    for draft in drafts:
        for name, result in draft.results.items():
            if name in raising and result.error is not None and result.error.fault == "infra":
                raise result.error


def _close(part: OpenPart, draft: _Draft) -> None:
    """Give a draft the floor if its gate stays closed."""
    gate = part.config.gate
    result = draft.results.get(part.name)
    if gate is None or draft.floor is not None or result is None or result.used is None:
        return
    if result.used < gate.at_least:
        draft.floor = gate.floor


def _post_processed(ratings: Sequence[Rating], hook: PostProcess) -> list[Rating]:
    """The ratings with the totals that the user's hook makes of them. Raises FunctionFailedError."""
    try:
        totals = list(hook(ratings))
    except BaseException as error:  # the user's code raises what it likes
        raise FunctionFailedError("(group)", f"post_process failed: {error_text(error)}") from error
    if len(totals) != len(ratings):
        raise FunctionFailedError("(group)", f"post_process gave {len(totals)} totals for {len(ratings)} ratings")
    return [replace(rating, total=_checked_total(total)) for rating, total in zip(ratings, totals, strict=True)]


def _checked_total(total: Any) -> float | None:
    """Return the total of post_process for one rating. Raises FunctionFailedError unless it is finite or None."""
    if total is None:
        return None
    number = None if isinstance(total, bool) or not isinstance(total, Real) else finite(total)
    if number is None:
        raise FunctionFailedError(
            "(group)", f"post_process gave {shown(total)}, which is neither a finite number nor None"
        )
    return number
