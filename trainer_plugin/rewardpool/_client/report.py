"""Cost of scoring so far: counts that add up, and quantiles of the latency."""

import math
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from rewardpool._demand.report import DemandReport
from rewardpool._score_waits import ReadyTimes, ScoreWaits
from rewardpool.errors import FailureKind
from rewardpool_api.contract import FAULTS, Fault
from rewardpool_api.job_scores import FailureCounts, JobScores

# Latencies kept for the quantiles: a job of weeks needs no more memory than one of minutes.
RECENT = 10_000


@dataclass(frozen=True, kw_only=True)
class Latency:
    """Seconds from a scored sample's first request to its score, over the last 10,000 of them; max is over all."""

    p50: float = 0.0
    p90: float = 0.0
    p99: float = 0.0
    max: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Report:
    """Counts since the pool was opened: samples = scored + penalties + unscored + cancelled + those in flight.

    Attributes:
        samples: Samples and judgements whose first attempt was due.
        scored: Samples with a score from a worker.
        penalties: Failed samples that got the penalty that `on_failure` names for the policy's faults.
        unscored: Failed samples, raised or handed back.
        failures: Failed samples, the two before together, by fault and within it by kind.
        cancelled: Samples given up by the caller.
        attempts: Requests sent.
        retried: Samples of which an attempt failed and another followed, finished or not.
        retries: Failed attempts that were followed by another, by kind.
        hedges: Second requests beside stragglers, which are attempts too.
        hedges_won: Those that were answered first.
        asked_again: Samples that were asked again because two revisions had scored their group.
        groups_asked_again: Groups of which samples were; a group whose ratings are handed on one by one counts with
            each of its samples.
        batched_samples: Those that were sent in a request with others.
        batch_fallbacks: Such requests that had no usable answer, so that each sample was sent alone after it.
        exposed_wait_seconds: In which the reader of a stream waited for the next outcome, over all streams.
        concurrency: Requests that may be in flight now: the config's number, or fewer while the pool is overloaded.
        rediscoveries: Times the pool's address or key was looked up again.
        latency: Quantiles in seconds.
        demand: What came of announcing the job's demand.
    """

    samples: int
    scored: int
    penalties: int
    unscored: int
    cancelled: int
    attempts: int
    retried: int
    retries: Mapping[str, int]
    latency: Latency
    rediscoveries: int = 0
    hedges: int = 0
    hedges_won: int = 0
    asked_again: int = 0
    groups_asked_again: int = 0
    batched_samples: int = 0
    batch_fallbacks: int = 0
    exposed_wait_seconds: float = 0.0
    concurrency: int = 0
    demand: DemandReport = field(default_factory=DemandReport)
    failures: Mapping[Fault, Mapping[FailureKind, int]] = field(default_factory=dict)


class RunningMean(NamedTuple):
    """Running mean and spread of scores; replaced as a whole, for another thread reads it."""

    scored: int = 0
    mean: float = 0.0
    squares: float = 0.0
    """Sum of the squared distances from the mean."""

    def plus(self, score: float) -> "RunningMean":
        """Return that of one score more, by Welford's recurrence."""
        scored, off = self.scored + 1, score - self.mean
        mean = self.mean + off / scored
        return RunningMean(scored, mean, self.squares + off * (score - mean))


