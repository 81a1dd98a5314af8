from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.score_waits import waits_on

from rewardpool._score_waits import (
    MOST_ANSWERS,
    MOST_SPANS,
    PARTS,
    ReadyTimes,
    ScoreWait,
    Span,
    Wait,
    score_wait,
)


@pytest.mark.parametrize(
    ("waits", "spans", "expected"),
    [
        pytest.param([], [Span("serving", 0, 10)], ScoreWait(), id="it never waits"),
        pytest.param([Wait(6, 8)], [Span("serving", 0, 8)], ScoreWait(share=0.2, serving=0.2), id="for a worker"),
        pytest.param([Wait(6, 8)], [], ScoreWait(share=0.2, other=0.2), id="while no sample is at a pool"),
        pytest.param(
            [Wait(4, 8)],
            [Span("cold_starts", 0, 5), Span("retries", 5, 6), Span("queueing", 6, 7), Span("serving", 7, 8)],
            ScoreWait(share=0.4, cold_starts=0.1, retries=0.1, queueing=0.1, serving=0.1),
            id="for one sample from beginning to end",
        ),
        pytest.param(
            [Wait(4, 8)],
            [Span("serving", 4, 8), Span("queueing", 4, 8, samples=3)],
            ScoreWait(share=0.4, serving=0.1, queueing=0.3),
            id="samples that wait at a time divide it equally",
        ),
        pytest.param(
            [Wait(1, 2), Wait(6, 7)],
            [Span("serving", 0, 10)],
            ScoreWait(share=0.2, serving=0.2),
            id="mini-batch by mini-batch",
        ),
        pytest.param(
            [Wait(-5, 1), Wait(9, 20)],
            [Span("serving", -9, 30)],
            ScoreWait(share=0.2, serving=0.2),
            id="what is outside of the step does not count",
        ),
        pytest.param(
            [Wait(2, 6), Wait(4, 8)],
            [Span("serving", 0, 10)],
            ScoreWait(share=0.6, serving=0.6),
            id="two waits at a time are one",
        ),
        pytest.param([Wait(0)], [], ScoreWait(share=1.0, other=1.0), id="a wait that goes on"),
    ],
)
def test_the_share_of_a_step_of_ten_seconds(waits: list[Wait], spans: list[Span], expected: ScoreWait) -> None:
    assert asdict(score_wait(waits, spans, begin=0, end=10)) == pytest.approx(asdict(expected))


TIMES = st.floats(-20, 40)
PERIODS = st.tuples(TIMES, TIMES).map(sorted)


@given(
    st.lists(st.builds(lambda period: Wait(*period), PERIODS), max_size=5),
    st.lists(
        st.builds(
            lambda part, period, n: Span(part, period[0], period[1], n),
            st.sampled_from(PARTS),
            PERIODS,
            st.integers(1, 9),
        ),
        max_size=20,
    ),
    PERIODS,
)
def test_the_parts_add_up_to_a_share_from_0_to_1(waits: list[Wait], spans: list[Span], step: list[float]) -> None:
    share, *parts = asdict(score_wait(waits, spans, begin=step[0], end=step[1])).values()
    assert 0 <= share <= 1
    assert all(part >= 0 for part in parts)
    assert sum(parts) == pytest.approx(share)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_step_has_the_waits_and_samples_since_the_one_before() -> None:
    clock = Clock()
    waits = waits_on(clock, begin=100.0)
    for part in ("serving", "queueing"):
        clock.now += 6
        with waits.waiting():
            clock.now += 4
        waits.spent(part, clock.now - 8, clock.now)
        assert asdict(waits.lap() or ScoreWait()) == asdict(ScoreWait(share=0.4, **{part: 0.4}))


def test_a_first_step_that_began_at_an_unknown_time_has_no_share() -> None:
    waits = waits_on(Clock())
    assert waits.lap() is None
    assert waits.lap() == ScoreWait()


def test_of_very_many_samples_a_random_choice_gives_the_same_parts() -> None:
    clock = Clock()
    waits = waits_on(clock, begin=90.0)
    with waits.waiting():
        clock.now = 110.0
    for number in range(3 * MOST_SPANS):
        waits.spent("queueing" if number % 2 else "serving", 100.0, 110.0)
    found = waits.lap()
    assert found is not None
    assert found.queueing == pytest.approx(0.25, abs=0.02)


def test_the_first_worker_is_that_which_was_ready_first_of_those_that_answered_since() -> None:
    readiness = ReadyTimes()
    assert readiness.answered(10.0, 0.0, since=9.0) == 0.0
    assert readiness.answered(20.0, 15.0, since=9.0) == 0.0  # the pool has grown
    assert readiness.answered(30.0, 25.0, since=21.0) == 25.0  # it was at zero


@given(
    st.lists(st.tuples(st.floats(0, 9), st.floats(0, 99)), min_size=1, max_size=2 * MOST_ANSWERS), st.integers(1, 500)
)
def test_the_first_worker_is_found_among_the_last_answers(answers: list[tuple[float, float]], back: int) -> None:
    readiness, said, now = ReadyTimes(), [], 0.0
    for pause, ready_for in answers:
        now += pause
        said.append((now, now - ready_for))
        since = said[-min(back, len(said), MOST_ANSWERS)][0]
        assert readiness.answered(*said[-1], since=since) == min(ready for at, ready in said if at >= since)
