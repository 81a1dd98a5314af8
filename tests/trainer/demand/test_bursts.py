import asyncio

from rewardpool._demand.bursts import Bursts


class RecordedDemand:
    def __init__(self) -> None:
        self.said: list[str] = []

    def rollout(self) -> None:
        self.said.append("rollout")

    def update(self) -> None:
        self.said.append("update")


async def quiet() -> None:
    """Let a timer of no seconds run."""
    for _ in range(3):
        await asyncio.sleep(0)


async def test_samples_one_after_the_other_are_one_rollout() -> None:
    demand = RecordedDemand()
    bursts = Bursts([demand], quiet_seconds=60)
    for _ in range(3):
        with bursts.sample():
            pass
        await quiet()
    assert demand.said == ["rollout"]


async def test_a_rollout_is_over_when_nothing_came_for_the_quiet_time() -> None:
    demand = RecordedDemand()
    bursts = Bursts([demand], quiet_seconds=0)
    for _ in range(2):
        with bursts.sample():
            pass
        await quiet()
    assert demand.said == ["rollout", "update"] * 2


async def test_while_a_sample_is_on_its_way_the_rollout_is_not_over() -> None:
    demand = RecordedDemand()
    bursts = Bursts([demand], quiet_seconds=0)
    with bursts.sample():
        with bursts.sample():
            pass
        await quiet()
        assert demand.said == ["rollout"]
