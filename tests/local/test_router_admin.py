"""The adapter on real routers of both flavours with a real function server behind them."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

import aiohttp
import pytest
from support.decide_builders import a_worker
from support.fleet import (
    FLAVORS,
    ROUTER_LAUNCHER,
    SERVED_NAME,
    Program,
    eventually,
    loopback_flags,
    server_python,
)
from support.ports import free_port

from rewardpool import FunctionSample, Pool, RewardConfig, Sample
from rewardpool_api import names
from rewardpool_api.pool import RouterFlavor
from rewardpool_control.throughput import Throughputs
from rewardpool_operator.kubernetes.queue.requeue import BUSY_SECONDS
from rewardpool_operator.routers.admin import RouterAdmin, RouterError, RouterUnreachableError
from rewardpool_operator.routers.programs import PROGRAMS

pytestmark = pytest.mark.real
ADMIN_KEY = "admin-key-of-the-test"
SCORE_SECONDS = 0.5
"""That the worker takes for a sample."""
MEASURED_SECONDS = 60.0
"""A measurement takes three seconds, and begins anew where a busy machine held up a look."""


@dataclass
class RealRouter:
    """A running router with an admin key, and its adapter."""

    program: Program
    admin: RouterAdmin
    metrics_url: str
    flavor: RouterFlavor


@pytest.fixture(params=FLAVORS)
async def router(
    tmp_path: Path, session: aiohttp.ClientSession, request: pytest.FixtureRequest
) -> AsyncIterator[RealRouter]:
    flavor: RouterFlavor = request.param
    python, metrics_port = server_python(), free_port()
    key_file = tmp_path / "admin-key"
    key_file.write_text(ADMIN_KEY)

    def command(port: int) -> list[str]:
        return [python, str(ROUTER_LAUNCHER), *loopback_flags(flavor, port, metrics_port=metrics_port)]

    env = {names.ENV_ADMIN_KEY_FILE: str(key_file), names.ENV_ROUTER_PACKAGE: PROGRAMS[flavor].package}
    program = Program(command, env=env, log=tmp_path / "router.log")
    metrics_url = f"http://127.0.0.1:{metrics_port}"
    await program.start()
    try:
        admin = admin_of(session, flavor, program.url, metrics_url, key=ADMIN_KEY)
        yield RealRouter(program, admin, metrics_url, flavor)
    finally:
        program.kill()


def admin_of(
    session: aiohttp.ClientSession, flavor: RouterFlavor, url: str, metrics_url: str, *, key: str
) -> RouterAdmin:
    return RouterAdmin(session, flavor=flavor, url=url, metrics_url=metrics_url, admin_key=key, served_name=SERVED_NAME)


async def score(session: aiohttp.ClientSession, router: RealRouter, *, seconds: float = 30) -> int:
    timeout = aiohttp.ClientTimeout(total=seconds)
    sample = {"data_source": "", "solution_str": "x", "ground_truth": "", "extra_info": {"seconds": SCORE_SECONDS}}
    body = {"model": SERVED_NAME, "input": json.dumps(sample)}
    async with session.post(router.program.url + "/v1/embeddings", json=body, timeout=timeout) as answer:
        return answer.status


async def hang_up(session: aiohttp.ClientSession, router: RealRouter, *, seconds: float) -> None:
    with pytest.raises(TimeoutError):
        await score(session, router, seconds=seconds)


async def join(router: RealRouter, worker: Program) -> None:
    await router.admin.add(worker.url)

    async def listed() -> bool:
        return [entry.url for entry in await router.admin.workers()] == [worker.url]

    await eventually(listed, what="the worker is listed")


async def test_a_worker_that_was_added_is_listed_and_gone_once_removed(router: RealRouter, worker: Program) -> None:
    await join(router, worker)
    (entry,) = await router.admin.workers()
    await router.admin.remove(entry.id)

    async def empty() -> bool:
        return await router.admin.workers() == ()

    await eventually(empty, what="the list is empty")


async def test_the_router_names_the_model_of_its_workers_to_holders_of_the_key(
    router: RealRouter, worker: Program, session: aiohttp.ClientSession
) -> None:
    await join(router, worker)
    headers = {"Authorization": f"Bearer {ADMIN_KEY}"}
    async with session.get(router.program.url + "/v1/models", headers=headers) as answer:
        listed = json.loads(await answer.text())
    assert [model["id"] for model in listed["data"]] == [SERVED_NAME]


async def test_removing_a_worker_that_is_gone_is_no_error(router: RealRouter) -> None:
    await router.admin.remove("0b6f1f9e-3f0c-4f0e-9d53-3f6f4c6c8f01")


async def test_adding_twice_lists_once(router: RealRouter, worker: Program) -> None:
    await router.admin.add(worker.url)
    await join(router, worker)
    assert len(await router.admin.workers()) == 1


async def test_a_worker_that_was_removed_finishes_what_it_has_and_may_come_back(
    router: RealRouter, worker: Program, session: aiohttp.ClientSession
) -> None:
    await join(router, worker)
    async with asyncio.TaskGroup() as group:
        calls = [group.create_task(score(session, router)) for _ in range(5)]
        await asyncio.sleep(0.2)
        (entry,) = await router.admin.workers()
        await router.admin.remove(entry.id)
        await asyncio.sleep(0.2)
        assert await router.admin.workers() == ()
    assert [call.result() for call in calls] == [200] * 5

    async def back() -> bool:
        await router.admin.add(worker.url)
        return len(await router.admin.workers()) == 1

    await eventually(back, what="the worker is listed again")  # smg takes 5 s to forget it


async def test_an_address_that_does_not_answer_keeps_no_other_worker_out(router: RealRouter, worker: Program) -> None:
    dead = f"http://127.0.0.1:{free_port()}"
    for _ in range(12):  # ten at once in the router's queue would block it
        await router.admin.add(dead)
    await asyncio.wait_for(join(router, worker), 15)


async def test_requests_at_a_worker_are_in_flight_and_not_waiting(
    router: RealRouter, worker: Program, session: aiohttp.ClientSession
) -> None:
    await join(router, worker)
    async with asyncio.TaskGroup() as group:
        for _ in range(5):
            group.create_task(score(session, router))

        async def five_in_flight() -> bool:
            seen = await router.admin.observe("router")
            assert seen.registered is not None
            return (seen.registered[0].in_flight, seen.waiting) == (5, 0)

        await eventually(five_in_flight, what="five requests are in flight")


async def answers(router: RealRouter) -> int | None:
    """What the router counted for its only worker."""
    seen = await router.admin.observe("router")
    assert seen.registered is not None
    return seen.registered[0].answered


async def test_the_answers_of_a_worker_are_counted_and_callers_who_hung_up_are_not(
    router: RealRouter, worker: Program, session: aiohttp.ClientSession
) -> None:
    await join(router, worker)
    assert await answers(router) == 0
    await asyncio.gather(*(score(session, router) for _ in range(5)))
    await asyncio.gather(*(hang_up(session, router, seconds=0.1) for _ in range(3)))
    await asyncio.gather(*(score(session, router) for _ in range(2)))
    assert await answers(router) == 7
    router.program.kill()
    await router.program.start()
    await join(router, worker)
    assert await answers(router) == 0


async def test_the_throughput_of_a_busy_worker_is_what_its_callers_get(
    router: RealRouter, worker: Program, session: aiohttp.ClientSession
) -> None:
    await join(router, worker)
    throughputs, workers, got = Throughputs(), (a_worker("a", url=worker.url),), list[float]()

    async def call_again_and_again(after_seconds: float) -> None:
        # Apart: the looks come as often as answers do, and would fall between waves of them, where none is in flight.
        await asyncio.sleep(after_seconds)
        while True:
            await score(session, router)
            got.append(monotonic())

    callers = [asyncio.create_task(call_again_and_again(caller * SCORE_SECONDS / 4)) for caller in range(4)]
    measured, began = None, monotonic()
    try:
        while measured is None and monotonic() < began + MEASURED_SECONDS:
            await asyncio.sleep(BUSY_SECONDS / 2)
            seen = await router.admin.observe("router")
            measured = throughputs.measure(workers, (seen,), now=monotonic())[0].throughput
    finally:
        for caller in callers:
            caller.cancel()
    assert measured is not None
    assert measured.in_flight <= 4
    assert measured.rate == pytest.approx((len(got) - 1) / (got[-1] - got[0]), rel=0.4)


async def test_trainers_of_a_pool_without_workers_are_waiting_until_one_joins(
    router: RealRouter, worker: Program
) -> None:
    # smg refuses them, so they are known by how often they come again: a number that is about right.
    about_seven = range(7, 8) if router.flavor == "sglang-router" else range(4, 11)
    assert (await router.admin.observe("r")).waiting == 0
    config = RewardConfig(url=router.program.url, served_name=SERVED_NAME)
    sample = Sample(function=FunctionSample(solution_str="abc", data_source="", ground_truth="", extra_info={}))
    async with Pool(config) as pool, asyncio.TaskGroup() as group:
        calls = [group.create_task(pool.score(sample)) for _ in range(7)]

        async def seven_wait() -> bool:
            return (await router.admin.observe("r")).waiting in about_seven

        await eventually(seven_wait, what="seven requests wait")
        await join(router, worker)
    assert len({call.result() for call in calls}) == 1

    async def nobody_waits() -> bool:
        return (await router.admin.observe("r")).waiting == 0

    await eventually(nobody_waits, what="nobody waits")


@pytest.mark.parametrize("router", ["sglang-router"], indirect=True)  # smg holds nobody, so nobody hangs up
async def test_callers_who_hung_up_do_not_count_as_waiting(router: RealRouter, session: aiohttp.ClientSession) -> None:
    await asyncio.gather(*(hang_up(session, router, seconds=0.5) for _ in range(4)))

    async def nobody_waits() -> bool:
        return (await router.admin.observe("r")).waiting == 0

    await eventually(nobody_waits, what="nobody waits")
    async with asyncio.TaskGroup() as group:
        group.create_task(hang_up(session, router, seconds=7))
        group.create_task(hang_up(session, router, seconds=7))

        async def two_wait() -> bool:
            return (await router.admin.observe("r")).waiting == 2

        await eventually(two_wait, what="two requests wait, and not six", seconds=7)


async def test_a_wrong_admin_key_is_an_error_and_an_observed_failure(
    router: RealRouter, session: aiohttp.ClientSession
) -> None:
    stranger = admin_of(session, router.flavor, router.program.url, router.metrics_url, key="wrong")
    with pytest.raises(RouterError, match="status 401"):
        await stranger.workers()
    seen = await stranger.observe("router")
    assert (seen.answering, seen.failure is not None) == (False, True)


async def test_a_router_that_is_gone_is_unreachable(router: RealRouter) -> None:
    router.program.kill()
    with pytest.raises(RouterUnreachableError):
        await router.admin.workers()
    assert (await router.admin.observe("router")).answering is False
