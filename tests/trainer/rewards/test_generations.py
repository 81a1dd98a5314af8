"""What one question to a judge costs, counted at the server: three generations over all layers, whatever it answers."""

import json
from typing import Any

import pytest
from support.fake_worker import Behaviour, FakeWorker, breaks_off, hangs, says
from support.quick_hedging import quick

from rewardpool._client.answer import Judgement
from rewardpool._client.pool import injected_pool
from rewardpool._config import RewardConfig
from rewardpool._rewards import Episode, Rating, open_reward
from rewardpool.errors import SampleError

EPISODE = Episode(prompt="?", response="4", id="e1")
GOOD = '{"reasoning": "fine", "score": 7}'


def completes(content: Any, finish_reason: str | None = "stop", **message: Any) -> Behaviour:
    choice = {"message": {"content": content, **message}, "finish_reason": finish_reason}
    return says(json.dumps({"choices": [choice]}))


async def asked(*behaviours: Behaviour, timeout: float = 20, **judge: Any) -> tuple[Rating, FakeWorker]:
    """What becomes of one episode, where the server answers so in turn and goes on with the last one."""
    async with FakeWorker(*behaviours, *[behaviours[-1]] * 40) as worker:
        spec = {"url": worker.url, "type": "Generative", "judge": judge, "timeout": timeout, "on_failure": "skip"}
        async with open_reward(spec) as reward:
            return await reward.rate(EPISODE), worker


@pytest.mark.parametrize(
    ("behaviour", "problem"),
    [
        (completes(None, "length", reasoning_content="First I look at"), "raise max_tokens"),
        (completes(None, "length", reasoning="First I look at"), "raise max_tokens"),
        (completes("", "length"), "raise max_tokens"),
        (completes("<think>First I look at", "length"), "raise max_tokens"),
        (completes('{"reasoning": "First', "length"), "raise max_tokens"),
        (completes(None, reasoning="So."), "it wrote nothing but its thoughts"),
        (completes("Score: 7"), "not one JSON object"),
        (completes(["Score: 7"]), "no choices"),
        (says('{"choices": []}'), "no choices"),
        (says("<html>"), "not JSON"),
        (says("{}", status=500), "HTTP 500"),
        (says("<html>Bad gateway", status=502), "HTTP 502"),
        (says("<html>Gateway time-out", status=504), "HTTP 504"),
        (says("<html>Request time-out", status=408), "HTTP 408"),
        (breaks_off, "connection"),
    ],
)
async def test_an_answer_that_stays_useless_costs_three_generations(behaviour: Behaviour, problem: str) -> None:
    rating, worker = await asked(behaviour)
    assert rating.total is None
    assert problem in str(rating.error)
    assert len(worker.requests) == 3


async def test_causes_of_every_layer_are_counted_together() -> None:
    rating, worker = await asked(completes("hm"), says("{}", status=500), says("<html>"), completes(GOOD))
    assert rating.total is None
    assert len(worker.requests) == 3


async def test_what_an_answer_cost_is_in_the_rating() -> None:
    rating, worker = await asked(says("<html>"), completes("hm"), completes(GOOD))
    assert rating.total == 7
    assert rating.info[next(iter(rating.info))]["requests"] == len(worker.requests) == 3


@pytest.mark.parametrize(("retries", "generations"), [(0, 1), (4, 5)])
async def test_the_bound_is_the_configs_retries_and_one(retries: int, generations: int) -> None:
    for useless in (completes("hm"), says("<html>")):
        _, worker = await asked(useless, retries=retries)
        assert len(worker.requests) == generations


async def test_each_vote_has_the_bound_for_itself() -> None:
    _, worker = await asked(completes(GOOD), completes(GOOD), completes("hm"), votes=3)
    assert len(worker.requests) == 5


async def test_probabilities_that_never_come_cost_three_generations_of_a_token() -> None:
    _, worker = await asked(completes("yes"), output="probabilities", labels={"yes": 1, "no": 0})
    assert len(worker.requests) == 3


async def test_a_router_without_a_worker_costs_none() -> None:
    waiting = says(json.dumps({"error": {"code": "no_available_workers"}}), status=503)
    rating, worker = await asked(waiting, waiting, waiting, waiting, completes(GOOD), timeout=60)
    assert rating.total == 7
    assert len(worker.requests) == 5


@pytest.mark.parametrize("status", [425, 429, 503])
async def test_a_server_that_has_no_place_costs_none(status: int) -> None:
    full = says("{}", status=status)
    rating, worker = await asked(full, full, full, full, completes(GOOD), timeout=60)
    assert rating.total == 7
    assert len(worker.requests) == 5


async def hedged(*behaviours: Behaviour, timeout: float) -> Judgement:
    """Ask for a judgement, where every attempt gets a hedge beside it at once."""
    async with FakeWorker(*behaviours) as worker:
        config = RewardConfig(url=worker.url, timeout=timeout)
        async with injected_pool(config, hedging=lambda concurrency: quick(None, concurrency=concurrency)) as pool:
            return await pool.judge([{"role": "user", "content": "?"}])


async def test_hedges_of_a_silent_worker_are_counted_too() -> None:
    said = await hedged(hangs, hangs, completes("Good."), timeout=60)
    assert (said, said.generations) == ("Good.", 3)


async def test_no_hedge_goes_beyond_the_bound() -> None:
    with pytest.raises(SampleError):  # a fourth attempt would be answered
        await hedged(hangs, hangs, hangs, completes("Good."), timeout=3)
