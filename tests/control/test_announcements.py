"""What jobs announce, as far as it may be believed."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewardpool_api.demand import MAX_LEASE_SECONDS, MAX_SAMPLES, MAX_TOKENS, Demand, DemandError
from rewardpool_control.announcements import (
    MOST,
    RETENTION,
    Renewal,
    Renewals,
    UnreadAnnouncement,
    announcements,
    is_over,
    lasting,
)

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)


def an_announcement(
    job: str = "a", *, age: float = 0, made: str = "1", stated: object = 15, **fields: object
) -> UnreadAnnouncement:
    demand = Demand.model_validate({"job": job, "phase": "Rollout", **fields})
    renewal = Renewal(written=NOW, at=NOW - age * SECOND)
    return UnreadAnnouncement(name=job, made=made, renewal=renewal, stated=stated, read=lambda: demand)


def nonsense() -> Demand:
    raise DemandError("phase: it is none")


@pytest.mark.parametrize(
    ("stated", "seconds", "is_reported"),
    [
        (15, 15, False),
        (2.5, 2.5, False),
        (MAX_LEASE_SECONDS, MAX_LEASE_SECONDS, False),
        (MAX_LEASE_SECONDS + 1, MAX_LEASE_SECONDS, True),
        (2**40, MAX_LEASE_SECONDS, True),
        (None, 15, True),
        (0, 15, True),
        (-3, 15, True),
        (float("nan"), 15, True),
        (float("inf"), 15, True),
        (True, 15, True),
        ("15", 15, True),
        ([], 15, True),
    ],
)
def test_it_lasts_for_a_sensible_time_and_says_where_that_is_not_its_own(
    stated: object, seconds: float, is_reported: bool
) -> None:
    lasts, note = lasting(stated)
    assert (lasts, bool(note)) == (seconds, is_reported)


def test_nonsense_is_kept_as_a_problem() -> None:
    unread = UnreadAnnouncement(name="demand-rm-a", made="1", renewal=Renewal(NOW, NOW), stated=15, read=nonsense)
    (found,) = announcements([unread], now=NOW)
    assert (found.name, found.demand, found.problem) == ("demand-rm-a", None, "phase: it is none")
    assert not found.is_live(NOW)


@pytest.mark.parametrize(("field", "most"), [("samples", MAX_SAMPLES), ("tokens", MAX_TOKENS)])
def test_more_than_there_can_be_is_cut_and_that_is_told(field: str, most: int) -> None:
    (found,) = announcements([an_announcement(**{field: 10**400})], now=NOW)
    assert getattr(found.demand, field) == most
    assert found.note == f"it speaks of more than {most} {field}: cut to that"


def test_of_too_many_the_first_count_and_those_that_lapsed_do_not() -> None:
    old = [an_announcement(f"old-{number:02}", made="0", age=100) for number in range(MOST)]
    first = [an_announcement(f"first-{number:02}", made="1") for number in range(MOST)]
    flood = [an_announcement(f"flood-{number:02}", made="2") for number in range(100)]
    found = announcements([*old, *flood, *first], now=NOW)
    assert [one.name for one in found] == [one.name for one in first]


@pytest.mark.parametrize(
    ("age", "phase", "over"),
    [
        (0, "Rollout", False),
        (16, "Rollout", False),
        (14 + RETENTION.total_seconds(), "Rollout", False),
        (15 + RETENTION.total_seconds(), "Rollout", True),
        (0, "Ended", True),
    ],
)
def test_it_is_over_when_its_job_says_so_or_was_not_heard_of_for_long(age: float, phase: str, over: bool) -> None:
    (found,) = announcements([an_announcement(age=age, phase=phase)], now=NOW)
    assert is_over(found, now=NOW) is over


class Clocks:
    """A keeper's clock (an API server, say) that is some seconds ahead of ours, and what is kept by it."""

    def __init__(self, *, ahead: float) -> None:
        self.renewals = Renewals()
        self._ahead = ahead * SECOND
        self._told: datetime | None = None

    def renew(self, at: float) -> None:
        self._told = NOW + at * SECOND + self._ahead

    def age(self, at: float) -> float:
        """Seconds since it was renewed, as it looks at that time."""
        now = NOW + at * SECOND
        assert self._told is not None
        return (now - self.renewals.observe({"a": self._told}, now=now)["a"].at).total_seconds()


@pytest.mark.parametrize("ahead", [-3600, -20, 0, 20, 3600])
def test_once_it_was_seen_renewed_its_age_is_ours_to_tell_whatever_the_other_clock_says(ahead: float) -> None:
    clocks = Clocks(ahead=ahead)
    clocks.renew(0)
    clocks.age(0)
    clocks.renew(5)
    assert [clocks.age(at) for at in (5, 7, 30)] == [0, 2, 25]


def test_what_is_from_the_future_does_not_live_on_with_every_look() -> None:
    clocks = Clocks(ahead=3600)
    clocks.renew(0)
    assert [clocks.age(at) for at in (1, 20)] == [0, 19]


def test_what_was_there_at_the_first_look_is_as_old_as_it_is_said_to_be() -> None:
    clocks = Clocks(ahead=0)
    clocks.renew(0)
    assert clocks.age(12) == 12


def test_what_could_not_be_renewed_lasts_longer_and_its_times_stay_what_they_were() -> None:
    renewals = Renewals()
    renewals.observe({"a": NOW}, now=NOW)
    renewals.excuse(["a", "unknown"], now=NOW + 10 * SECOND)
    renewal = renewals.observe({"a": NOW}, now=NOW + 12 * SECOND)["a"]
    (found,) = announcements([replace(an_announcement(), renewal=renewal)], now=NOW)
    assert (found.renewed, found.seconds) == (NOW, 25)


def test_a_renewal_ends_the_excuse() -> None:
    renewals = Renewals()
    renewals.observe({"a": NOW}, now=NOW)
    renewals.excuse(["a"], now=NOW + 10 * SECOND)
    later = NOW + 12 * SECOND
    assert renewals.observe({"a": later}, now=later)["a"] == Renewal(later, later)


def test_what_is_gone_is_forgotten() -> None:
    renewals = Renewals()
    renewals.observe({"a": NOW}, now=NOW)
    renewals.observe({}, now=NOW + SECOND)
    assert renewals.observe({"a": NOW}, now=NOW + 9 * SECOND)["a"].at == NOW


@given(st.lists(st.tuples(st.floats(-1e6, 1e6), st.floats(0, 1e6)), min_size=1))
def test_nothing_is_ever_renewed_in_the_future(looks: list[tuple[float, float]]) -> None:
    renewals, now = Renewals(), NOW
    for told, later in looks:
        now += later * SECOND
        assert renewals.observe({"a": NOW + told * SECOND}, now=now)["a"].at <= now
