"""The beat that is learned of a job, by tables of what it did and by properties of anything that it may do."""

import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewardpool._demand.cadence import FEW, FEW_SHARE, MAX_BURSTS, STALL_SECONDS, Cadence, GivenCadence, next_gap
from rewardpool_api.demand import LEASE_SECONDS, MAX_SAMPLES, MAX_SECONDS, Demand, dump_demand, parse_demand


def step(cadence: Cadence, at: float, *, comes: tuple[float, ...] = (), update: float | None = None) -> None:
    """One rollout that begins at `at`, with samples and an update so many seconds later."""
    cadence.rollout_begins(at)
    for seconds in comes:
        cadence.samples_come(at + seconds)
    if update is not None:
        cadence.update_begins(at + update)


def steady(*, steps: int = 4, plan: GivenCadence | None = None, **how: Any) -> Cadence:
    """A job in the update of a step that began at 0; every 100 s a rollout of 60 s, with samples from 20 s to 50 s."""
    cadence = Cadence("job", plan or GivenCadence(), **how)
    for number in range(steps):
        step(cadence, 100.0 * (number + 1 - steps), comes=(20, 30, 40, 50), update=60)
    return cadence


def figures(demand: Demand) -> dict[str, Any]:
    """What a demand says beside its job."""
    return demand.model_dump(exclude={"job"}, exclude_none=True)


def test_before_the_first_rollout_a_job_starts_and_knows_only_what_it_was_told() -> None:
    demand = Cadence("job", GivenCadence(samples=1024, steps=10)).demand(5.0)
    assert figures(demand) == {"phase": "Starting", "samples": 1024, "spread_seconds": 0.0, "stalled": False}


def test_in_its_first_rollout_nothing_is_known_yet() -> None:
    cadence = Cadence("job", GivenCadence())
    step(cadence, 0.0, comes=(1, 2))
    assert figures(cadence.demand(3.0)) == {"phase": "Rollout", "spread_seconds": 0.0, "stalled": False}


def test_after_one_burst_its_size_is_known_and_not_when_the_next_comes() -> None:
    expected = {"phase": "Update", "samples": 4, "spread_seconds": 30.0, "stalled": False}
    assert figures(steady(steps=1).demand(60.0)) == expected


def test_in_an_update_the_next_bursts_first_sample_is_foreseen() -> None:
    demand = steady().demand(70.0)
    assert demand.starts_in_seconds == 30.0 + 20.0  # until the next rollout, and until a sample comes of it
    assert (demand.every_seconds, demand.spread_seconds, demand.samples) == (100.0, 30.0, 4)


def test_a_burst_that_is_overdue_comes_at_any_moment_and_never_in_the_past() -> None:
    assert steady().demand(500.0).starts_in_seconds == 20.0
    assert steady(plan=GivenCadence(every_seconds=100)).demand(500.0).starts_in_seconds == 20.0


def test_while_samples_come_no_other_burst_is_foreseen() -> None:
    cadence = steady()
    cadence.rollout_begins(100.0)
    assert cadence.demand(101.0).starts_in_seconds is None


def test_one_slow_step_does_not_move_the_beat() -> None:
    cadence = Cadence("job", GivenCadence())
    for begins in (0.0, 100.0, 200.0, 900.0, 1000.0):
        step(cadence, begins, comes=(20, 50), update=60)
    demand = cadence.demand(1060.0)
    assert (demand.every_seconds, demand.starts_in_seconds) == (100.0, 60.0)


def test_a_job_that_changes_its_pace_is_followed() -> None:
    cadence = Cadence("job", GivenCadence())
    for number in range(30):
        step(cadence, 100.0 * number)
    for number in range(8):
        step(cadence, 3000.0 + 10.0 * number)
    assert cadence.demand(3080.0).every_seconds == 10.0


def test_the_earliest_first_sample_counts_as_a_cold_pool_costs_more_than_a_warm_one() -> None:
    cadence = Cadence("job", GivenCadence())
    for begins, first in ((0.0, 20), (100.0, 5), (200.0, 50), (300.0, 50)):
        step(cadence, begins, comes=(first,), update=60)
    assert cadence.demand(360.0).starts_in_seconds == 40.0 + 5.0