@dataclass
class Counters:
    """The running counts behind a `Report`; written by one event loop only."""

    samples: int = 0
    scored: int = 0
    penalties: int = 0
    unscored: int = 0
    cancelled: int = 0
    attempts: int = 0
    retried: int = 0
    hedges: int = 0
    hedges_won: int = 0
    asked_again: int = 0
    groups_asked_again: int = 0
    batched_samples: int = 0
    batch_fallbacks: int = 0
    exposed_wait_seconds: float = 0.0
    retries: Counter[str] = field(default_factory=Counter)
    failures: dict[Fault, Counter[FailureKind]] = field(default_factory=dict)
    retry_logged_at: float = -math.inf
    """By the connections' clock."""
    requests_in_flight: int = 0
    samples_in_flight: int = 0
    # Mean of the requests that were in flight when the last one was sent.
    samples_per_request: float = 1.0
    # Requests whose tokens are known, and their tokens.
    measured_in_flight: int = 0
    tokens_in_flight: int = 0
    tokens_per_sample: float | None = None
    """Mean of those, when the last one was sent; None before the first one."""
    slowest_seconds: float = 0.0
    waits: ScoreWaits | None = None
    readiness: ReadyTimes = field(default_factory=ReadyTimes)
    # Raw scores of samples; judgements and log-probabilities have none.
    tally: RunningMean = field(default_factory=RunningMean)
    recent_seconds: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT))

    def score(self, seconds: float) -> None:
        self.scored += 1
        self.recent_seconds.append(seconds)
        if seconds > self.slowest_seconds:
            self.slowest_seconds = seconds

    def failed(self, fault: Fault, kind: FailureKind) -> None:
        self.failures.setdefault(fault, Counter())[kind] += 1

    def sent(self, samples: int) -> None:
        self.requests_in_flight += 1
        self.samples_in_flight += samples
        self.samples_per_request = self.samples_in_flight / self.requests_in_flight

    def ended(self, samples: int) -> None:
        self.requests_in_flight -= 1
        self.samples_in_flight -= samples

    def tokens_sent(self, tokens: int | None) -> None:
        if tokens is not None:
            self.measured_in_flight += 1
            self.tokens_in_flight += tokens
            self.tokens_per_sample = self.tokens_in_flight / self.measured_in_flight

    def tokens_ended(self, tokens: int | None) -> None:
        if tokens is not None:
            self.measured_in_flight -= 1
            self.tokens_in_flight -= tokens

    def retry(self, kind: str, *, first: bool) -> None:
        """Count a failed attempt that another one follows; `first` says that it is the sample's first."""
        self.retries[kind] += 1
        self.retried += first

    def job_scores(self) -> JobScores | None:
        """Return the figures of scores to announce; None before the first one. Any thread may call it."""
        count, mean, squares = self.tally
        failures = {fault: sum(kinds.values()) for fault in FAULTS if (kinds := self.failures.get(fault))}
        retries = sum(self.retries.values())
        if not (count or failures or retries):
            return None
        has_figures = count and math.isfinite(squares)  # scores near a float's limit have none
        return JobScores(
            count=count,
            mean=mean if has_figures else None,
            standard_deviation=math.sqrt(squares / count) if has_figures else None,
            failures=FailureCounts(**failures),
            retries=retries,
        )

    def report(self) -> Report:
        return Report(
            samples=self.samples,
            scored=self.scored,
            penalties=self.penalties,
            failures={fault: dict(kinds) for fault, kinds in self.failures.items()},
            unscored=self.unscored,
            cancelled=self.cancelled,
            attempts=self.attempts,
            retried=self.retried,
            hedges=self.hedges,
            hedges_won=self.hedges_won,
            asked_again=self.asked_again,
            groups_asked_again=self.groups_asked_again,
            batched_samples=self.batched_samples,
            batch_fallbacks=self.batch_fallbacks,
            exposed_wait_seconds=self.exposed_wait_seconds,
            retries=dict(self.retries),
            latency=summarise(sorted(self.recent_seconds), slowest=self.slowest_seconds),
        )


def summarise(ordered: Sequence[float], *, slowest: float) -> Latency:
    """Nearest-rank quantiles of ascending seconds; all zero when there are none."""
    if not ordered:
        return Latency(max=slowest)

    def rank(quantile: float) -> float:
        return ordered[max(0, math.ceil(quantile * len(ordered)) - 1)]

    return Latency(p50=rank(0.5), p90=rank(0.9), p99=rank(0.99), max=slowest)
