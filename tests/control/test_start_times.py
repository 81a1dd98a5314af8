"""How long starts take, by a clock of the test's own."""

from dataclasses import replace

import pytest
from support.decide_builders import a_worker

from rewardpool_control.snapshot import Worker
from rewardpool_control.start_times import StartTimes

STARTING = a_worker("a", answering=False)
UP = a_worker("a")


def seconds_of_last(*looks: tuple[Worker, ...]) -> list[float | None]:
    """At the last of several looks, ten seconds apart."""
    times, seen = StartTimes(), tuple[Worker, ...]()
    for look, workers in enumerate(looks):
        seen = times.measure(workers, now=10.0 * look)
    return [worker.start_seconds for worker in seen]


@pytest.mark.parametrize(
    ("looks", "seconds"),
    [
        pytest.param([(), (STARTING,), (UP,)], 10.0, id="watched from its making"),
        pytest.param([(), (STARTING,), (STARTING,), (UP,), (UP,)], 20.0, id="and remembered"),
        pytest.param([(), (STARTING,)], None, id="it still starts"),
        pytest.param([(), (UP,), (UP,)], None, id="never seen starting"),
        pytest.param([(STARTING,), (UP,)], None, id="there before the first look"),
        pytest.param([(), (STARTING,), (replace(UP, restarts=1),)], None, id="started again before it answered"),
        pytest.param(
            [(), (replace(STARTING, restarts=1),), (replace(UP, restarts=1),)], None, id="started again between looks"
        ),
        pytest.param([(), (STARTING,), (UP,), (replace(UP, restarts=1),)], 10.0, id="started again later"),
    ],
)
def test_start(looks: list[tuple[Worker, ...]], seconds: float | None) -> None:
    assert seconds_of_last(*looks) == [seconds]


def test_a_worker_with_the_name_of_one_that_is_gone_is_another_one() -> None:
    later = a_worker("a", answering=False, age_seconds=5)
    assert seconds_of_last((), (STARTING,), (UP,), (later,)) == [None]
