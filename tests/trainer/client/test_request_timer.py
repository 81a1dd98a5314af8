"""What is in flight is checked when it is due, and what lost a race is closed late, but closed."""

import asyncio

from rewardpool._client.request_timer import LEAST_LEFT_OPEN, RequestTimer


class Seen:
    """Something in flight, due again so many seconds after each check."""

    def __init__(self, *, again_seconds: float = 0.0) -> None:
        self.checks = 0
        self.often = asyncio.Event()
        self._again_seconds = again_seconds

    def check(self, now: float) -> float:
        self.checks += 1
        if self.checks == 3:
            self.often.set()
        return now + self._again_seconds


async def test_each_is_checked_when_it_is_due() -> None:
    timer = RequestTimer(soonest_seconds=0.01, most_left_open=8)
    patient, impatient = Seen(again_seconds=60.0), Seen()
    timer.add(patient)
    timer.add(impatient)
    await asyncio.wait_for(impatient.often.wait(), 5)
    assert patient.checks == 1
    timer.close()


async def test_what_has_little_time_left_is_checked_before_it_is_old() -> None:
    timer = RequestTimer(soonest_seconds=60.0, most_left_open=8)
    new, late = Seen(again_seconds=60.0), Seen(again_seconds=60.0)
    timer.add(new)
    timer.add(late, seconds_left=0.0)
    timer._check()
    assert (new.checks, late.checks) == (0, 1)
    timer.close()


async def test_what_is_removed_is_not_checked() -> None:
    timer = RequestTimer(soonest_seconds=0.01, most_left_open=8)
    gone, there = Seen(), Seen()
    timer.add(gone)
    timer.add(there)
    timer.remove(gone)
    await asyncio.wait_for(there.often.wait(), 5)
    assert gone.checks == 0
    timer.close()


class Lost:
    """An attempt that lost a race."""

    is_over = False

    def cancel(self) -> None:
        self.is_over = True


async def test_of_too_many_that_lost_the_oldest_is_closed() -> None:
    timer = RequestTimer(soonest_seconds=0.01, most_left_open=0)
    attempts = [Lost() for _ in range(LEAST_LEFT_OPEN + 1)]
    for attempt in attempts:
        timer.leave_open(attempt)
    assert [attempt.is_over for attempt in attempts] == [True] + [False] * LEAST_LEFT_OPEN
    timer.close()


async def test_closing_closes_what_was_left_open() -> None:
    timer = RequestTimer(soonest_seconds=0.01, most_left_open=8)
    attempt = Lost()
    timer.leave_open(attempt)
    timer.close()
    assert attempt.is_over
