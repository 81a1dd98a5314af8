"""What the page remembers of the scores of jobs."""

from statistics import fmean, pstdev

import pytest

from rewardpool_api.job_scores import FailureCounts, JobScores
from rewardpool_api.status import DemandStatus
from rewardpool_page.score_history import MARK_SECONDS, MAX_JOBS, MAX_MARKS, MAX_RECENT, ScoreHistory, ScoreInterval


def totals(*scores: float, infra: int = 0, retries: int = 0) -> JobScores:
    return JobScores(
        count=len(scores),
        mean=fmean(scores) if scores else None,
        standard_deviation=pstdev(scores) if scores else None,
        failures=FailureCounts(infra=infra),
        retries=retries,
    )


def live(scores: JobScores | None, job: str = "grpo") -> DemandStatus:
    return DemandStatus(job=job, state="Live", scores=scores)


def remembered(*looks: JobScores | None, every: float = 10.0, is_recent: bool = True) -> tuple[ScoreInterval, ...]:
    """What is remembered of one job after looks at it; None where it has no scores."""
    history = ScoreHistory()
    for number, scores in enumerate(looks):
        history.record([live(scores)], at=number * every)
    return history.since(0.0, is_recent=is_recent).get("grpo", ())


def test_the_mean_and_the_spread_are_those_of_the_scores_between_two_looks() -> None:
    (part,) = remembered(totals(5.0, 7.0, 9.0), totals(5.0, 7.0, 9.0, 0.0, 1.0))
    assert (part.at, part.mean, part.standard_deviation) == (10.0, pytest.approx(0.5), pytest.approx(0.5))


def test_samples_without_a_score_have_no_mean() -> None:
    (part,) = remembered(totals(1.0), totals(1.0, infra=3, retries=2))
    assert (part.mean, part.standard_deviation, part.failures, part.retries) == (None, None, (0, 0, 3, 0), 2)


def test_a_time_in_which_nothing_came_has_no_part() -> None:
    assert remembered(totals(1.0), totals(1.0), totals(1.0)) == ()


def test_scores_from_before_the_first_look_are_of_no_time_that_is_known() -> None:
    assert remembered(totals(1.0, 2.0)) == ()


def test_the_first_scores_of_a_job_that_announced_before_them_count() -> None:
    assert [part.mean for part in remembered(None, totals(1.0, 3.0))] == [2.0]


def test_a_job_that_counts_anew_begins_another_part() -> None:
    parts = remembered(totals(1.0, 1.0, 1.0), totals(4.0), totals(4.0, 6.0))
    assert [part.mean for part in parts] == [4.0, pytest.approx(6.0)]


def test_a_job_that_counts_anew_within_a_quarter_of_an_hour_begins_another_part_of_the_week() -> None:
    old, new = [totals(*[0.2] * number) for number in (0, 500, 950)], [totals(*[0.9] * number) for number in (10, 1000)]
    parts = remembered(*old, *new, every=400.0, is_recent=False)
    assert {round(part.mean, 6) for part in parts if part.mean is not None} == {0.2, 0.9}


def test_scores_that_have_no_mean_give_none_to_what_follows() -> None:
    unknown = JobScores(count=2, failures=FailureCounts(infra=1))
    assert [part.mean for part in remembered(totals(1.0), unknown)] == [None]


def test_figures_that_no_scores_can_have_are_left_out() -> None:
    nonsense = JobScores(count=2, mean=1e308, standard_deviation=1e308, retries=1)
    (part,) = remembered(totals(-1.0), nonsense)
    assert (part.mean, part.standard_deviation, part.retries) == (None, None, 1)


def test_a_week_has_parts_of_a_quarter_of_an_hour() -> None:
    looks = [totals(*range(number)) for number in range(int(2 * MARK_SECONDS / 10) + 1)]
    assert [part.at for part in remembered(*looks, is_recent=False)] == [MARK_SECONDS, 2 * MARK_SECONDS]


def test_the_last_scores_of_a_job_that_ends_are_in_the_week_too() -> None:
    history = ScoreHistory()
    for at, scores in ((0.0, totals()), (10.0, totals(2.0))):
        history.record([live(scores)], at=at)
    history.record([DemandStatus(job="grpo", state="Ended")], at=20.0)
    assert [(part.at, part.mean) for part in history.since(0.0, is_recent=False)["grpo"]] == [(10.0, 2.0)]


def test_scores_that_a_job_announces_as_it_ends_count() -> None:
    history = ScoreHistory()
    for at, scores in ((0.0, totals()), (10.0, totals(2.0))):
        history.record([live(scores)], at=at)
    history.record([DemandStatus(job="grpo", state="Ended", scores=totals(2.0, 8.0))], at=20.0)
    assert [(part.at, part.mean) for part in history.since(0.0, is_recent=True)["grpo"]] == [(10.0, 2.0), (20.0, 8.0)]


def test_no_more_is_kept_than_an_hour_and_a_week() -> None:
    history = ScoreHistory()
    for number in range(MAX_MARKS + 10):
        history.record([live(JobScores(retries=number))], at=number * MARK_SECONDS)
    kept = [len(history.since(0.0, is_recent=is_recent)["grpo"]) for is_recent in (True, False)]
    assert kept == [MAX_RECENT - 1, MAX_MARKS - 1]


def test_a_job_too_many_takes_the_place_of_one_that_ended_and_of_no_other() -> None:
    history = ScoreHistory()
    jobs = [f"job-{number}" for number in range(MAX_JOBS + 1)]
    for at in (0.0, 10.0):
        history.record([live(totals(*[1.0] * int(at)), job) for job in jobs], at=at)
    assert sorted(history.since(0.0, is_recent=True)) == jobs[:-1]
    for at in (20.0, 30.0):
        history.record([live(totals(*[1.0] * int(at)), job) for job in jobs[1:]], at=at)
    assert sorted(history.since(0.0, is_recent=True)) == jobs[1:]
