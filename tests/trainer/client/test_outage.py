"""A pool that answers nothing, on a simulated clock: who asks it meanwhile, and when all go on."""

import asyncio
import random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from support.simulated_time import run

from rewardpool._client.rules.outage import CANARY_SECONDS, MOST_CANARIES, PROBE_SECONDS, WAKE_SECONDS, Outage


def an_outage(seed: int = 0) -> Outage:
    return Outage(uniform=random.Random(seed).uniform)


class Sample:
    """That pauses, as a request does before its next attempt."""

    def __init__(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        self.over = asyncio.Event()
        self._timer = loop.call_later(seconds, self.over.set)

    def go_on_within(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        if loop.time() + seconds < self._timer.when():
            self._timer.cancel()
            self._timer = loop.call_later(seconds, self.over.set)


async def pause(outage: Outage, seconds: float, *, at_least: float = 0.0) -> None:
    sample = Sample(seconds)
    outage.pauses(sample.go_on_within, at_least=at_least)
    await sample.over.wait()
    outage.forget(sample.go_on_within)


async def ask_until(outage: Outage, back_at: float, *, seconds: float, asked: list[float]) -> float:
    """One sample: asks, and pauses, until the pool is back; returns when it was answered."""
    loop = asyncio.get_running_loop()
    while True:
        asked.append(loop.time())
        if loop.time() >= back_at:
            outage.answered()
            return loop.time()
        await pause(outage, seconds)


@given(count=st.integers(1, 200), back_at=st.floats(0.5, 60), seed=st.integers(0, 1000))
def test_all_go_on_as_soon_as_the_pool_is_back_however_long_they_would_pause(
    count: int, back_at: float, seed: int
) -> None:
    async def main() -> tuple[list[float], list[float]]:
        outage, asked = an_outage(seed), list[float]()
        ends = await asyncio.gather(*(ask_until(outage, back_at, seconds=1000, asked=asked) for _ in range(count)))
        outage.close()
        return ends, asked

    ends, asked = run(main())
    assert max(ends) <= back_at + PROBE_SECONDS[1] + WAKE_SECONDS + 0.001
    # However many wait: one asks at a time.
    assert len(asked) <= 2 * count + back_at / PROBE_SECONDS[0] + 1


def test_one_that_pauses_in_vain_goes_on_after_its_pause() -> None:
    async def main() -> float:
        outage = an_outage()
        await pause(outage, 0.05)
        outage.close()
        return asyncio.get_running_loop().time()

    assert 0.05 <= run(main()) < PROBE_SECONDS[0]


def test_beside_what_is_held_one_request_goes_at_a_time_whoever_is_looked_at() -> None:
    async def main() -> list[float]:
        outage, sent = an_outage(), list[float]()
        loop = asyncio.get_running_loop()
        while loop.time() < 10:
            for _ in range(64):
                if outage.wants_canary(sent_at=0.0, usual_seconds=0.05, now=loop.time()):
                    sent.append(loop.time())
            await asyncio.sleep(0.03)
        return sent

    sent = run(main())
    assert sent[0] >= 1.0  # while anything was answered a moment ago, nothing is wrong
    assert 9 / (CANARY_SECONDS[1] + 0.03) - 1 <= len(sent) <= 9 / CANARY_SECONDS[0] + 1


def test_where_answers_take_long_it_goes_no_more_often_than_that() -> None:
    async def main() -> int:
        outage = an_outage()
        return sum(outage.wants_canary(sent_at=0.0, usual_seconds=20.0, now=second) for second in range(1, 101))

    assert run(main()) == 5


def test_at_most_so_many_of_them_are_open() -> None:
    async def main() -> list[bool]:
        outage = an_outage()
        canaries: list[asyncio.Task[Any]] = [asyncio.create_task(asyncio.sleep(100)) for _ in range(5)]
        for canary in canaries:
            outage.canary_sent(canary)
        await asyncio.sleep(0)
        return [canary.cancelled() for canary in canaries]

    assert run(main()) == [True] * (5 - MOST_CANARIES) + [False] * MOST_CANARIES


def test_only_an_answer_after_a_silence_says_that_the_pool_is_back() -> None:
    async def main() -> list[bool]:
        outage, said = an_outage(), []
        for seconds in (0.5, 0.5, 2.0, 0.1):
            await asyncio.sleep(seconds)
            said.append(outage.answered())
        return said

    assert run(main()) == [False, False, True, False]


def test_nobody_asks_earlier_than_the_server_wants_but_all_go_on_when_one_is_answered() -> None:
    async def main() -> list[float]:
        outage, loop, ends = an_outage(), asyncio.get_running_loop(), list[float]()

        async def one(at_least: float) -> None:
            await pause(outage, 1000, at_least=at_least)
            ends.append(loop.time())

        pausing = [asyncio.create_task(one(at_least)) for at_least in (5.0, 50.0)]
        await pausing[0]
        outage.answered()
        await pausing[1]
        outage.close()
        return ends

    first, second = run(main())
    assert 5.0 <= first <= 5.0 + PROBE_SECONDS[1]
    assert second <= first + WAKE_SECONDS
