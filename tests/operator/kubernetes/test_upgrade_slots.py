"""Which pools may be upgraded now, with a clock of our own."""

from hypothesis import given
from hypothesis import strategies as st

from rewardpool_operator.kubernetes.upgrade_slots import SLOT_SECONDS, UpgradeSlots

A, B, C = ("rl", "a"), ("rl", "b"), ("rl", "c")


def test_one_pool_at_a_time_and_the_next_one_is_woken() -> None:
    woken: list[tuple[str, str]] = []
    upgrade_slots = UpgradeSlots(1, wake=woken.append)
    assert [upgrade_slots.acquire(key) for key in (A, B, C, A)] == [True, False, False, True]
    assert upgrade_slots.waiting() == 2
    upgrade_slots.release(A)
    assert woken == [B]
    assert [upgrade_slots.acquire(key) for key in (B, C)] == [True, False]


def test_a_pool_that_is_never_done_keeps_the_others_for_some_minutes_only() -> None:
    now = 0.0
    upgrade_slots = UpgradeSlots(1, clock=lambda: now)
    assert [upgrade_slots.acquire(A), upgrade_slots.acquire(B)] == [True, False]
    now = SLOT_SECONDS
    assert [upgrade_slots.acquire(B), upgrade_slots.acquire(C)] == [True, False]


def test_a_pool_that_is_gone_gives_its_turn_back() -> None:
    upgrade_slots = UpgradeSlots(1)
    assert upgrade_slots.acquire(A)
    upgrade_slots.release(A)
    assert upgrade_slots.acquire(B)


@given(limit=st.integers(1, 3), steps=st.lists(st.tuples(st.booleans(), st.integers(0, 5)), max_size=60))
def test_never_more_than_the_limit_have_their_turn(limit: int, steps: list[tuple[bool, int]]) -> None:
    upgrade_slots, keys = UpgradeSlots(limit, clock=lambda: 0.0), [("rl", str(number)) for number in range(6)]
    for takes, number in steps:
        if takes:
            upgrade_slots.acquire(keys[number])
        else:
            upgrade_slots.release(keys[number])
        assert sum(map(upgrade_slots.holds, keys)) <= limit
