"""Simulated jobs: what follows what, and how late scores make them later."""

import pytest

from rewardpool_simulator.announcing import SimulatedAnnouncer, to_datetime
from rewardpool_simulator.draws import JobDraws
from rewardpool_simulator.events import Events
from rewardpool_simulator.trace import Duration, JobSpec
from rewardpool_simulator.trainers import SimulatedTrainer

LOAD, ROLLOUT, UPDATE = 20, 100, 50


class Late:
    """A scorer that answers each request after a fixed time, by then at the earliest."""

    def __init__(self, events, seconds, *, not_before=0.0):
        self.events, self.seconds, self.not_before = events, seconds, not_before
        self.at_once = self.most_at_once = 0

    def submit(self, request):
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        self.events.call_at(max(self.not_before, self.events.now + self.seconds), self.answer, request)

    def answer(self, request):
        self.at_once -= 1
        request.on_response()


def trainer(late_seconds, *, not_before=0.0, **given):
    figures = {
        "name": "job",
        "load_seconds": LOAD,
        "steps": 3,
        "samples": 10,
        "rollout_seconds": Duration(seconds=ROLLOUT),
        "update_seconds": Duration(seconds=UPDATE),
        "arrivals": "AtOnce",
    }
    events = Events()
    scorer = Late(events, late_seconds, not_before=not_before)
    job = JobSpec(**figures | given)
    draws = JobDraws(job, Duration(seconds=1), seed="0")
    made = SimulatedTrainer(job, draws, scorer, events, SimulatedAnnouncer(job, events))
    return made, events, scorer


def ended(late_seconds, **given):
    made, events, _ = trainer(late_seconds, **given)
    while events.run_next():
        pass
    return made.ended


@pytest.mark.parametrize("arrivals", ["AtOnce", "Spread", "LongTailed"])
@pytest.mark.parametrize("late", [0, 7, 300])
def test_a_synchronous_job_waits_for_the_last_score_of_every_step(late, arrivals):
    assert ended(late, arrivals=arrivals) == pytest.approx(LOAD + 3 * (ROLLOUT + late + UPDATE))


@pytest.mark.parametrize(
    ("late", "lost"),
    [
        (0, 0),
        # Scores and update fit beside the next rollout, but for the last step, which has none.
        (30, 30),
        # The third rollout waits for the first update, and nothing hides the last scores.
        (70, 20 + 70),
    ],
)
def test_a_job_one_step_off_policy_hides_scores_behind_the_next_rollout(late, lost):
    assert ended(late, mode="OneStepOff") - ended(0, mode="OneStepOff") == lost


def test_a_fully_asynchronous_job_loses_its_scores_latency_once():
    instant = ended(0, mode="FullyAsync", steps=8)
    assert instant == LOAD + 8 * ROLLOUT + UPDATE
    assert ended(60, mode="FullyAsync", steps=8) - instant == 60


def test_rollouts_run_no_further_ahead_than_the_staleness_allows():
    stuck, events, _ = trainer(0, mode="FullyAsync", staleness=2, steps=20, not_before=10_000)
    while events.now < 9_000 and events.run_next():
        pass
    assert stuck.submitted == 3 * 10


def test_callers_bound_what_is_asked_for_at_once():
    made, events, scorer = trainer(5, callers=4)
    while events.run_next():
        pass
    assert scorer.most_at_once == 4
    assert made.scored == made.submitted == 30


def test_a_job_that_is_killed_asks_for_nothing_more():
    made, events, _ = trainer(1, dies_after_steps=1)
    while events.run_next():
        pass
    assert made.ended == LOAD + (ROLLOUT + 1 + UPDATE) + ROLLOUT / 2
    assert made.submitted == 10


def at(seconds, **given):
    """What is heard of a job at a time."""
    made, events, _ = trainer(5, **given)
    events.call_at(seconds, lambda: None)
    while events.now < seconds and events.run_next():
        pass
    return made.announcer.announcement()


def test_a_job_announces_each_phase_as_the_trainer_plugin_does():
    loading, rolling, updating = at(10).demand, at(LOAD + 30).demand, at(LOAD + ROLLOUT + 5 + 20).demand
    assert (loading.phase, rolling.phase, updating.phase) == ("Starting", "Rollout", "Update")
    assert {loading.samples, rolling.samples, updating.samples} == {10}


def test_in_the_fourth_update_it_is_known_when_the_next_burst_comes():
    step = ROLLOUT + 5 + UPDATE
    heard = at(LOAD + 3 * step + ROLLOUT + 5 + 20, steps=5)
    next_samples = LOAD + 4 * step + ROLLOUT
    assert heard.renewed.timestamp() + heard.demand.starts_in_seconds == to_datetime(next_samples).timestamp()


def test_its_word_is_renewed_every_five_seconds():
    assert (to_datetime(39.9) - at(39.9).renewed).total_seconds() < 5


def test_a_dead_job_s_word_lapses():
    death = LOAD + ROLLOUT / 2
    heard = at(death + 30, dies_after_steps=0)
    assert heard.is_live(to_datetime(death + 5))
    assert not heard.is_live(to_datetime(death + 16))


def test_a_job_that_announces_nothing_is_not_heard():
    assert at(50, announces=False) is None


def test_of_a_job_that_has_all_scores_nothing_more_is_expected():
    assert at(LOAD + 3 * (ROLLOUT + 5 + UPDATE) - 10).demand.phase == "Ended"
