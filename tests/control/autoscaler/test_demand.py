"""Policy Demand: warm when a burst begins, kept through short gaps, gone when nobody wants it."""

from dataclasses import replace
from datetime import timedelta

import pytest
from support.autoscaler_builders import DEMAND, DRAIN_TIME, QUEUE_DEPTH, a_job, a_scaling, run, signals
from support.decide_builders import NOW

from rewardpool_api.demand import MAX_SAMPLES
from rewardpool_api.job_scores import FailureCounts, JobScores
from rewardpool_api.status import ScalingStatus, WorkerStart
from rewardpool_control.autoscaler.recommend import recommend
from rewardpool_control.autoscaler.signals import Announcement

RATE = {"initialPerReplica": 2.0}
STARTS = [WorkerStart(worker="w", seconds=20)]
"""With the margins, a burst is prepared for 27 s before it."""


def a_demand_scaling(*others, **fields):
    return a_scaling(DEMAND, *others, **{"minReplicas": 0, "serviceRate": RATE, **fields})


def decide(*jobs, held=0, requests=0, at=0.0, scaling=None, **fields):
    previous = ScalingStatus(desired=held, reason="", starts=STARTS, idle_since=later(at - 10))
    seen = signals(requests, at=at, announcements=jobs, **{"replicas": held, "serving": held, **fields})
    return recommend(scaling=scaling or a_demand_scaling(), signals=seen, previous=previous)


def size(*jobs, **fields):
    return decide(*jobs, **fields).scaling.desired


def test_a_burst_is_worth_what_scores_it_in_time():
    assert size(a_job(samples=60, spread_seconds=5)) == 3


def test_a_burst_keeps_its_size_to_its_end():
    job = a_job(samples=60, spread_seconds=5)
    assert size(job, held=3, requests=1) == 3


@pytest.mark.parametrize(("ahead", "wanted"), [(100, 0), (28, 0), (27, 3), (1, 3), (0, 3)])
def test_an_empty_fleet_is_started_as_early_as_a_start_takes(ahead, wanted):
    assert size(a_job("Update", samples=30, starts_in_seconds=ahead)) == wanted


@pytest.mark.parametrize(("ahead", "wanted"), [(100, 0), (55, 0), (54, 3), (30, 3)])
def test_a_warm_fleet_is_kept_through_a_gap_that_is_shorter_than_a_restart(ahead, wanted):
    assert size(a_job("Update", samples=30, starts_in_seconds=ahead), held=3) == wanted


def test_a_gap_keeps_what_is_there_and_adds_nothing():
    assert size(a_job("Update", samples=60, starts_in_seconds=40), held=2) == 2


def test_the_time_runs_from_the_renewal():
    job = a_job("Update", samples=30, starts_in_seconds=30, renewed=NOW - timedelta(seconds=10))
    assert size(job) == 3


def test_a_job_that_loads_may_begin_at_any_moment():
    assert size(a_job("Starting", samples=30)) == 3


def test_a_job_that_knows_no_beat_yet_keeps_what_it_has():
    job = a_job("Update", samples=60)
    assert (size(job, held=2), size(job, held=0)) == (2, 0)


@pytest.mark.parametrize("job", [a_job("Ended", samples=30), a_job(samples=30, renewed=NOW - timedelta(seconds=15))])
def test_a_job_that_ended_or_died_asks_for_nothing(job):
    assert size(job) == 0


def test_no_burst_is_prepared_for_after_the_end_of_the_job():
    assert size(a_job("Update", samples=30, starts_in_seconds=10, ends_in_seconds=5)) == 0


def test_a_last_burst_that_takes_longer_than_planned_is_scored_to_its_end():
    assert size(a_job("Rollout", samples=30, ends_in_seconds=0)) == 3


def test_bursts_of_several_jobs_add_up():
    assert size(a_job(samples=15, job="a"), a_job(samples=15, job="b")) == 3


def test_what_a_replica_does_is_unknown_before_the_first_burst_so_it_gets_all_there_may_be():
    assert size(a_job(samples=3000), scaling=a_scaling(DEMAND)) == 8


def test_no_more_replicas_than_samples():
    assert size(a_job(samples=3), scaling=a_scaling(DEMAND)) == 3


def test_the_target_of_queue_depth_stands_in_for_an_unknown_rate():
    assert size(a_job(samples=30), scaling=a_scaling(DEMAND, QUEUE_DEPTH)) == 3


