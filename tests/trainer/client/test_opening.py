"""A pool that is opened in the midst of trouble: its samples wait, and none outlives its deadline."""

import threading
import time
from typing import Any

import pytest
from support.fake_worker import FakeWorker, hangs, says
from support.pauses import no_pause

from rewardpool import Endpoint, Pool, RewardConfig, Sample
from rewardpool._client.pool import injected_pool
from rewardpool._deadline import already_waited, waited
from rewardpool._rewards import lazy
from rewardpool._rewards.lazy import LazyReward
from rewardpool.errors import DeadlineError, PoolNotYetReadyError

TROUBLE = "Serving is False, EngineExited: worker-0 starts again in 1.8 s"


def finds(url: str) -> Any:
    """Discovery of a pool that is not ready."""

    async def find(_: RewardConfig, **__: Any) -> Endpoint:
        return Endpoint(url=url, pool="rl/rm", served_name="rm", origin="a test", not_ready=TROUBLE)

    return find


async def test_a_pool_opened_in_the_moment_in_which_its_workers_died_scores_when_they_are_back() -> None:
    gone = says('{"error": {"code": "no_available_workers"}}', status=503)
    async with (
        FakeWorker(*[gone] * 20) as worker,
        injected_pool(RewardConfig(pool="rl/rm"), find=finds(worker.url), call_later=no_pause) as pool,
    ):
        assert await pool.score(Sample(text="four")) == 4.0


async def test_a_sample_whose_pool_did_not_come_back_says_what_the_pool_said() -> None:
    async with FakeWorker() as gone:
        pass
    config = RewardConfig(pool="rl/rm", timeout=0.2)
    async with injected_pool(config, find=finds(gone.url), call_later=no_pause) as pool:
        with pytest.raises(DeadlineError, match="EngineExited: worker-0 starts again"):
            await pool.score(Sample(text="four"))


async def test_what_opening_took_is_part_of_the_samples_deadline() -> None:
    async with FakeWorker(*[hangs] * 9) as worker, Pool(RewardConfig(url=worker.url, timeout=10)) as pool:
        began = time.monotonic()
        with waited(9.8), pytest.raises(DeadlineError):
            await pool.score(Sample(text="four"))
    assert time.monotonic() - began < 5


def test_waits_add_up_and_end_with_their_block() -> None:
    with waited(1.0), waited(2.0):
        assert already_waited() == 3.0
    assert already_waited() == 0.0


def test_who_comes_while_a_reward_is_opened_shares_its_failure_and_does_not_wait_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened, let_go, all_came = [0], threading.Event(), threading.Barrier(9)

    class Fails:
        def __init__(self, **_: Any) -> None:
            opened[0] += 1
            let_go.wait(10)
            raise PoolNotYetReadyError("no address yet")

    monkeypatch.setattr(lazy, "BlockingReward", Fails)
    reward = LazyReward("rl/rm")
    errors: list[BaseException] = []

    def ask() -> None:
        all_came.wait(10)
        try:
            reward.opened()
        except PoolNotYetReadyError as error:
            errors.append(error)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    all_came.wait(10)
    time.sleep(0.2)  # all of them are in the call, or share what comes of the first one's
    let_go.set()
    for thread in threads:
        thread.join(10)
    assert (len(errors), opened) == (8, [1])
    with pytest.raises(PoolNotYetReadyError):
        reward.opened()
    assert opened == [2]