@pytest.mark.parametrize(
    ("gaps", "expected"),
    [
        ([], None),
        ([20.0], 18.0),  # less a tenth, while nobody knows how much they differ
        ([30.0, 20.0], 18.0),
        ([22.0, 18.0, 20.0], 18.0),
        ([18.0, 22.0, 20.0, 18.5, 20.0, 21.0, 19.0], 18.0),
        ([20.0, 90.0, 90.0, 90.0, 20.0, 90.0, 90.0], 20.0),  # every fourth without an evaluation
        ([100.0, 100.0, 20.0, 100.0, 100.0, 100.0, 100.0], 100.0),  # one alone
        ([100.0, 100.0, 74.9], 100.0),
        ([100.0, 100.0, 75.0], 75.0),
        ([20.0, 100.0, 100.0, 90.0], 90.0),
        ([100.0, 100.0, 1000.0, 100.0], 100.0),
        ([0.0, 0.0, 0.0], 0.0),
    ],
)
def test_the_next_gap_is_the_shortest_that_is_no_exception(gaps: list[float], expected: float | None) -> None:
    assert next_gap(gaps) == expected


@given(gaps=st.lists(st.floats(0.0, 1000.0), min_size=1, max_size=MAX_BURSTS), order=st.randoms())
def test_a_gap_is_foreseen_by_those_that_were_and_not_by_their_order(gaps: list[float], order: random.Random) -> None:
    shuffled = order.sample(gaps, len(gaps))
    assert next_gap(gaps) == next_gap(shuffled)
    assert FEW_SHARE * min(gaps) <= next_gap(gaps) <= max(gaps)


@given(
    middle=st.floats(1.0, 1000.0),
    shares=st.lists(st.floats(0.9, 1.1), min_size=FEW, max_size=MAX_BURSTS),
)
def test_of_gaps_that_differ_by_a_tenth_each_way_none_is_an_exception(middle: float, shares: list[float]) -> None:
    gaps = [middle * share for share in shares]
    assert next_gap(gaps) == min(gaps)


def test_standing_still_in_an_update_is_not_part_of_the_gap_and_puts_the_next_burst_off() -> None:
    cadence = Cadence("job", GivenCadence())
    step(cadence, 0.0, update=10)
    cadence.waits(10.0, 1)
    cadence.waits(70.0, -1)
    for begins in (90.0, 120.0, 150.0):
        step(cadence, begins, update=10)
    assert cadence.demand(160.0).starts_in_seconds == 20.0
    cadence.waits(165.0, 1)
    assert cadence.demand(185.0).starts_in_seconds == 15.0
    cadence.waits(185.0, -1)
    assert cadence.demand(190.0).starts_in_seconds == 10.0


def test_samples_that_the_client_had_no_room_for_came_when_they_would_have() -> None:
    cadence = Cadence("job", GivenCadence())
    step(cadence, 0.0, comes=(1.0, 2.0))
    cadence.held_back(30.0)
    cadence.samples_come(33.0)
    cadence.update_begins(40.0)
    assert cadence.demand(40.0).spread_seconds == 2.0


def test_a_burst_that_outgrows_the_usual_one_is_as_large_as_it_is() -> None:
    cadence = steady()
    step(cadence, 100.0, comes=tuple(range(9)))
    assert cadence.demand(110.0).samples == 9


def long_burst(cadence: Cadence, at: float, *, samples: int, tokens: int | None) -> None:
    cadence.rollout_begins(at)
    for _ in range(samples):
        cadence.samples_come(at + 1, tokens=tokens)
    cadence.update_begins(at + 2)


def test_a_burst_has_as_many_tokens_as_the_last_ones_had_in_the_middle() -> None:
    cadence = Cadence("job", GivenCadence())
    for number, tokens in enumerate((100, 9000, 110)):
        long_burst(cadence, 10.0 * number, samples=4, tokens=tokens)
    assert (cadence.demand(25.0).samples, cadence.demand(25.0).tokens) == (4, 440)


def test_the_tokens_of_all_ranks_are_reckoned_from_those_that_one_sees() -> None:
    cadence = Cadence("job", GivenCadence(samples=64), sees_all=False)
    long_burst(cadence, 0.0, samples=4, tokens=500)
    assert cadence.demand(3.0).tokens == 64 * 500


