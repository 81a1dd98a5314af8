"""How much of a pass is the API server's."""

import asyncio

from rewardpool_kube import api_server_time
from rewardpool_kube.api_server_time import ApiServerTime


def test_calls_beside_each_other_count_once() -> None:
    now = [0.0]
    counted = ApiServerTime(clock=lambda: now[-1])
    with counted.call():
        now.append(1.0)
        with counted.call():
            now.append(3.0)
    now.append(10.0)
    with counted.call():
        now.append(10.5)
    assert counted.seconds == 3.5


async def test_a_pass_counts_its_own_calls_alone() -> None:
    async def a_pass(calls: int) -> bool:
        counted = api_server_time.begin()
        for _ in range(calls):
            with api_server_time.calling():
                await asyncio.sleep(0.001)
        return counted.seconds > 0

    assert await asyncio.gather(*(asyncio.create_task(a_pass(calls)) for calls in (0, 2))) == [False, True]