def test_an_unknown_number_of_samples_is_worth_one_replica():
    assert size(a_job()) == 1


def test_an_absurd_demand_is_cut_and_told():
    decision = decide(a_job(samples=10 * MAX_SAMPLES))
    assert decision.scaling.desired == 8
    assert "cut to that" in decision.demands[0].message


def test_more_requests_than_were_announced_are_answered_in_time_too():
    assert size(a_job(samples=10), requests=40) == 4


def test_the_fleet_is_let_go_after_a_pause_when_the_next_burst_is_known_to_be_far():
    scaling = a_demand_scaling(scaleDown={"stabilizationWindowSeconds": 600}, cooldownSeconds=600)
    burst = signals(50, announcements=(a_job(samples=50),))
    job = a_job("Update", samples=50, starts_in_seconds=500, renewed=later(60))
    gap = (signals(0, at=at, announcements=(job,)) for at in (60, 69, 70))
    assert [one.desired for one in run(burst, *gap, scaling=scaling)] == [5, 5, 5, 0]


def shared_by_a_silent_job(requests, *, answered=None, ahead=500):
    """The sizes of a warm fleet, looked at every second, while the one job that announces trains."""
    scaling = a_demand_scaling(scaleDown={"stabilizationWindowSeconds": 60}, cooldownSeconds=60)
    previous, sizes = ScalingStatus(desired=4, reason="", starts=STARTS), []
    for at, count in enumerate(requests):
        job = a_job("Update", samples=50, starts_in_seconds=ahead, renewed=later(at))
        seen = signals(
            count, at=at, announcements=(job,), replicas=4, serving=4, answered=answered[at] if answered else 0
        )
        previous = recommend(scaling=scaling, signals=seen, previous=previous).scaling
        sizes.append(previous.desired)
    return sizes


def test_a_job_that_announces_nothing_keeps_its_fleet_between_its_requests():
    assert 0 not in shared_by_a_silent_job([60, 0, 0] * 20)


def test_requests_that_are_only_seen_once_answered_keep_the_fleet_too():
    assert 0 not in shared_by_a_silent_job([0] * 60, answered=[3, 0] * 30)


def test_a_client_that_announces_nothing_counts_for_as_long_as_the_window_and_the_idle_time():
    sizes = shared_by_a_silent_job([40] * 12 + [0] * 80)
    assert (sizes[60], sizes[-1]) == (4, 0)


def test_the_silent_client_is_remembered_through_a_burst_of_the_other_job():
    scaling = a_demand_scaling(scaleDown={"stabilizationWindowSeconds": 60}, cooldownSeconds=60)
    gap = [a_job("Update", samples=50, starts_in_seconds=500, renewed=later(at)) for at in range(60)]
    burst = [a_job(samples=50, renewed=later(at)) for at in range(60)]
    jobs = [*gap[:12], *burst[12:16], *gap[16:]]
    seen = (signals(40 if at < 16 else 0, at=at, announcements=(job,)) for at, job in enumerate(jobs))
    assert [one.desired for one in run(*seen, scaling=scaling)][-1] > 0


def test_the_last_requests_of_a_burst_are_no_silent_client():
    assert shared_by_a_silent_job([60] * 5 + [0] * 11)[-1] == 0


def test_the_first_requests_of_a_burst_may_be_seen_before_its_job_says_so():
    decision = decide(a_job("Update", samples=30, starts_in_seconds=5), requests=4)
    assert decision.scaling.quiet_since is None


def test_the_window_holds_while_one_job_does_not_know_its_beat():
    scaling = a_demand_scaling(scaleDown={"stabilizationWindowSeconds": 600}, cooldownSeconds=600)
    jobs = (
        a_job("Update", samples=50, starts_in_seconds=500, renewed=later(60), job="a"),
        a_job("Update", samples=0, renewed=later(60), job="b"),
    )
    decisions = run(
        signals(50, announcements=(a_job(samples=50, job="a"),)),
        signals(0, at=60, announcements=jobs),
        scaling=scaling,
    )
    assert [one.desired for one in decisions] == [5, 5]


