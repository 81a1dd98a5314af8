"""Whose turn it is to be upgraded, with a clock of our own."""

from hypothesis import given
from hypothesis import strategies as st

from rewardpool_operator.kubernetes.turns import LONGEST_TURN_SECONDS, Turns

A, B, C = ("rl", "a"), ("rl", "b"), ("rl", "c")


def test_one_pool_at_a_time_and_the_next_one_is_woken() -> None:
    woken: list[tuple[str, str]] = []
    turns = Turns(1, wake=woken.append)
    assert [turns.take(key) for key in (A, B, C, A)] == [True, False, False, True]
    assert turns.waiting() == 2
    turns.end(A)
    assert woken == [B]
    assert [turns.take(key) for key in (B, C)] == [True, False]


def test_a_pool_that_is_never_done_keeps_the_others_for_some_minutes_only() -> None:
    now = 0.0
    turns = Turns(1, clock=lambda: now)
    assert [turns.take(A), turns.take(B)] == [True, False]
    now = LONGEST_TURN_SECONDS
    assert [turns.take(B), turns.take(C)] == [True, False]


def test_a_pool_that_is_gone_gives_its_turn_back() -> None:
    turns = Turns(1)
    assert turns.take(A)
    turns.end(A)
    assert turns.take(B)


@given(limit=st.integers(1, 3), steps=st.lists(st.tuples(st.booleans(), st.integers(0, 5)), max_size=60))
def test_never_more_than_the_limit_have_their_turn(limit: int, steps: list[tuple[bool, int]]) -> None:
    turns, keys = Turns(limit, clock=lambda: 0.0), [("rl", str(number)) for number in range(6)]
    for takes, number in steps:
        if takes:
            turns.take(keys[number])
        else:
            turns.end(keys[number])
        assert sum(map(turns.holds, keys)) <= limit
