"""A trainer's trace, with the real OpenTelemetry and through both real routers, as the worker is sent it."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from support.fake_worker import right
from support.fleet import FLAVORS, Fleet

from rewardpool._rewards import Episode, LazyReward
from rewardpool_api.contract import SCORE_PATH
from rewardpool_api.pool import RouterFlavor

pytestmark = pytest.mark.real

TRACER = TracerProvider().get_tracer("trainer")
EPISODE = Episode(prompt="2+2?", response="4")


class StandInWorker:
    """Stands in for a worker behind a router: says that it is well, scores, and keeps the headers of what it scored."""

    def __init__(self) -> None:
        self.headers: list[dict[str, str]] = []
        self.app = web.Application()
        self.app.router.add_post(SCORE_PATH, self._score)
        self.app.router.add_get("/{path:.*}", self._well)

    async def _score(self, request: web.Request) -> web.StreamResponse:
        self.headers.append({name.lower(): value for name, value in request.headers.items()})
        return await right(request)

    async def _well(self, _: web.Request) -> web.Response:
        return web.json_response({})

    def parents(self) -> list[tuple[int, int]]:
        """Trace and span that each request says it belongs to."""
        found = []
        for headers in self.headers:
            context = TraceContextTextMapPropagator().extract(headers)
            span = trace.get_current_span(context).get_span_context()
            found.append((span.trace_id, span.span_id))
        return found


@pytest.fixture
async def worker() -> AsyncIterator[tuple[StandInWorker, str]]:
    stand_in = StandInWorker()
    async with TestServer(stand_in.app) as server:
        yield stand_in, str(server.make_url("")).rstrip("/")


@pytest.fixture(params=FLAVORS)
async def router(
    request: pytest.FixtureRequest, worker: tuple[StandInWorker, str], tmp_path: Path
) -> AsyncIterator[Fleet]:
    flavor: RouterFlavor = request.param
    async with Fleet(tmp_path, workers=0, others=[worker[1]], flavor=flavor) as fleet:
        yield fleet


@pytest.fixture
def reward(router: Fleet) -> Iterator[LazyReward]:
    spec = {"url": router.router.url, "key_file": str(router.key_file), "type": "Function", "served_name": "fleet"}
    reward = LazyReward(spec)
    yield reward
    reward.close()


async def test_every_request_belongs_to_the_span_in_which_its_reward_was_asked_for(
    worker: tuple[StandInWorker, str], reward: LazyReward
) -> None:
    async def asked(name: str) -> tuple[int, int]:
        with TRACER.start_as_current_span(name) as span:
            await reward.rate_batch([EPISODE])
            context = span.get_span_context()
            return context.trace_id, context.span_id

    spans = await asyncio.gather(*map(asked, "abc"))
    assert len(set(spans)) == 3
    assert sorted(worker[0].parents()) == sorted(spans)


async def test_a_thread_that_waits_is_traced_as_well(worker: tuple[StandInWorker, str], reward: LazyReward) -> None:
    with TRACER.start_as_current_span("step") as span:
        await asyncio.to_thread(reward.rate_batch_blocking, [EPISODE])
    context = span.get_span_context()
    assert worker[0].parents() == [(context.trace_id, context.span_id)]


async def test_without_a_span_no_trace_is_begun(worker: tuple[StandInWorker, str], reward: LazyReward) -> None:
    await reward.rate_batch([EPISODE])
    assert worker[0].parents() == [(0, 0)]
