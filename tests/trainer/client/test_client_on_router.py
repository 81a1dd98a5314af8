"""The client through real routers, with real function servers behind them that die, hang and come back."""

import asyncio
import itertools
import json
import signal
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from support.autoscaler_builders import a_scaling, run, signals
from support.decide_builders import NOW
from support.fake_worker import FakeWorker, says
from support.fleet import FLAVORS, REVISION, SERVED_NAME, Fleet, eventually
from support.local_pool import on_this_machine
from support.reward_functions import ENV_RECORD, expected_score

from rewardpool import FunctionSample, Outcome, Pool, RewardConfig, Sample, Scored, Unscored
from rewardpool._client.rules.hedging import BLIND_SECONDS
from rewardpool._demand.handle import JobDemand
from rewardpool.errors import FunctionFailedError, PoolAccessError
from rewardpool_api.contract import CHAT_PATH, REQUEST_ID_HEADER
from rewardpool_api.pool import RouterFlavor
from rewardpool_control.autoscaler.signals import Announcement

pytestmark = pytest.mark.real
BOTH = pytest.mark.parametrize("flavor", FLAVORS)
IN_TURN = pytest.mark.parametrize("flavor", ["sglang-router", pytest.param("smg", marks=pytest.mark.long)])
"""For what takes long."""


def samples(count: int, *, seconds: float) -> list[Sample]:
    """Samples that each take a worker so many seconds."""
    return [sample(f"solution {index}", seconds=seconds) for index in range(count)]


def sample(solution: str, *, seconds: float = 0.0) -> Sample:
    arguments = {"data_source": "test", "ground_truth": None, "extra_info": {"seconds": seconds}}
    return Sample(function=FunctionSample(solution_str=solution, **arguments))  # type: ignore[arg-type]


def expected(count: int) -> list[float]:
    """The right scores of `samples(count)`."""
    return [expected_score(f"solution {index}") for index in range(count)]


def config(fleet: Fleet, **settings: Any) -> RewardConfig:
    return RewardConfig(url=fleet.router.url, key_file=fleet.key_file, **settings)


async def score_directly(fleet: Fleet, samples: list[Sample]) -> list[float]:
    """What a worker itself says, without router and client."""
    headers = {"Authorization": f"Bearer {fleet.key_file.read_text()}"}
    async with aiohttp.ClientSession(headers=headers, connector=aiohttp.TCPConnector(limit=200)) as session:

        async def score(sample: Sample) -> float:
            body = {"model": SERVED_NAME, "input": sample.to_input("s")}
            async with session.post(fleet.workers[0].url + "/v1/embeddings", json=body) as answer:
                return float((await answer.json())["data"][0]["embedding"][0])

        return await asyncio.gather(*(score(sample) for sample in samples))