def test_the_fleet_of_a_killed_job_goes_to_zero_after_the_idle_time():
    scaling = a_demand_scaling(scaleDown={"stabilizationWindowSeconds": 0}, cooldownSeconds=60)
    job = a_job(samples=50)
    decisions = run(
        *(signals(50 if at == 0 else 0, at=at, announcements=(job,)) for at in (0, 1, 10, 20, 59, 62)), scaling=scaling
    )
    assert [one.desired for one in decisions] == [5, 5, 5, 1, 1, 0]


def test_nonsense_is_ignored_and_told():
    nonsense = Announcement(name="demand-rm-x", renewed=NOW, seconds=15, problem="samples: not a number")
    decision = decide(nonsense)
    assert decision.scaling.desired == 0
    assert (decision.demands[0].state, decision.demands[0].message) == ("Ignored", "samples: not a number")


def test_a_demand_that_no_policy_heeds_is_told():
    decision = decide(a_job(samples=30), scaling=a_scaling(QUEUE_DEPTH))
    assert (decision.scaling.desired, decision.demands[0].state) == (1, "Live")
    assert "no policy of the pool is Demand" in decision.demands[0].message


def test_the_status_tells_when_the_next_burst_is_expected_and_what_is_asked_for_it():
    status = decide(a_job("Update", samples=30, starts_in_seconds=20)).demands[0]
    assert (status.next_burst, status.replicas) == (later(20), 3)


def test_the_status_has_the_share_of_a_step_that_the_job_waited_for_scores():
    assert decide(a_job(samples=30, score_wait=0.4)).demands[0].score_wait == 0.4


def test_the_status_has_the_scores_that_the_job_announces():
    scores = JobScores(count=3, mean=0.5, standard_deviation=0.25, failures=FailureCounts(infra=1), retries=2)
    assert decide(a_job(samples=30, scores=scores)).demands[0].scores == scores
    assert decide(a_job("Ended", scores=scores)).demands[0].scores == scores


def test_the_largest_of_several_policies_counts():
    scaling = a_demand_scaling(QUEUE_DEPTH, DRAIN_TIME)
    assert size(a_job(samples=10), requests=65, scaling=scaling) == 7


def test_a_regular_beat_is_learned_where_nobody_announces_anything():
    scaling = a_demand_scaling(QUEUE_DEPTH, scaleDown={"stabilizationWindowSeconds": 0}, cooldownSeconds=5)
    beat = [signals(40 if at % 300 < 20 else 0, at=at, starts=()) for at in range(0, 1000, 5)]
    decisions = {seen.now: one.desired for seen, one in zip(beat, run(*beat, scaling=scaling), strict=True)}
    assert decisions[later(800)] == 0
    assert decisions[later(870)] == 4


def test_the_beat_of_a_killed_job_is_not_expected_to_go_on():
    scaling = a_demand_scaling(QUEUE_DEPTH, scaleDown={"stabilizationWindowSeconds": 0}, cooldownSeconds=5)

    def jobs(at):
        phase = {"phase": "Rollout"} if at % 300 < 15 else {"phase": "Update", "starts_in_seconds": 300 - at % 300}
        return (a_job(renewed=later(min(at, 620)), samples=40, **phase),)

    # Its samples outlast the rollout, and the first ones come before it is heard of.
    seen = [
        signals(40 if at % 300 < 20 and at < 620 else 0, at=at, starts=(), announcements=jobs(at) if at % 300 else ())
        for at in range(0, 1300, 5)
    ]
    decisions = {one.now: decision.desired for one, decision in zip(seen, run(*seen, scaling=scaling), strict=True)}
    assert decisions[later(595)] == 4
    assert {decisions[later(at)] for at in range(640, 1300, 5)} == {0}


def later(seconds):
    return NOW + timedelta(seconds=seconds)


def test_what_jobs_took_together_is_asked_for_when_they_come_together_again():
    scaling = a_demand_scaling(scaleDown={"stabilizationWindowSeconds": 0}, serviceRate={"initialPerReplica": 1.0})
    both = (a_job(job="a", samples=1), a_job(job="b", samples=1))
    alone = (a_job(job="a", samples=1),)
    seen = [
        signals(25, announcements=both),
        signals(1, at=20, announcements=alone),
        signals(1, at=30, announcements=both),
    ]
    now = [replace(one, announcements=tuple(replace(a, renewed=one.now) for a in one.announcements)) for one in seen]
    assert [one.desired for one in run(*now, scaling=scaling)] == [5, 1, 5]
