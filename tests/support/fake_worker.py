"""FakeWorker: answers the data plane from a script, in this process, to show a client every kind of trouble.

A behaviour takes the request and returns the answer. Requests are answered by the scripted behaviours in turn, and by
`right` when the script is over.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Self

from aiohttp import web
from aiohttp.test_utils import TestServer

from rewardpool import Outcome, Scored, Unscored
from rewardpool_api.contract import CHAT_PATH, REQUEST_ID_HEADER, SCORE_PATH, CallerError
from rewardpool_api.teacher_wire import LOGPROBS_PATH

Behaviour = Callable[[web.Request], Awaitable[web.StreamResponse]]


def score_of(given: str | list[int]) -> float:
    """The score that a FakeWorker gives: the length of the input."""
    return float(len(given))


async def right(request: web.Request) -> web.Response:
    """The score, as the contract says."""
    given = (await request.json())["input"]
    inputs = given if isinstance(given, list) and isinstance(given[0], str) else [given]
    data = [{"index": index, "embedding": [score_of(one)]} for index, one in enumerate(inputs)]
    return web.json_response({"data": data})


def of_steps(*values: float) -> Behaviour:
    """The least of these values, and the values as those of the sample's steps."""
    return says(json.dumps({"data": [{"index": 0, "embedding": [min(values)], "steps": values}]}))


def says(body: str, *, status: int = 200) -> Behaviour:
    """That body, with that status."""

    async def behaviour(_: web.Request) -> web.Response:
        return web.Response(text=body, status=status, content_type="application/json")

    return behaviour


def refuses(error: CallerError) -> Behaviour:
    """The error object of the contract."""

    async def behaviour(_: web.Request) -> web.Response:
        return web.json_response(error.to_wire())

    return behaviour


async def hangs(_: web.Request) -> web.Response:
    """No answer until the caller goes away."""
    await asyncio.Event().wait()
    raise AssertionError("unreachable")


async def _is_healthy(_: web.Request) -> web.Response:
    return web.Response()


async def breaks_off(request: web.Request) -> web.StreamResponse:
    """A connection that is cut in place of an answer."""
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


class FakeWorker:
    """A server on a free port of 127.0.0.1; an async context manager."""

    def __init__(
        self, *script: Behaviour, afterwards: "Behaviour | None" = None, revision: str | None = "5f1c0de5"
    ) -> None:
        """Answer by the script and then rightly, or `afterwards` in that way; with a revision as RewardPool's workers.

        Without one, answers do not say whose they are.
        """
        self._afterwards = afterwards or right
        self.revision = revision
        self.tokenizer: str | None = None
        self.name: str | None = None
        self._script = list(script)
        self.url = ""
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.arrived = asyncio.Event()
        self.idle = asyncio.Event()
        self.in_flight = 0
        self.most_in_flight = 0
        app = web.Application(client_max_size=1 << 24)
        app.router.add_post(SCORE_PATH, self._serve)
        app.router.add_post(CHAT_PATH, self._serve)
        app.router.add_post(LOGPROBS_PATH, self._serve)
        app.router.add_get("/health", _is_healthy)  # for routers
        # TestServer cancels a handler whose caller left, as real engines do.
        self._server = TestServer(app)

    async def __aenter__(self) -> Self:
        await self._server.start_server()
        self.url = str(self._server.make_url("")).rstrip("/")
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._server.close()

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(await request.json())
        self.headers.append({name.lower(): value for name, value in request.headers.items()})
        self.in_flight += 1
        self.arrived.set()
        self.idle.clear()
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            behaviour = self._script.pop(0) if self._script else self._afterwards
            return self._with_echo(await behaviour(request), request)
        finally:
            self.in_flight -= 1
            if self.in_flight == 0:
                self.idle.set()

    def _with_echo(self, answer: web.StreamResponse, request: web.Request) -> web.StreamResponse:
        if self.revision is None or answer.status != 200 or not isinstance(answer, web.Response):
            return answer
        try:
            content = json.loads(answer.text or "")
        except ValueError:
            return answer
        said: dict[str, Any] = {"request_id": request.headers.get(REQUEST_ID_HEADER), "revision": self.revision}
        said |= {} if self.tokenizer is None else {"tokenizer": self.tokenizer}
        said |= {} if self.name is None else {"worker": {"name": self.name}}
        return web.json_response({**said, **content}) if isinstance(content, dict) else answer


def check_outcomes(outcomes: Sequence[tuple[int, Outcome]], *, count: int) -> None:
    """Of samples as long as their index, scored by `right`: each came once, with its own score or error."""
    assert sorted(index for index, _ in outcomes) == list(range(count))
    for index, outcome in outcomes:
        match outcome:
            case Scored(value=value):
                assert value == float(index)
            case Unscored(error=error):
                assert error.sample == f"#{index}"
