"""The queue of what is to happen in the simulator."""

from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from rewardpool_simulator.events import Events

MOMENTS = st.lists(st.integers(0, 5).map(float), max_size=8)


def _order(*, series: bool, times: list[float], before: list[float], behind: list[float]) -> list[tuple[float, str]]:
    """What happens, with two calls that enter others of their own meanwhile."""
    events, seen = Events(), list[tuple[float, str]]()

    def happens(what: str) -> None:
        seen.append((events.now, what))
        if what.startswith("series"):
            events.call_later(1.0, happens, f"after {what}")

    for number, at in enumerate(before):
        events.call_at(at, happens, f"before {number}")
    items = [(at, f"series {number}") for number, at in enumerate(sorted(times))]
    if series:
        events.call_each_later(items, happens)
    else:
        for at, what in items:
            events.call_later(at, happens, what)
    for number, at in enumerate(behind):
        events.call_at(at, happens, f"behind {number}")
    while events.run_next():
        pass
    return seen


@given(times=MOMENTS, before=MOMENTS, behind=MOMENTS)
def test_a_series_happens_as_if_each_of_its_calls_had_been_entered(
    times: list[float], before: list[float], behind: list[float]
) -> None:
    order = partial(_order, times=times, before=before, behind=behind)
    assert order(series=True) == order(series=False)


def test_going_on_ends_with_the_first_thing_that_is_not_earlier() -> None:
    events, seen = Events(), list[float]()
    for at in (1.0, 3.0, 4.0, 5.0):
        events.call_at(at, lambda: seen.append(events.now))
    events.run_until(3.5)
    assert seen == [1.0, 3.0, 4.0]
