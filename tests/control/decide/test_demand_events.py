"""What of the jobs' demands is told, and that it is told once."""

from datetime import timedelta

import pytest
from support.decide_builders import NOW

from rewardpool_api.status import DemandStatus
from rewardpool_control.decide.events import demand_events

LIVE = DemandStatus(job="grpo", state="Live", phase="Update", samples=4096, next_burst="2026-01-01T12:00:40Z")
LAPSED = DemandStatus(job="grpo", state="Lapsed")
ENDED = DemandStatus(job="grpo", state="Ended")
IGNORED = DemandStatus(job="demand-rm-grpo", state="Ignored", message="it is no JSON")
OTHERWISE_IGNORED = IGNORED.model_copy(update={"message": "phase: Field required"})


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ([], [LIVE], ["Normal DemandBegan"]),
        ([LIVE], [LIVE], []),
        ([LIVE], [LAPSED], ["Normal DemandLapsed"]),
        ([LAPSED], [LAPSED], []),
        ([LAPSED], [LIVE], ["Normal DemandBegan"]),
        ([LAPSED], [], []),
        ([LIVE], [ENDED], ["Normal DemandEnded"]),
        ([ENDED], [ENDED], []),
        ([ENDED], [], []),
        ([ENDED], [LIVE], ["Normal DemandBegan"]),
        ([LIVE], [], ["Normal DemandEnded"]),
        ([], [LAPSED], []),
        ([], [ENDED], []),
        ([], [IGNORED], ["Warning DemandIgnored"]),
        ([IGNORED], [IGNORED], []),
        ([IGNORED], [OTHERWISE_IGNORED], ["Warning DemandIgnored"]),
        ([IGNORED], [], []),
        ([LIVE], [IGNORED], ["Warning DemandIgnored", "Normal DemandEnded"]),
    ],
)
def test_each_step_of_a_demand_is_told_once(old: list[DemandStatus], new: list[DemandStatus], told: list[str]) -> None:
    assert [f"{event.type} {event.reason}" for event in demand_events(old, new)] == told


def test_jobs_are_told_apart() -> None:
    other = LIVE.model_copy(update={"job": "ppo"})
    (event,) = demand_events([LIVE], [LIVE, other])
    assert event.message == "job ppo: Update, 4096 samples in a burst"


def test_a_beginning_that_is_told_again_after_a_renewal_is_the_same_news() -> None:
    renewed = LIVE.model_copy(update={"next_burst": NOW + timedelta(seconds=41)})
    assert renewed.next_burst != LIVE.next_burst
    assert demand_events([], [renewed]) == demand_events([], [LIVE])


def test_one_that_comes_back_is_said_to() -> None:
    (event,) = demand_events([LAPSED], [LIVE])
    assert event.message.startswith("job grpo is back: ")


def test_nonsense_is_told_with_the_name_of_its_lease() -> None:
    (event,) = demand_events([], [IGNORED])
    assert event.message == "demand-rm-grpo is no demand: it is no JSON"
