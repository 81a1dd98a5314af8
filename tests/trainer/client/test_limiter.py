"""How many requests may be in flight, against a server that is a table; and the slots that are so many."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.fake_worker import FakeWorker, hangs, says
from support.pauses import no_pause

from rewardpool import RewardConfig, Sample
from rewardpool._client.pool import injected_pool
from rewardpool._client.rules.limiter import AdaptiveLimit, AdaptiveLimiter


def test_it_begins_with_all_of_it() -> None:
    assert AdaptiveLimit(64).limit == 64


def test_too_much_halves_it_once_for_all_that_was_in_flight() -> None:
    pace = AdaptiveLimit(64)
    for now in (10.0, 10.1, 10.2):
        pace.overloaded(sent_at=9.0, now=now)
    assert pace.limit == 32
    pace.overloaded(sent_at=10.5, now=11.0)
    assert pace.limit == 16


def test_it_stays_over_an_eighth_so_that_autoscaling_sees_the_demand() -> None:
    pace = AdaptiveLimit(64)
    for now in range(100):
        pace.overloaded(sent_at=float(now), now=float(now))
    assert pace.limit == 8


def test_slow_answers_alone_do_not_lower_it() -> None:
    pace = AdaptiveLimit(64)
    for seconds in range(1, 1_000):
        pace.answered(float(seconds))
    assert pace.limit == 64


def overloaded_once(most: int = 64) -> AdaptiveLimit:
    pace = AdaptiveLimit(most)
    pace.overloaded(sent_at=0.0, now=1.0)
    return pace


def test_answers_that_hold_their_time_bring_it_back() -> None:
    pace = overloaded_once()
    for _ in range(7 * 64):
        pace.answered(0.1)
    assert pace.limit == 64


def test_it_waits_while_answers_take_longer() -> None:
    pace = overloaded_once()
    for _ in range(32):
        pace.answered(0.1)
    assert pace.limit == 36
    for _ in range(36 * 3):
        pace.answered(0.2)
    assert pace.limit == 36


def test_samples_that_became_longer_do_not_hold_it_down_for_ever() -> None:
    pace = overloaded_once()
    for seconds in [0.1] * 32 + [1.0] * 64 * 64:
        pace.answered(seconds)
    assert pace.limit == 64


@pytest.mark.parametrize("capacity", [10, 20, 40, 63])
def test_a_server_that_refuses_beyond_its_capacity_is_kept_full_and_not_flooded(capacity: int) -> None:
    pace, used, refused = AdaptiveLimit(64), 0, 0
    for second in range(1_000):
        sent = pace.limit
        served = min(sent, capacity)
        for _ in range(served):
            pace.answered(1.0)
        if sent > capacity:
            refused += sent - capacity
            pace.overloaded(sent_at=second, now=second + 1)
        used += served
    assert used >= 0.7 * 1_000 * capacity
    assert refused <= 0.05 * used


class Taker:
    """Asks for a slot, and notes what becomes of it."""

    def __init__(self, slots: AdaptiveLimiter, weight: int = 1, *, waiting_since: float = 0.0) -> None:
        self.weight = weight
        self.waiting_since = waiting_since
        self.became = "waiting"
        slots.acquire(self)

    def start(self) -> None:
        self.became = "started"

    def expire(self) -> None:
        self.became = "expired"


def became(takers: list[Taker]) -> list[str]:
    return [taker.became for taker in takers]


def started(takers: list[Taker]) -> int:
    """How many have a slot; they are the first ones."""
    count = became(takers).count("started")
    assert became(takers) == ["started"] * count + ["waiting"] * (len(takers) - count)
    return count


def test_slots_go_to_who_waits_longest() -> None:
    slots = AdaptiveLimiter(2)
    takers = [Taker(slots) for _ in range(4)]
    assert started(takers) == 2
    slots.release(1)
    assert started(takers) == 3


def test_slots_shrink_as_they_are_given_back_and_grow_at_once() -> None:
    slots = AdaptiveLimiter(4)
    takers = [Taker(slots) for _ in range(6)]
    slots.resize(2)
    slots.release(1)
    slots.release(1)
    assert started(takers) == 4
    slots.release(1)
    assert started(takers) == 5
    slots.resize(3)
    assert started(takers) == 6


def test_who_waits_for_a_slot_no_more_gets_none() -> None:
    slots = AdaptiveLimiter(1)
    takers = [Taker(slots) for _ in range(3)]
    slots.leave(takers[1])
    slots.release(1)
    assert became(takers) == ["started", "waiting", "started"]


def test_who_waits_for_a_slot_since_too_long_ago_is_told_so_and_gets_none() -> None:
    slots = AdaptiveLimiter(1)
    takers = [Taker(slots, waiting_since=since) for since in (0.0, 1.0, 2.0, 3.0)]
    slots.expire_before(2.0)
    assert became(takers) == ["started", "expired", "expired", "waiting"]
    slots.release(1)
    assert became(takers) == ["started", "expired", "expired", "started"]


def test_a_long_one_takes_several_slots_and_none_overtakes_it() -> None:
    slots = AdaptiveLimiter(4)
    takers = [Taker(slots, weight) for weight in (1, 4, 1, 1)]
    assert started(takers) == 1
    slots.release(1)
    assert started(takers) == 2
    slots.release(4)
    assert started(takers) == 4


def test_one_that_takes_more_slots_than_there_are_goes_alone() -> None:
    slots = AdaptiveLimiter(4)
    takers = [Taker(slots, weight) for weight in (9, 1)]
    assert started(takers) == 1
    slots.release(9)
    assert started(takers) == 2


@pytest.mark.parametrize("ends", [lambda slots, taker: slots.leave(taker), lambda slots, _: slots.expire_before(1.0)])
def test_the_end_of_a_long_ones_wait_lets_those_behind_it_go(ends: Callable[[AdaptiveLimiter, Taker], None]) -> None:
    slots = AdaptiveLimiter(2)
    first, long, short = Taker(slots), Taker(slots, 2, waiting_since=1.0), Taker(slots, waiting_since=2.0)
    ends(slots, long)
    assert [first.became, short.became] == ["started", "started"]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("take"), st.integers(1, 12)),
        st.tuples(st.sampled_from(["give_back", "leave"]), st.integers(0, 100)),
        st.tuples(st.just("resize"), st.integers(1, 8)),
    ),
    max_size=60,
)


@given(size=st.integers(1, 8), steps=STEPS)
def test_slots_are_never_more_than_there_are_but_for_one_that_is_alone(size: int, steps: list[tuple[str, int]]) -> None:
    slots, takers = AdaptiveLimiter(size), list[Taker]()
    for step, number in steps:
        running = [taker for taker in takers if taker.became == "started"]
        waiting = [taker for taker in takers if taker.became == "waiting"]
        if step == "take":
            takers.append(Taker(slots, number))
        elif step == "resize":
            size = number
            slots.resize(size)
        elif step == "give_back" and running:
            ended = running[number % len(running)]
            ended.became = "ended"
            slots.release(ended.weight)
        elif step == "leave" and waiting:
            left = waiting[number % len(waiting)]
            left.became = "left"
            slots.leave(left)
        before = {*running}
        running = [taker for taker in takers if taker.became == "started"]
        waiting = [taker for taker in takers if taker.became == "waiting"]
        taken = sum(taker.weight for taker in running)
        if {*running} - before:
            assert taken <= size or len(running) == 1
        # In order, and none waits for what is free.
        begun = [taker for taker in takers if taker.became != "left"]
        assert [taker.became == "waiting" for taker in begun] == sorted(taker.became == "waiting" for taker in begun)
        assert not waiting or (running and taken + waiting[0].weight > size)
    while running := [taker for taker in takers if taker.became == "started"]:
        running[0].became = "ended"
        slots.release(running[0].weight)
    assert "waiting" not in became(takers)


async def test_a_client_that_is_told_it_is_too_much_sends_less() -> None:
    all_again = asyncio.Event()

    async def last(request: Any) -> Any:
        all_again.set()
        return await hangs(request)

    async with (
        FakeWorker(*[says("", status=429)] * 8, *[hangs] * 7, last) as worker,
        injected_pool(RewardConfig(url=worker.url, concurrency=16), call_later=no_pause) as pool,
    ):
        tasks = [asyncio.create_task(pool.score(Sample(text="four"))) for _ in range(8)]
        await all_again.wait()
        assert pool.report().concurrency == 8
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_router_without_a_worker_is_not_overloaded() -> None:
    none = says('{"error": {"code": "no_available_workers"}}', status=503)
    async with FakeWorker(none) as worker, injected_pool(RewardConfig(url=worker.url), call_later=no_pause) as pool:
        await pool.score(Sample(text="four"))
        assert pool.report().concurrency == 64
