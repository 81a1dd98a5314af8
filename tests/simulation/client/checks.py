"""What must be true of a run, whatever happened in it; each violation in words."""

import asyncio
import gc
import math
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from simulation.client.fleet import Kind, Ledger, is_bad, judgement_of, refusal_of, score_of
from simulation.client.network import Network, NetworkLoop
from simulation.client.plan import Plan
from simulation.client.traffic import End, Traffic

from rewardpool import Scored, Unscored
from rewardpool._client.pool import MAX_GENERATIONS
from rewardpool._client.request_timer import LEAST_LEFT_OPEN
from rewardpool._client.rules.hedging import MIN_BURST, MOST_HEDGES, SHARE
from rewardpool._client.rules.outage import PROBE_SECONDS
from rewardpool._client.rules.retry import REFUSALS, REFUSED_ATTEMPTS, REFUSING_SECONDS
from rewardpool._discovery.pool_sources import SourceUnavailableError
from rewardpool.errors import (
    BrokenPoolError,
    DeadlineError,
    PoolAccessError,
    PoolNotReadyError,
    RevisionGoneError,
    SampleError,
    ScoreError,
    WrongModelError,
)

SLACK_SECONDS = 1.0
"""Between two looks at what is in flight, also for a sample that goes alone after a request with others."""
CALM = {"nothing", "everything_is_slow", "worker_is_slow", "bad_samples"}
"""Faults in which workers say what they have in work, and routers hand it on."""
MAY_HAVE_COST: Final[tuple[Kind, ...]] = ("worker", "broken", "invalid_response", "given_up")
"""Failures after which a judge may have answered."""
WINDOW_SECONDS = 5.0
MOST_REFUSED = 2 * (REFUSALS + MOST_HEDGES)
"""More, where one revision is to answer: a refusal costs nothing, and others are sent beside each."""
MOST_IN_WINDOW = 2 * MOST_HEDGES + int(WINDOW_SECONDS / PROBE_SECONDS[0])
"""One sample alone is every probe of a pool that is away."""
STRAY = {"answers_repeated", "answers_swapped", "idle_connections_end"}
"""Answers that nobody asked for: whose request they reach, the ledger does not know; a refusal by HTTP names none."""


def of_samples(traffic: Traffic, ledger: Ledger) -> Iterator[str]:
    """Every sample ends exactly once, with its own score or with an error that the pool gave cause for."""
    plan, ends = traffic.plan, traffic.ends
    for index, end in ends.items():
        if end.times != 1:
            yield f"sample {index} ended {end.times} times"
        if problem := _problem(traffic, ledger, index, end):
            yield f"sample {index} ({traffic.ask(index).text[:60]!r}): {problem}"
    if traffic.left and not traffic.pool_errors:
        yield f"{len(traffic.left)} samples never ended, and no error of the pool says why"
    for error, _ in traffic.pool_errors:
        if not plan.loses and not (isinstance(error, SourceUnavailableError) and "discovery_away" in plan.faults):
            yield f"no fault of this run may end a client: {error!r}"


def _problem(traffic: Traffic, ledger: Ledger, index: int, end: End) -> str | None:
    plan, ask, what = traffic.plan, traffic.ask(index), end.what
    text = ask.text
    match what:
        case str() if not ask.is_judgement or what != judgement_of(text):
            return f"the judgement {what!r} is not its own"
        case str():
            return None
        case Scored(penalised_for=error) if error is not None:
            if what.value != -1.0 or error.fault != "policy" or not isinstance(plan.config["on_failure"], dict):
                return f"it got the number {what.value} for {error!r}"
            return _unjustified(traffic, ledger, index, error, what.seconds)
        case Scored(revision=revision):
            if revision is None or what.value != score_of(text, revision):
                return f"its score by {revision} is {what.value}, which is not its own"
            if (text, revision) not in ledger.scored or is_bad(text):
                return f"the score {what.value} by {revision} was given by no worker"
            if ask.sample.revision not in (None, revision):
                return f"revision {revision} scored it, and {ask.sample.revision} was to"
            return _late(plan, what.seconds, end)
        case Unscored(error=error):
            return _unjustified(traffic, ledger, index, error, what.seconds) or _late(plan, what.seconds, end)
        case SampleError():
            return _unjustified(traffic, ledger, index, what, end.ended_at - end.began_at)
        case asyncio.CancelledError() if index in traffic.cancelled:
            return None
    return f"it ended with {what!r}"


def _late(plan: Plan, seconds: float, end: End) -> str | None:
    if seconds > plan.timeout + SLACK_SECONDS:
        return f"it took {seconds:.3f} s, and its timeout is {plan.timeout:g} s"
    if not -1e-6 <= seconds <= end.ended_at - end.began_at + 1e-6:
        return f"it says that it took {seconds:.3f} s, and {end.ended_at - end.began_at:.3f} s passed"
    return None


