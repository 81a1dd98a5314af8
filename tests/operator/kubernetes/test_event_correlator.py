"""Which news of a pool become events."""

from hypothesis import given
from hypothesis import strategies as st

from rewardpool_control.plan import Event
from rewardpool_operator.kubernetes.events.event_correlator import (
    COUNT_SECONDS,
    REFILL_SECONDS,
    REPAIRS_SECONDS,
    ROOM,
    SERIES_SECONDS,
    EventCorrelator,
    RepairTally,
    Repeat,
)

SERVING = Event(type="Normal", reason="Serving", message="Serving: 2 of 2 replicas serve")


def told(memory, event, *, now):
    """Take it, and write it if it is new."""
    found = memory.correlate(event, now=now)
    if isinstance(found, Event):
        memory.written(found, f"event-{now:g}", now=now)
    return found


def another(number):
    return Event(type="Normal", reason="Draining", message=f"worker-{number} leaves the routers")


def test_what_is_said_for_the_first_time_is_an_event():
    assert told(EventCorrelator(), SERVING, now=0) == SERVING


def test_what_is_said_again_soon_is_counted_in_the_first_one():
    memory = EventCorrelator()
    told(memory, SERVING, now=0)
    assert told(memory, SERVING, now=1) is None
    assert told(memory, SERVING, now=COUNT_SECONDS) == Repeat(name="event-0", count=3)


def test_what_is_said_again_much_later_is_news():
    memory = EventCorrelator()
    told(memory, SERVING, now=0)
    assert told(memory, SERVING, now=SERIES_SECONDS) == SERVING


def test_what_differs_in_its_words_is_another_event():
    memory = EventCorrelator()
    told(memory, SERVING, now=0)
    assert told(memory, another(1), now=0) == another(1)


def test_a_pool_that_floods_is_cut_off_and_has_room_again_later():
    memory = EventCorrelator()
    found = [told(memory, another(number), now=0) for number in range(ROOM + 5)]
    assert found.count(None) == 5
    assert told(memory, another(99), now=REFILL_SECONDS) == another(99)


def test_an_event_that_was_not_written_is_tried_anew():
    memory = EventCorrelator()
    memory.correlate(SERVING, now=0)
    assert memory.correlate(SERVING, now=1) == SERVING


@given(st.lists(st.tuples(st.integers(0, 5), st.floats(0, 100)), max_size=200))
def test_no_flood_makes_more_events_than_there_is_room_for(said):
    memory, now, made = EventCorrelator(), 0.0, 0
    for number, pause in said:
        now += pause
        made += isinstance(told(memory, another(number), now=now), Event)
    assert made <= ROOM + now / REFILL_SECONDS + 1


def test_a_repair_is_told_at_once():
    tally = RepairTally()
    tally.add("join")
    (event,) = tally.due(now=0)
    assert event.reason == "RoutersRepaired"
    assert event.message.endswith("1 workers put back")


def test_further_repairs_are_summed_up():
    tally = RepairTally()
    tally.add("join")
    list(tally.due(now=0))
    for change in ("join", "join", "leave"):
        tally.add(change)
        assert list(tally.due(now=1)) == []
    (event,) = tally.due(now=REPAIRS_SECONDS)
    assert event.message.endswith("2 workers put back, 1 strangers taken off")


def test_without_a_repair_nothing_is_told():
    assert list(RepairTally().due(now=0)) == []