@asynccontextmanager
async def during(trouble: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run trouble beside the body, and end it with the body; trouble that fails by itself fails the test."""
    task = asyncio.create_task(trouble)
    try:
        yield
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
    finally:
        task.cancel()


@BOTH
async def test_a_score_through_a_router_says_whose_it_is(tmp_path: Path, flavor: RouterFlavor) -> None:
    async with Fleet(tmp_path, workers=1, flavor=flavor) as fleet, Pool(config(fleet)) as pool:
        scored = await asyncio.gather(*(pool.scored(one) for one in samples(20, seconds=0.0)))
    assert {one.revision for one in scored} == {REVISION}


@BOTH
async def test_words_of_a_judge_through_a_router_say_whose_they_are(tmp_path: Path, flavor: RouterFlavor) -> None:
    """A bare URL is all that the client has, so a missing id would pass: the worker's own is looked at."""
    words = says(json.dumps({"choices": [{"message": {"content": "good"}, "finish_reason": "stop"}]}))
    async with (
        FakeWorker(words, words) as judge,
        Fleet(tmp_path, workers=0, others=[judge.url], flavor=flavor) as fleet,
        Pool(config(fleet, served_name=SERVED_NAME)) as pool,
    ):
        messages = [{"role": "user", "content": "good?"}]
        assert await pool.judge(messages) == "good"
        answer = await pool.post(CHAT_PATH, {"messages": messages})
    assert answer["revision"] == judge.revision
    assert answer["request_id"] == judge.headers[-1][REQUEST_ID_HEADER] != judge.headers[0][REQUEST_ID_HEADER]


async def collect(pool: Pool, samples: list[Sample]) -> dict[int, Outcome]:
    """All outcomes of a stream; fails on an index that comes twice."""
    outcomes: dict[int, Outcome] = {}
    async for index, outcome in pool.stream(samples):
        assert index not in outcomes
        outcomes[index] = outcome
    return outcomes


def values(outcomes: dict[int, Outcome]) -> list[float]:
    """The scores in the order of the input."""
    scored = [outcomes[index] for index in range(len(outcomes))]
    return [outcome.value for outcome in scored if isinstance(outcome, Scored)]


@IN_TURN
async def test_two_thousand_samples_get_their_right_scores_while_workers_are_killed(
    tmp_path: Path, flavor: RouterFlavor
) -> None:
    batch = samples(500, seconds=0.2)
    kills = 0

    async def kill_and_restart_one_after_the_other(fleet: Fleet) -> None:
        nonlocal kills
        for worker in itertools.cycle(fleet.workers):
            await asyncio.sleep(0.5)
            worker.kill()
            kills += 1
            await asyncio.sleep(1.0)
            await worker.start()

    async with Fleet(tmp_path, workers=3, flavor=flavor) as fleet:
        direct = await score_directly(fleet, batch)
        assert direct == expected(500)
        async with during(kill_and_restart_one_after_the_other(fleet)), Pool(config(fleet, concurrency=32)) as pool:
            # How long a worker takes to start depends on the machine, so the samples last as long as four kills do.
            for rounds in itertools.count(1):
                assert values(await collect(pool, batch)) == direct
                if rounds >= 4 and kills >= 4:
                    break
            report = pool.report()

    print(f"{kills} kills, {report}")
    assert (report.samples, report.scored, report.unscored) == (rounds * 500, rounds * 500, 0)


@IN_TURN
async def test_a_router_restarted_with_another_key_costs_time_and_no_sample(
    tmp_path: Path, flavor: RouterFlavor
) -> None:
    async def restart(fleet: Fleet) -> None:
        await asyncio.sleep(0.5)
        fleet.router.kill()
        fleet.renew_key()
        await asyncio.sleep(1.0)
        await fleet.router.start()
        await fleet.join()

    async with (
        Fleet(tmp_path, workers=2, flavor=flavor) as fleet,
        during(restart(fleet)),
        Pool(config(fleet, concurrency=16)) as pool,
    ):
        outcomes = await collect(pool, samples(300, seconds=0.1))
        report = pool.report()

    assert report.retries["unreachable"] > 0
    assert values(outcomes) == expected(300)


@IN_TURN
async def test_a_pool_whose_router_moved_is_followed_to_its_new_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flavor: RouterFlavor
) -> None:
    monkeypatch.setenv("REWARDPOOL_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))

    async def move(fleet: Fleet) -> None:
        await asyncio.sleep(0.5)
        fleet.router.kill()
        fleet.router.move()
        await fleet.router.start()
        await fleet.join()
        fleet.write_state(tmp_path / "state")

    async with Fleet(tmp_path, workers=2, flavor=flavor) as fleet:
        fleet.write_state(tmp_path / "state")
        async with during(move(fleet)), Pool(RewardConfig(pool="rl/fleet", concurrency=16)) as pool:
            outcomes = await collect(pool, samples(200, seconds=0.1))
            assert pool.endpoint.url == fleet.router.url
            assert pool.report().rediscoveries > 0

    assert values(outcomes) == expected(200)


@BOTH
async def test_a_function_that_works_for_longer_than_usual_is_called_once(
    tmp_path: Path, flavor: RouterFlavor, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = tmp_path / "record"
    record.touch()
    monkeypatch.setenv(ENV_RECORD, str(record))
    function = "support.reward_functions:compute_recorded_score"
    async with Fleet(tmp_path, workers=2, flavor=flavor, function=function) as fleet, Pool(config(fleet)) as pool:
        await collect(pool, samples(30, seconds=0.01))
        # One alone, so that the other worker has none to list.
        slow = [sample("slow", seconds=2.0)]
        assert all(isinstance(outcome, Scored) for outcome in (await collect(pool, slow)).values())
        assert pool.report().hedges == 0
    assert record.read_text().splitlines().count("slow") == 1


@IN_TURN
async def test_a_function_that_works_before_any_answer_is_known_is_called_once(
    tmp_path: Path, flavor: RouterFlavor, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = tmp_path / "record"
    record.touch()
    monkeypatch.setenv(ENV_RECORD, str(record))
    function = "support.reward_functions:compute_recorded_score"
    async with Fleet(tmp_path, workers=2, flavor=flavor, function=function) as fleet, Pool(config(fleet)) as pool:
        assert await pool.score(sample("slow", seconds=BLIND_SECONDS + 2.0)) == expected_score("slow")
        assert pool.report().hedges == 0
    assert record.read_text() == "slow\n"


@IN_TURN
async def test_what_a_silent_worker_holds_is_scored_by_another_one_long_before_it_is_given_up(
    tmp_path: Path, flavor: RouterFlavor
) -> None:
    async def silence(fleet: Fleet) -> None:
        await asyncio.sleep(1)
        fleet.workers[0].signal(signal.SIGSTOP)

    async with (
        Fleet(tmp_path, workers=3, flavor=flavor) as fleet,
        during(silence(fleet)),
        Pool(config(fleet, concurrency=32)) as pool,
    ):
        outcomes = await collect(pool, samples(600, seconds=0.1))
        report = pool.report()

    print(report)
    assert report.hedges_won > 0
    assert report.latency.max < 10  # the attempt's own limit is 30 s, the router's 60 s
    assert values(outcomes) == expected(600)


@IN_TURN
async def test_a_sample_waits_for_the_first_worker_within_its_deadline(tmp_path: Path, flavor: RouterFlavor) -> None:
    async with Fleet(tmp_path, workers=1, flavor=flavor) as fleet, Pool(config(fleet)) as pool:
        fleet.workers[0].kill()
        waiting = asyncio.create_task(pool.score(sample("early")))
        await asyncio.sleep(3)
        await fleet.workers[0].start()
        assert await waiting == expected_score("early")


@BOTH
async def test_samples_that_cannot_be_scored_do_not_disturb_the_others(tmp_path: Path, flavor: RouterFlavor) -> None:
    # More of them than the router's circuit breaker forgives, which is why the contract answers them with 200.
    faulty = [sample("")] * 50
    async with Fleet(tmp_path, workers=1, flavor=flavor) as fleet, Pool(config(fleet, on_failure="skip")) as pool:
        await pool.score(sample("proven"))  # a pool that never scored is taken for broken after sixteen of them
        outcomes = await collect(pool, [*faulty, *samples(50, seconds=0)])

    failed = {index: outcome.error for index, outcome in outcomes.items() if isinstance(outcome, Unscored)}
    assert sorted(failed) == list(range(50))
    assert {type(error) for error in failed.values()} == {FunctionFailedError}
    assert "ValueError: there is no solution to score" in str(failed[0])
    assert values({index: outcomes[50 + index] for index in range(50)}) == expected(50)


@BOTH
async def test_a_wrong_key_is_an_error_that_says_so(tmp_path: Path, flavor: RouterFlavor) -> None:
    wrong = tmp_path / "elsewhere" / "key"  # beside the right one, that would be tried as well
    wrong.parent.mkdir()
    wrong.write_text("not the key")
    async with Fleet(tmp_path, workers=1, flavor=flavor) as fleet:
        settings = RewardConfig(url=fleet.router.url, key_file=wrong, on_failure="skip")
        async with Pool(settings) as pool:
            with pytest.raises(PoolAccessError, match="does not take the key found by the config's url"):
                await pool.score(sample("secret"))


@IN_TURN
async def test_what_routers_count_is_made_samples_of_by_what_the_job_says(
    flavor: RouterFlavor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Fleet(tmp_path, workers=1, flavor=flavor) as fleet:
        fleet.write_state(tmp_path / "state")
        on_this_machine(monkeypatch, tmp_path / "state")
        async with Pool(RewardConfig(pool="rl/fleet", concurrency=4, batch=4)) as pool:
            demand = pool.demand()
            demand.rollout()
            waiting = asyncio.create_task(collect(pool, samples(20, seconds=3.0)))
            await eventually(lambda: is_in_flight(fleet, demand, requests=4, samples=12), what="four have three each")
            seen = signals(4, announcements=(Announcement(name="j", renewed=NOW, seconds=15, demand=demand.now()),))
            assert run(seen, scaling=a_scaling())[0].desired == 2
            assert values(await waiting) == expected(20)


async def is_in_flight(fleet: Fleet, demand: JobDemand, *, requests: int, samples: int) -> bool:
    """Whether the router counts so many requests, and the job says that so many samples are in them."""
    counted = sum(worker.in_flight or 0 for worker in await fleet.listed())
    return counted == requests and counted * (demand.now().samples_per_request or 1.0) == samples