def _unjustified(traffic: Traffic, ledger: Ledger, index: int, error: SampleError, seconds: float) -> str | None:
    """Why an error is not what the pool gave cause for; None where it is."""
    plan, ask = traffic.plan, traffic.ask(index)
    text = ask.text
    seen = ledger.failures.get(text, Counter())
    if (
        is_bad(text)
        and error.status is None
        and not isinstance(error, DeadlineError)
        and error.kind in ("sample_too_long", "invalid_sample", "function_failed")
    ):
        refusal = refusal_of(text)
        faults = (refusal.fault, "verifier") if refusal.code == "sample_too_long" else (refusal.fault,)
        if error.kind != refusal.code or error.fault not in faults:
            return f"it was refused as {refusal.code} ({refusal.fault}), and its error is {error.kind} ({error.fault})"
        return None
    is_gone = isinstance(error, RevisionGoneError) and ask.sample.revision is not None
    if not plan.loses and not ask.is_judgement and not is_gone:
        return f"no fault of this run may lose it: {error!r}"
    match error:
        case DeadlineError():
            if ask.is_judgement:
                return None
            return None if seconds >= plan.timeout - 1e-6 else f"its deadline was over after {seconds:.3f} s: {error}"
        case RevisionGoneError():
            if ask.sample.revision is None or seen["other_revision"] < REFUSED_ATTEMPTS:
                return f"{seen['other_revision']} refusals by another revision, and it is taken to be gone: {error}"
            if seconds < REFUSING_SECONDS:
                return f"after {seconds:.3f} s its revision is taken to be gone"
            return None
        case ScoreError(kind="worker" | "invalid_response"):
            if ask.is_judgement:  # each may have cost a generation
                least, weight = MAX_GENERATIONS, float(sum(seen[kind] for kind in MAY_HAVE_COST))
            else:
                # A client cannot tell a request that never arrived from one that a worker had.
                least, weight = (
                    plan.config["max_attempts"],
                    ledger.weight(text) + traffic.stage.fleet.network.undelivered,
                )
            if not STRAY.intersection(plan.faults) and weight < least:
                return f"{weight} failures at workers, and it was given up: {error}"
            return None
        case ScoreError(kind="busy") if ask.is_judgement:  # a gateway may have given up a generation
            return None if seen["busy"] else f"nobody was busy: {error}"
        case _ if error.kind in ("not_found", "refused", "invalid_sample"):
            return None if seen["not_found"] or STRAY.intersection(plan.faults) else f"nobody refused it: {error}"
    return f"nothing in the run gave cause for {error!r}"


def of_pool_errors(traffic: Traffic, ledger: Ledger) -> Iterator[str]:
    """An error of the pool has a cause as well."""
    totals: Counter[str] = sum(ledger.failures.values(), Counter())
    for error, _ in traffic.pool_errors:
        match error:
            case PoolAccessError():
                caused = totals["unauthorized"] > 0 or "discovery_away" in traffic.plan.faults
            case WrongModelError():
                caused = totals["wrong_model"] > 0
            case BrokenPoolError() | PoolNotReadyError():
                unscored = sum(isinstance(end.what, Unscored | SampleError) for end in traffic.ends.values())
                caused = unscored + 1 >= traffic.plan.config["breaker_threshold"] or totals["not_found"] > 0
                caused = caused or "before its first score" in str(error)
            case _:
                caused = False
        if not caused:
            yield f"nothing in the run gave cause for {error!r}"


def of_waiting(traffic: Traffic, ledger: Ledger) -> Iterator[str]:
    """Nobody waits through more than a timeout in which the pool answered nothing."""
    plan = traffic.plan
    # An answer may be on its way for seconds.
    arrived = {end.ended_at for end in traffic.ends.values() if isinstance(end.what, Scored | str)}
    moments = sorted({0.0, *ledger.answered_at, *arrived, math.inf})
    longest = plan.timeout * (2 if isinstance(plan.config["on_failure"], dict) else 1) + 1.0
    for before, after in pairwise(moments):
        if after - before <= longest:
            continue
        for index, end in traffic.ends.items():
            over = min(after, end.ended_at) - max(before, end.began_at)
            if over > longest:
                yield f"sample {index} waited {over:.1f} s while nobody was answered; its timeout is {plan.timeout:g} s"
                return


