"""Stand-in pools on 127.0.0.1 for the project's own client: a verifier, and pools that answer in one wrong way."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from aiohttp import web
from aiohttp.test_utils import TestServer

from rewardpool import Pool, RewardConfig, Sample, Scored
from rewardpool_api.contract import SCORE_PATH, CallerError

Answer = Callable[[web.Request], Awaitable[web.Response]]

NEVER_ENDS: Final = "never ends"
"""Stands for code on which the verifier's time is used up: the policy's fault."""
NO_WORKER: Final = "no worker"
"""Stands for a verification that failed for no fault of the policy."""
FAILURES: Final = {
    NEVER_ENDS: CallerError(code="function_failed", message="its time is used up", fault="policy"),
    NO_WORKER: CallerError(code="function_failed", message="the worker lost its sandbox", fault="infra"),
}


async def verify(request: web.Request) -> web.Response:
    """Return the number that a response consists of, or the error object of a failure."""
    given = (await request.json())["input"]
    texts = given if isinstance(given, list) else [given]
    for text in texts:
        if text in FAILURES:
            return web.json_response(FAILURES[text].to_wire())
    return web.json_response({"data": [{"index": at, "embedding": [float(text)]} for at, text in enumerate(texts)]})


def says(body: str, *, status: int = 200, content_type: str = "application/json") -> Answer:
    """Answer every request with this."""

    async def answer(_: web.Request) -> web.Response:
        return web.Response(text=body, status=status, content_type=content_type)

    return answer


def refuses(error: CallerError) -> Answer:
    """Answer every request with an error object of the contract."""
    return says(json.dumps(error.to_wire()))


@asynccontextmanager
async def pool_that(answer: Answer, **settings: Any) -> AsyncIterator[Pool]:
    """Yield the client of a server that answers every request for a score so."""
    app = web.Application()
    app.router.add_post(SCORE_PATH, answer)
    async with TestServer(app) as server:
        url = str(server.make_url("")).rstrip("/")
        config = RewardConfig(url=url, served_name="rm", announce=False, batch=1, **settings)
        async with Pool(config) as pool:
            yield pool


async def scores_of(pool: Pool, responses: Sequence[str]) -> list[float | None]:
    """Return the scores of a batch, None for the unscored. Raises RewardPoolError."""
    found: list[float | None] = [None] * len(responses)
    async for index, outcome in pool.stream(Sample(text=response) for response in responses):
        found[index] = outcome.value if isinstance(outcome, Scored) else None
    return found