def test_in_the_first_burst_the_samples_that_came_say_how_long_they_are() -> None:
    cadence = Cadence("job", GivenCadence(samples=64))
    cadence.rollout_begins(0.0)
    assert cadence.demand(1.0).tokens is None
    cadence.samples_come(1.0, tokens=300)
    assert cadence.demand(2.0).tokens == 64 * 300


def test_samples_of_unknown_length_have_no_tokens() -> None:
    cadence = Cadence("job", GivenCadence())
    long_burst(cadence, 0.0, samples=4, tokens=None)
    assert (cadence.demand(3.0).samples, cadence.demand(3.0).tokens) == (4, None)


def test_one_rank_of_several_does_not_take_its_samples_for_all_of_them() -> None:
    cadence = steady(sees_all=False)
    assert cadence.demand(70.0).samples is None
    cadence.rollout_begins(100.0, samples=512)
    assert cadence.demand(100.0).samples == 512


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        (GivenCadence(samples=7), {"samples": 7}),
        (GivenCadence(samples=2 * MAX_SAMPLES), {"samples": MAX_SAMPLES}),
        (GivenCadence(every_seconds=80), {"every_seconds": 80.0, "starts_in_seconds": 30.0}),
        (GivenCadence(steps=5), {"ends_in_seconds": 50.0 + 100.0}),
        (GivenCadence(steps=14, every_seconds=80), {"ends_in_seconds": 30.0 + 800.0}),
        (GivenCadence(steps=10**9), {"ends_in_seconds": MAX_SECONDS}),
    ],
)
def test_what_the_trainer_tells_wins_over_what_was_learned(plan: GivenCadence, expected: dict[str, Any]) -> None:
    said = figures(steady(plan=plan).demand(70.0))
    assert {name: said[name] for name in expected} == expected


def test_after_the_last_burst_the_job_is_over_before_another_would_come() -> None:
    demand = steady(plan=GivenCadence(steps=4)).demand(70.0)
    assert demand.ends_in_seconds == demand.starts_in_seconds


def test_more_bursts_than_were_planned_make_the_end_unknown() -> None:
    assert steady(plan=GivenCadence(steps=3)).demand(70.0).ends_in_seconds is None


def test_a_last_burst_that_is_overdue_is_not_over_before_its_announcement_is() -> None:
    cadence = steady(plan=GivenCadence(steps=5))
    cadence.rollout_begins(100.0)
    assert cadence.demand(150.0).ends_in_seconds == 50.0
    assert cadence.demand(900.0).ends_in_seconds == LEASE_SECONDS


@pytest.mark.parametrize(
    ("happens", "stalled"),
    [
        ([("waits", 0.0, 1)], True),
        ([("waits", 9.0 + STALL_SECONDS / 2, 1)], False),
        ([("waits", 0.0, 1), ("waits", 5.0, -1)], False),
        ([("waits", 0.0, 1), ("waits", 1.0, 1), ("waits", 2.0, -1)], True),
        ([("waits", 0.0, 1), ("feeds", 0.0, 1)], False),
        ([("feeds", 0.0, 1), ("waits", 0.0, 1), ("feeds", 1.0, -1)], True),
        ([("feeds", 0.0, 1), ("waits", 0.0, 1), ("feeds", 9.5, -1)], False),
    ],
)
def test_a_job_stands_still_when_it_waits_and_nothing_else_comes(
    happens: list[tuple[str, float, int]], stalled: bool
) -> None:
    cadence = steady()
    for what, at, change in happens:
        getattr(cadence, what)(at, change)
    assert cadence.demand(10.0).stalled is stalled


def test_an_update_before_any_rollout_changes_nothing() -> None:
    cadence = Cadence("job", GivenCadence())
    cadence.update_begins(1.0)
    assert cadence.phase == "Starting"


def test_an_update_that_is_said_twice_began_the_first_time() -> None:
    cadence = steady()
    cadence.update_begins(90.0)
    assert cadence.demand(90.0).starts_in_seconds == 10.0 + 20.0