def of_attempts(traffic: Traffic, ledger: Ledger, network: Network) -> Iterator[str]:
    """Attempts are bounded: by number at workers, by what is in flight, and by the budget of hedges."""
    plan = traffic.plan
    most = plan.config["max_attempts"]
    # Of one that a single revision may score, all that were sent side by side count once.
    bound = 2 * most * (MOST_HEDGES + 1 if plan.pinned else 1) + MOST_HEDGES + 1
    bound *= max(1, len(traffic.pools))
    for text, seen in ledger.failures.items():
        if (weight := seen["worker"] + seen["invalid_response"] / 2) > bound:
            yield f"{text[:60]!r} failed {weight:g} times at workers, of at most {most}"
    for text, times in ledger.arrivals.items():
        most_sent = (MOST_IN_WINDOW + (MOST_REFUSED if plan.pinned else 0)) * max(1, len(traffic.pools))
        if any(after - before < WINDOW_SECONDS for before, after in zip(times, times[most_sent:], strict=False)):
            yield f"{text[:60]!r} was sent more than {most_sent} times in {WINDOW_SECONDS:g} s"
    if CALM.issuperset(plan.faults) and ledger.asked_in_work:
        yield f"{ledger.asked_in_work} requests were sent beside one that a worker said it had in work"
    for text, count in ledger.generations.items():
        # A router may begin one anew by itself.
        if count > MAX_GENERATIONS * (1 + plan.retries) * max(1, len(traffic.pools)):
            yield f"{text!r} cost {count} generations, of at most {MAX_GENERATIONS}"
    limit = plan.config["concurrency"]
    lost = max(LEAST_LEFT_OPEN, limit // 2)
    if network.most_ids > limit + (lost if plan.config["hedge"] else 0):
        yield f"{network.most_ids} requests were in flight at a time, of at most {limit}"
    if not plan.config["hedge"] and network.most_busy > limit:
        yield f"{network.most_busy} requests were in flight without hedges, of at most {limit}"


def of_reports(traffic: Traffic) -> Iterator[str]:
    """A client's report adds up."""
    for pool in traffic.pools:
        report = pool.report()
        if report.samples != report.scored + report.penalties + report.unscored + report.cancelled:
            yield f"the report does not add up: {report}"
        failed = sum(sum(kinds.values()) for kinds in report.failures.values())
        if failed > report.penalties + report.unscored + report.cancelled:
            yield f"{failed} failures are counted, and {report.penalties + report.unscored} failed samples"
        if report.hedges_won > report.hedges:
            yield f"{report.hedges_won} of {report.hedges} hedges won"
        if not traffic.plan.config["hedge"] and report.hedges:
            yield f"{report.hedges} hedges, and they are off"


def of_hedges(traffic: Traffic, seconds: float) -> Iterator[str]:
    """Hedges keep to their budget: a share of the requests, those that won, canaries, and those outside of it.

    The latter go beside a request from the start, after nonsense and after a refusal by another revision.
    """
    reports = [pool.report() for pool in traffic.pools]
    limit = max(MIN_BURST, traffic.plan.config["concurrency"] / 2)
    spent = sum(report.hedges for report in reports)
    attempts = sum(report.attempts for report in reports)
    doubled = sum(report.retries.get("invalid_response", 0) for report in reports)
    doubled += sum(report.retries.get("other_revision", 0) for report in reports) * MOST_HEDGES
    won = sum(report.hedges_won for report in reports) * MOST_HEDGES
    outages = seconds / 1.0 * traffic.plan.config["concurrency"]
    if spent > limit * len(reports) * 2 + SHARE * attempts + doubled + won + seconds / 0.3 + outages:
        yield f"{spent} hedges for {attempts} requests in {seconds:.0f} s"


def of_leftovers(traffic: Traffic, network: Network, loop: NetworkLoop) -> Iterator[str]:
    """Nothing is left of a client that was closed."""
    for problem in loop.problems[:3]:
        yield f"nobody handled: {problem}"
    if network.open:
        yield f"{len(network.open)} connections are open still"
    others = [task for task in asyncio.all_tasks(loop) if task is not asyncio.current_task(loop)]
    if others:
        yield f"{len(others)} tasks are left, such as {others[0].get_coro()!r}"
    for one in traffic.connections:
        slots = one.slots
        if slots._taken or slots._waiting:
            yield f"{slots._taken} places are taken still, and {len(slots._waiting)} requests wait for one"
        timer = one.timer
        if timer._in_flight or timer._left:
            yield f"{len(timer._in_flight)} requests are in flight still, and {len(timer._left)} left open"
        if one.breaker._waiting:
            yield f"{len(one.breaker._waiting)} samples wait for the first score still"
        if one.outage._pausing:
            yield f"{len(one.outage._pausing)} requests pause still"
    for pool in traffic.pools:
        if (batcher := pool._batcher) is not None and (batcher._waiting or batcher._in_flight):
            yield f"{batcher._in_flight} of a batcher's requests are in flight still, and {len(batcher._waiting)} wait"
        if pool._counters.requests_in_flight or pool._counters.samples_in_flight:
            yield f"{pool._counters.requests_in_flight} requests are counted as in flight still"


def collected(loop: NetworkLoop) -> Iterator[str]:
    """What only the end of an object tells: tasks whose errors nobody took."""
    known = len(loop.problems)
    gc.collect()
    for problem in loop.problems[known : known + 3]:
        yield f"nobody handled: {problem}"
