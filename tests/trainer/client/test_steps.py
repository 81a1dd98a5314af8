"""Values of steps, from a worker's answer through a real router to what a trainer gets."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from support.fake_worker import FakeWorker, says
from support.fleet import FLAVORS, Fleet

from rewardpool import Pool, RewardConfig, Sample, Scored
from rewardpool_api.pool import RouterFlavor

STEPS = (0.125, 0.75)


async def answer(request: web.Request) -> web.Response:
    """As a worker of a process reward model answers."""
    given = (await request.json())["input"]
    count = len(given) if isinstance(given, list) and isinstance(given[0], str) else 1
    data = [{"index": index, "embedding": [min(STEPS)], "steps": list(STEPS)} for index in range(count)]
    return web.json_response({"object": "list", "data": data})


async def found(request: web.Request) -> web.Response:
    return web.json_response({"data": [{"id": "fleet"}]})


@asynccontextmanager
async def worker() -> AsyncIterator[str]:
    """Its URL; a stand-in for an engine that serves a process reward model."""
    app = web.Application()
    app.router.add_post("/v1/embeddings", answer)
    app.router.add_get("/{path:.*}", found)
    server = TestServer(app)
    await server.start_server()
    try:
        yield str(server.make_url("")).rstrip("/")
    finally:
        await server.close()


async def outcomes(pool: Pool, samples: list[Sample]) -> list[Any]:
    return [outcome async for _, outcome in pool.stream(samples)]


@pytest.mark.real
@pytest.mark.parametrize("batch", [1, 8])
@pytest.mark.parametrize("flavor", FLAVORS)
async def test_steps_pass_both_routers_single_and_in_lists(flavor: RouterFlavor, batch: int, tmp_path: Path) -> None:
    async with worker() as url, Fleet(tmp_path, workers=0, others=[url], flavor=flavor) as fleet:
        config = RewardConfig(url=fleet.router.url, key_file=fleet.key_file, batch=batch, concurrency=1)
        async with Pool(config) as pool:
            scored = await outcomes(pool, [Sample(text=f"text {index}") for index in range(8)])
    assert [(one.value, one.steps) for one in scored] == [(min(STEPS), STEPS)] * 8


async def test_a_score_without_steps_has_none() -> None:
    async with FakeWorker() as fake, Pool(RewardConfig(url=fake.url)) as pool:
        (scored,) = await outcomes(pool, [Sample(text="four")])
    assert isinstance(scored, Scored)
    assert (scored.value, scored.steps) == (4.0, None)


@pytest.mark.parametrize("steps", ["[]", "[NaN]", "[true]", '["1"]', "[null]", "0.5", '"all"', "{}"])
async def test_steps_that_are_no_finite_numbers_are_asked_for_again(steps: str) -> None:
    invalid = says(f'{{"data": [{{"index": 0, "embedding": [0.5], "steps": {steps}}}]}}')
    async with FakeWorker(invalid) as fake, Pool(RewardConfig(url=fake.url)) as pool:
        (scored,) = await outcomes(pool, [Sample(text="four")])
    assert scored.value == 4.0
    assert scored.attempts > 1
