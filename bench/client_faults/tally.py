"""What became of the samples of one fault, from what the client handed out and what the workers noted. Pure."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rewardpool import Outcome, Scored, Unscored
from rewardpool._client.report import Report, summarise

SHOWN_PROBLEMS = 3


@dataclass(frozen=True, kw_only=True)
class Tally:
    """Counts of one fault; `lost`, `wrong` and `invented` must be 0."""

    samples: int
    lost: int
    """Samples without a score."""
    wrong: int
    """Scores that are not the text's own."""
    invented: int
    """Scores of texts that no worker has scored."""
    retried: int
    """Samples of which an attempt failed at the client; the router's own retries are not among them."""
    hedges: int
    """Second requests beside stragglers."""
    hedges_won: int
    scored_again: int
    """Scores that workers gave for a text beyond the first one."""
    retries: Mapping[str, int]
    p50_seconds: float
    p99_seconds: float
    slowest_seconds: float
    uneven: bool
    """The client's own report does not add up."""
    problems: tuple[str, ...] = ()
    """The first few errors, in words."""

    @property
    def kept(self) -> bool:
        """Whether every sample has its own score, from a worker."""
        return self.lost == self.wrong == self.invented == 0 and not self.uneven


def count(
    texts: Sequence[str],
    outcomes: Mapping[int, Outcome],
    *,
    noted: Sequence[str],
    reports: Sequence[Report],
    expected: Callable[[str], float],
) -> Tally:
    """Count.

    Args:
        texts: The samples.
        outcomes: What came of them, by index.
        noted: The texts that workers scored, once for each time.
        reports: Of the clients, at their end.
        expected: The score that a text must have.
    """
    scored = {index: outcome for index, outcome in outcomes.items() if isinstance(outcome, Scored)}
    errors = [str(outcome.error) for outcome in outcomes.values() if isinstance(outcome, Unscored)]
    times = Counter(noted)
    latency = summarise(
        sorted(outcome.seconds for outcome in scored.values()),
        slowest=max((outcome.seconds for outcome in outcomes.values()), default=0.0),
    )
    return Tally(
        samples=len(texts),
        lost=len(texts) - len(scored),
        wrong=sum(outcome.value != expected(texts[index]) for index, outcome in scored.items()),
        invented=sum(
            outcome.penalised_for is not None or texts[index] not in times for index, outcome in scored.items()
        ),
        retried=sum(report.retried for report in reports),
        hedges=sum(report.hedges for report in reports),
        hedges_won=sum(report.hedges_won for report in reports),
        scored_again=times.total() - len(times),
        retries=dict(sum((Counter(report.retries) for report in reports), Counter[str]())),
        p50_seconds=latency.p50,
        p99_seconds=latency.p99,
        slowest_seconds=latency.max,
        uneven=any(
            report.samples != report.scored + report.penalties + report.unscored + report.cancelled
            for report in reports
        ),
        problems=tuple(errors[:SHOWN_PROBLEMS]),
    )
