"""The published run's figures, and what is made of the measured ones."""

import asyncio
import json
import statistics

import pytest
from aiohttp import web
from support.fake_worker import FakeWorker
from training_step.aims import aims, vs
from training_step.course import run
from training_step.pairs import LONGEST_SECONDS, SIZE, PairProtocol
from training_step.pools import callers, manifest
from training_step.protocol import ANSWERS, ELASTIC, FIXED, Protocol

from rewardpool import RewardConfig
from rewardpool_api import RewardPool
from rewardpool_train.pipeline.schedule import SCHEDULES, ScheduleName


def test_the_step_divides_as_the_published_figures_say() -> None:
    whole = Protocol(factor=1.0)
    assert whole.floor_seconds == pytest.approx(203.2, abs=0.1)
    assert whole.update_seconds == pytest.approx(100.6, abs=0.1)
    assert whole.rollout_seconds + whole.update_seconds == pytest.approx(whole.floor_seconds)


def test_all_times_are_divided_by_the_same_factor() -> None:
    whole, tenth = Protocol(factor=1.0), Protocol(factor=10.0)
    for name in ("floor_seconds", "rollout_seconds", "update_seconds"):
        assert getattr(tenth, name) == pytest.approx(getattr(whole, name) / 10)
    assert tenth.reward_seconds(group=3, member=1) == pytest.approx(whole.reward_seconds(group=3, member=1) / 10)


def test_rewards_take_what_the_published_ones_do() -> None:
    protocol = Protocol(factor=1.0)
    seconds = [protocol.reward_seconds(group=group, member=member) for group in range(1_000) for member in range(5)]
    assert 1.0 <= min(seconds) <= 1.1
    assert 39.9 <= max(seconds) <= 40.0
    assert sum(seconds) / len(seconds) == pytest.approx(20.5, rel=0.03)


def test_every_answer_has_a_score_of_its_own() -> None:
    protocol = Protocol(factor=1.0)
    scores = {protocol.score(group=group, member=member) for group in range(10_000) for member in range(ANSWERS)}
    assert len(scores) == 50_000


def test_a_trial_run_has_fewer_callers_in_proportion() -> None:
    trial = Protocol(factor=1.0, prompts=256)
    assert (trial.callers, trial.samples, trial.minibatch_prompts) == (64, 1_280, 64)


@pytest.mark.parametrize("name", [FIXED, ELASTIC])
def test_the_pools_are_valid_and_take_all_callers(name: str) -> None:
    protocol = Protocol(factor=20.0)
    pool = RewardPool.model_validate(manifest(name, protocol))
    most = pool.spec.autoscaling.max_replicas if pool.spec.autoscaling else pool.spec.replicas
    assert most is not None
    assert pool.spec.sandbox is not None
    assert pool.spec.sandbox.concurrency is not None
    assert most * pool.spec.sandbox.concurrency >= callers(name, protocol)


def test_a_share_less_is_negative() -> None:
    assert vs(68.0, 100.0) == -0.32


def test_aims_are_met_or_not_by_their_figures() -> None:
    def figures(fixed: float, elastic: float) -> dict[str, dict[str, float]]:
        return {
            FIXED: {"step_seconds": fixed, "vs_sync": vs(fixed, 30.0)},
            ELASTIC: {"step_seconds": elastic, "vs_sync": vs(elastic, 30.0)},
        }

    one = {"sync": figures(30.0, 13.0), "one_step_off_minibatch": figures(20.0, 10.2)}
    result = {"floor_seconds": 10.0, **one, "pairs": one}
    assert [aim.met for aim in aims(result)] == [True, True, False, True]


def test_comparisons_take_what_the_protocol_says() -> None:
    protocol = PairProtocol(factor=1.0)
    seconds = [one.seconds for group in range(2_000) for one in protocol.comparisons(group=group)]
    assert statistics.median(seconds) == pytest.approx(20.0, rel=0.02)
    assert statistics.quantiles(seconds, n=100)[98] == pytest.approx(120.0, rel=0.05)
    assert max(seconds) == LONGEST_SECONDS


def test_each_member_meets_four_others_in_both_orders_and_its_score_is_what_it_wins() -> None:
    protocol = PairProtocol(factor=1.0)
    asked = list(protocol.comparisons(group=7))
    for member in range(SIZE):
        won = [
            one.wins if one.first == member else 1.0 - one.wins for one in asked if member in (one.first, one.second)
        ]
        assert (len(won), sum(won) / len(won)) == (8, protocol.score(group=7, member=member))


async def say_what_is_true(request: web.Request) -> web.Response:
    """The sleeper, without a router in front of it."""
    given = json.loads((await request.json())["input"])
    await asyncio.sleep(given["extra_info"]["seconds"])
    return web.json_response({"data": [{"index": 0, "embedding": [given["ground_truth"]]}]})


@pytest.mark.parametrize("kind", [Protocol, PairProtocol])
def test_a_course_without_a_pool_has_every_score_at_once(kind: type[Protocol]) -> None:
    protocol = kind(factor=20_000.0, prompts=4)
    course = asyncio.run(run("one_step_off_minibatch", None, protocol, steps=1, on_minibatch=lambda: None))
    assert course.step_seconds > 0


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("kind", [Protocol, PairProtocol])
async def test_a_small_course_of_every_schedule_trains_on_each_group_with_its_own_scores(
    schedule: ScheduleName, kind: type[Protocol]
) -> None:
    protocol = kind(factor=20_000.0, prompts=4)
    async with FakeWorker(*[say_what_is_true] * 10_000) as worker:
        settings = RewardConfig(url=worker.url, concurrency=64)
        running = run(schedule, settings, protocol, steps=1, on_minibatch=lambda: None)
        course = await asyncio.to_thread(asyncio.run, running)
    assert course.step_seconds > 0
