"""StandInWorker: a worker that scores like the others until it is told to be trouble."""

import asyncio
import itertools
from collections.abc import Iterator
from typing import Literal, Self

from aiohttp import web
from aiohttp.test_utils import TestServer
from support.fleet import SERVED_NAME
from support.reward_functions import compute_recorded_score

from rewardpool_api.contract import REQUEST_ID_HEADER, SCORE_PATH
from rewardpool_worker.function_server import parse_input

Trouble = Literal["http_500", "http_429", "invalid_response", "slow"]

SLOW_SECONDS = 5.0
"""A hundred times the service time of the others."""
INVALID_RESPONSES = (
    "",
    "<html>503 Service Unavailable</html>",
    '{"data": []}',
    '{"data": [{"index": 0, "embedding": []}]}',
    '{"data": [{"index": 0, "embedding": [NaN]}]}',
    '{"data": [{"index": 0, "embedding": ["0.5"]}]}',
    '{"data": [%s]}',
    '{"data": [{"index": 0, "embed',
)
"""Each is sent with HTTP 200, in turn; %s is one score more than there are samples. Half a point is no text's score."""


class StandInWorker:
    """A server on a free port of 127.0.0.1; an async context manager.

    Attributes:
        url: Its address.
        trouble: What it does from now on; None for the right score.
        troubled: Requests that met the trouble.
    """

    def __init__(self) -> None:
        self.url = ""
        self.trouble: Trouble | None = None
        self.troubled = 0
        self._invalid_responses: Iterator[str] = itertools.cycle(INVALID_RESPONSES)
        application = web.Application()
        application.router.add_get("/health", self._health)
        application.router.add_get("/v1/models", self._models)
        application.router.add_post(SCORE_PATH, self._score)
        # TestServer cancels a handler whose caller left, as the real ones do.
        self._server = TestServer(application)

    async def __aenter__(self) -> Self:
        await self._server.start_server()
        self.url = str(self._server.make_url("")).rstrip("/")
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._server.close()

    async def _health(self, _: web.Request) -> web.Response:
        return web.json_response({})

    async def _models(self, _: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": SERVED_NAME, "object": "model"}]})

    async def _score(self, request: web.Request) -> web.Response:
        body = await request.read()
        if self.trouble is not None:
            self.troubled += 1
        match self.trouble:
            case "http_500" | "http_429":
                return web.json_response({"error": {"message": "trouble"}}, status=int(self.trouble[-3:]))
            case "invalid_response":
                # As soon as a score would come: one that answers at once is least loaded, and gets everything.
                more = range(len(await _right(body)) + 1)
                one_more = ", ".join(f'{{"index": {index}, "embedding": [0.5]}}' for index in more)
                text = next(self._invalid_responses).replace("%s", one_more)
                return web.Response(text=text, content_type="application/json")
            case "slow":
                await asyncio.sleep(SLOW_SECONDS)
        scores = await _right(body)
        data = [{"index": index, "embedding": [score]} for index, score in enumerate(scores)]
        said = {"request_id": request.headers.get(REQUEST_ID_HEADER), "revision": "stand-in"}
        return web.json_response({"data": data, **said})


async def _right(body: bytes) -> list[float]:
    """The score of each of its samples, which are scored side by side."""
    return await asyncio.gather(
        *(
            compute_recorded_score(
                sample.data_source, sample.solution_str, str(sample.ground_truth), sample.extra_info or {}
            )
            for sample in parse_input(body, served=SERVED_NAME)
        )
    )