def test_what_has_ended_does_not_begin_again() -> None:
    cadence = steady()
    cadence.ends()
    cadence.rollout_begins(100.0)
    cadence.update_begins(110.0)
    assert figures(cadence.demand(120.0)) == {"phase": "Ended", "spread_seconds": 0.0, "stalled": False}


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: GivenCadence(samples=-1), ValueError),
        (lambda: GivenCadence(steps=1.5), TypeError),
        (lambda: GivenCadence(every_seconds=0), ValueError),
        (lambda: GivenCadence(every_seconds=float("nan")), ValueError),
        (lambda: Cadence("job", GivenCadence()).rollout_begins(0.0, samples=-1), ValueError),
    ],
)
def test_figures_that_make_no_sense_are_refused_where_they_are_told(
    make: Callable[[], object], error: type[Exception]
) -> None:
    with pytest.raises(error):
        make()


plans = st.builds(
    GivenCadence,
    samples=st.none() | st.integers(0, 2 * MAX_SAMPLES),
    steps=st.none() | st.integers(0, 20),
    every_seconds=st.none() | st.floats(0.1, MAX_SECONDS),
)
calls = st.tuples(
    st.floats(0.0, 2 * MAX_SECONDS),
    st.sampled_from(["rollout", "update", "sample", "tokens", "hold", "wait", "go on", "feed", "starve", "end"]),
)


def played(cadence: Cadence, script: list[tuple[float, str]]) -> float:
    """Lets a job do all of it, each after so many seconds; returns the time then."""
    at = 1000.0
    for seconds, what in script:
        at += seconds
        match what:
            case "rollout":
                cadence.rollout_begins(at)
            case "update":
                cadence.update_begins(at)
            case "sample":
                cadence.samples_come(at)
            case "tokens":
                cadence.samples_come(at, tokens=1 + int(seconds) ** 3)
            case "hold":
                cadence.held_back(seconds)
            case "wait" | "go on":
                cadence.waits(at, 1 if what == "wait" else -1)
            case "feed" | "starve":
                cadence.feeds(at, 1 if what == "feed" else -1)
            case "end":
                cadence.ends()
    return at


@given(plan=plans, script=st.lists(calls, max_size=60), sees_all=st.booleans(), later=st.floats(0.0, 1e7))
def test_whatever_a_job_does_its_demand_is_one_that_the_operator_understands(
    plan: GivenCadence, script: list[tuple[float, str]], sees_all: bool, later: float
) -> None:
    cadence = Cadence("job", plan, sees_all=sees_all)
    demand = cadence.demand(played(cadence, script) + later)
    assert parse_demand(dump_demand(demand)) == demand


@given(
    rollout=st.floats(0.1, 1000),
    gap=st.floats(0.1, 1000),
    lead=st.floats(0.0, 1.0),
    spread=st.floats(0.0, 1.0),
    steps=st.integers(FEW + 1, 12),
    into=st.floats(0.0, 1.0),
)
def test_the_beat_of_an_even_job_is_foreseen_exactly(
    rollout: float, gap: float, lead: float, spread: float, steps: int, into: float
) -> None:
    cadence = Cadence("job", GivenCadence())
    first = lead * rollout
    last = first + spread * (rollout - first)
    for number in range(steps):
        step(cadence, number * (rollout + gap), comes=(first, last), update=rollout)
    now = (steps - 1) * (rollout + gap) + rollout + into * gap
    demand = cadence.demand(now)
    assert demand.starts_in_seconds == pytest.approx((1 - into) * gap + first, abs=0.01)
    assert demand.every_seconds == pytest.approx(rollout + gap, abs=0.01)
    assert (demand.samples, demand.spread_seconds) == (2, pytest.approx(last - first, abs=0.01))


@given(seconds=st.lists(st.floats(0.0, 100.0), min_size=2, max_size=20))
def test_the_next_burst_does_not_move_away_as_time_passes(seconds: list[float]) -> None:
    cadence, at = steady(), 60.0
    before = cadence.demand(at).starts_in_seconds
    assert before is not None
    for passed in seconds:
        at += passed
        now = cadence.demand(at).starts_in_seconds
        assert now is not None
        assert now <= before
        before = now
