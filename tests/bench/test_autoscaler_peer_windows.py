"""What peers remember, against the plain definitions."""

import pytest
from autoscaler.peers.windows import Extreme, Samples, Seconds
from hypothesis import given
from hypothesis import strategies as st

VALUES = st.lists(st.integers(-50, 50), min_size=1, max_size=60)


@pytest.mark.parametrize("of", [max, min])
@given(values=VALUES, length=st.integers(1, 20))
def test_an_extreme_is_that_of_the_values_less_old_than_the_window(of, values, length):
    window = Extreme(of, seconds=length)
    seen = [window.record(float(now), value) for now, value in enumerate(values)]
    assert seen == [of(values[max(0, now - length + 1) : now + 1]) for now in range(len(values))]


def test_a_float_just_short_of_the_window_is_at_its_end():
    window = Extreme(max, seconds=0.3)
    window.record(0.0, 9)
    assert window.record(0.1 + 0.1 + 0.1 - 1e-12, 1) == 1


@given(values=VALUES)
def test_samples_keep_what_is_exactly_as_old_as_the_window(values):
    samples = Samples(seconds=180)
    for number, value in enumerate(values):
        samples.record(10.0 * number, value)
    kept = values[-19:]
    assert samples.mean == pytest.approx(sum(kept) / len(kept))


def test_samples_are_not_forgotten_without_a_new_one():
    samples = Samples(seconds=60)
    assert samples.mean == 0
    samples.record(0.0, 5)
    assert samples.mean == 5
    samples.record(1000.0, 1)
    assert samples.mean == 1


@pytest.mark.parametrize(
    ("recorded", "at", "mean"),
    [
        pytest.param({}, 3, 0, id="nothing"),
        pytest.param({0: 6}, 0, 6, id="the mean is over the seconds since the first"),
        pytest.param({0: 6, 1: 0}, 1, 3, id="so that two count for two"),
        pytest.param({0: 6, 2: 6}, 2, 4, id="a second without a record is zero"),
        pytest.param({0: 9, 1: 1, 2: 1, 3: 1}, 3, 1, id="the first has left a window of three"),
        pytest.param({0: 9, 1: 1, 2: 3}, 3, 2, id="it leaves without a record too"),
        pytest.param({0: 9, 1: 1, 2: 3}, 5, 0, id="after a whole window nothing is left"),
        pytest.param({0: 9, 5: 7}, 5, 7, id="and all begins anew"),
    ],
)
def test_seconds_in_a_window_of_three(recorded, at, mean):
    window = Seconds(seconds=3)
    for second, value in recorded.items():
        window.record(second, value)
    assert window.mean(at) == mean


def test_a_window_is_empty_when_nothing_came_for_longer_than_it_is():
    window = Seconds(seconds=3)
    assert window.is_empty(0)
    window.record(0, 1)
    assert not window.is_empty(3)
    assert window.is_empty(4)
