"""The gateway's HTTP side: who may ask, what is too much, and which status a failure has.

200  every row of the request has a reward
400  the body is not what the protocol says
401  the key is missing or wrong
403  a browser sends a request of another site's page
404  log-probabilities of another model than the teacher's are asked, or the pool is of another type than the route: one
     that runs programs has `/run_code`, a Teacher log-probabilities
413  the body is larger than 16 MiB
422  a row cannot be rated: too long, or its prompt or the end of its response cannot be read
503  a row has no reward now; trying again may help
504  the same of `/run_code`, whose clients try again after this status alone
"""

import asyncio
import hmac
import logging
import re
import time
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, TypeVar

from aiohttp import web
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from pydantic import BaseModel, ValidationError

from rewardpool._gateway.logprobs import (
    COMPLETIONS,
    TOKENS,
    PromptLogprobs,
    completions_answer,
    parse_completions,
    parse_tokens,
    tokens_answer,
)
from rewardpool._gateway.opened import OpenTeacher, only_of_rewards
from rewardpool._gateway.run_code import FUNCTION, RunCode, run_code_answer, sandbox_error
from rewardpool._gateway.run_code import PATH as RUN_CODE
from rewardpool._gateway.wire import Query, SlimeSample, openrlhf_answer, reads_prompts, scored, slime_answer
from rewardpool._policy.text import PolicyText
from rewardpool._rewards.opened import OpenReward
from rewardpool.errors import (
    ConfigError,
    InvalidSampleError,
    RewardPoolError,
    SampleError,
    SampleTooLongError,
)
from rewardpool_api.names import GATEWAY_TIMEOUT_SECONDS
from rewardpool_api.teacher_wire import (
    ANY_MODEL,
    LOGPROBS_PATH,
    BadRequestError,
    SequenceQuestion,
    Values,
    parse_request,
    sglang_answer,
)
from rewardpool_runtime.http_server import LOOPBACK, is_of_another_page, read_body

log = logging.getLogger(__name__)

MAX_BODY_BYTES = 16 * 2**20
# Requests at a time; one more is answered 503, so that memory stays bounded.
MAX_REQUESTS = 8192
# Need no key.
OPEN_PATHS = frozenset({"/health", "/metrics"})

REWARD = web.AppKey("reward", OpenReward)
TEACHER = web.AppKey("teacher", OpenTeacher)
M = TypeVar("M", bound=BaseModel)
T = TypeVar("T")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, kw_only=True)
class GatewaySettings:
    """Settings of a gateway.

    Attributes:
        key: What callers must present; None for none.
        with_parts: Whether slime gets an object with every part's raw score beside the total.
        timeout: Seconds for one sample.
    """

    text: PolicyText
    key: str | None = None
    with_parts: bool = False
    timeout: float = GATEWAY_TIMEOUT_SECONDS


def gateway_app(
    opening: AbstractAsyncContextManager[OpenReward | OpenTeacher], settings: GatewaySettings
) -> web.Application:
    """The application; it opens the reward or teacher when it starts, and closes it after the last request.

    Starting it raises what `opening` raises, and ConfigError where the reward needs groups, which the wire lacks, or
    the settings are not for a teacher.
    """
    gateway = _Gateway(settings)
    app = web.Application(middlewares=[gateway.middleware], client_max_size=MAX_BODY_BYTES)

    async def opened(app: web.Application) -> AsyncIterator[None]:
        async with opening as reward:
            if isinstance(reward, OpenTeacher):
                if settings.with_parts:
                    raise only_of_rewards("--with-parts", reward.endpoint)
                app[TEACHER] = reward
                yield
                return
            if reward.needs_group:
                raise ConfigError("reward", "needs whole groups, and a gateway is sent single samples; use the adapter")
            if reward.moments is not None:
                raise ConfigError(
                    "reward",
                    "has a part with normalize running, and a gateway knows of no steps; set it to {mean: x, std: y}",
                )
            app[REWARD] = reward
            yield

    app.cleanup_ctx.append(opened)
    app.router.add_get("/health", gateway.health)
    app.router.add_get("/metrics", gateway.metrics)
    app.router.add_post("/get_reward", gateway.openrlhf)
    app.router.add_post("/slime", gateway.slime)
    app.router.add_post(RUN_CODE, gateway.run_code)
    app.router.add_get("/v1/models", gateway.models)
    app.router.add_post(LOGPROBS_PATH, gateway.generate)
    app.router.add_post(COMPLETIONS, gateway.completions)
    app.router.add_post(TOKENS, gateway.tokens)
    return app


class _Gateway:
    def __init__(self, settings: GatewaySettings) -> None:
        self._settings = settings
        self._running = 0
        self._registry = figures = CollectorRegistry()
        self._requests = Counter(
            "rewardpool_gateway_requests", "Answered requests.", ["protocol", "code"], registry=figures
        )
        self._seconds = Histogram(
            "rewardpool_gateway_request_seconds", "From request to answer.", ["protocol"], registry=figures
        )
        self._in_flight = Gauge("rewardpool_gateway_in_flight", "Requests not yet answered.", registry=figures)
        self._rows = Counter("rewardpool_gateway_rewards", "Rewards given.", ["protocol"], registry=figures)

    async def health(self, _: web.Request) -> web.Response:
        """The reward is open, or nothing would listen here."""
        return web.json_response({"status": "ok"})

    async def metrics(self, _: web.Request) -> web.Response:
        return web.Response(body=generate_latest(self._registry), content_type="text/plain")

    async def openrlhf(self, request: web.Request) -> web.Response:
        """`--reward.remote_url http://HOST:PORT/get_reward`."""
        reward = _reward(request)
        query = await _body(request, Query)
        episodes = query.episodes(self._settings.text, strict=reads_prompts(reward.pools.values()))
        ratings = scored(await reward.rate_batch(episodes))
        self._rows.labels("get_reward").inc(len(ratings))
        return web.json_response(openrlhf_answer(ratings))

    async def slime(self, request: web.Request) -> web.Response:
        """`--rm-type remote_rm --rm-url http://HOST:PORT/slime`."""
        reward = _reward(request)
        sample = await _body(request, SlimeSample)
        episode = sample.episode(self._settings.text, strict=reads_prompts(reward.pools.values()))
        [rating] = scored([await reward.rate(episode)])
        self._rows.labels("slime").inc()
        return web.json_response(slime_answer(rating, with_parts=self._settings.with_parts))

    async def run_code(self, request: web.Request) -> web.Response:
        """`reward.sandbox_fusion.url=http://HOST:PORT/run_code`."""
        pools = list(_reward(request).pools.values())
        program = await _body(request, RunCode)
        seconds = program.answer_seconds(self._settings.timeout)
        try:
            async with asyncio.timeout(seconds):
                info = (await pools[0].scored(program.sample())).info if pools else {}
        except TimeoutError:
            raise RewardPoolError(f"no answer of the pool within {seconds:g} s") from None
        verdict = info.get("verdict")
        if not isinstance(verdict, dict) or "exit_code" not in verdict:
            raise web.HTTPNotFound(text=f"the pool runs no programs: set its model.source to {FUNCTION}")
        self._rows.labels("run_code").inc()
        return web.json_response(run_code_answer(verdict))

    async def models(self, request: web.Request) -> web.Response:
        """The teacher, which clients of vLLM ask for its name."""
        endpoint = _teacher(request).endpoint
        card = {"id": endpoint.served_name, "object": "model", "owned_by": "rewardpool"}
        longest = {"max_model_len": endpoint.max_model_len}
        return web.json_response({"object": "list", "data": [card | longest]})

    async def generate(self, request: web.Request) -> web.Response:
        """`--rm-url http://HOST:PORT/generate` of slime and miles, and AReaL with SGLang."""
        teacher = _teacher(request)
        asked, words = await _parsed(request, parse_request)
        if words is None:
            raise web.HTTPBadRequest(
                text="session_params.rewardpool is for a pool's routers: ask those by RewardPool's client"
            )
        _refuse_other(teacher, asked.model)
        [found] = await self._logprobs(teacher, [asked], words.reworded)
        model = teacher.endpoint.served_name
        return await _answer(lambda: sglang_answer(found, asked, words, echo={"model": model}))

    async def completions(self, request: web.Request) -> web.Response:
        """TRL's `teacher_model_server_url`, and AReaL's with vLLM."""
        return await self._vllm(request, parse_completions, completions_answer)

    async def tokens(self, request: web.Request) -> web.Response:
        """prime-rl's and SkyRL's."""
        return await self._vllm(request, parse_tokens, tokens_answer)

    async def _vllm(
        self,
        request: web.Request,
        parse: Callable[[bytes], PromptLogprobs],
        write: Callable[..., bytes],
    ) -> web.Response:
        teacher = _teacher(request)
        asked = await _parsed(request, parse)
        _refuse_other(teacher, asked.model)
        found = await self._logprobs(teacher, asked.sequences, asked.reworded)
        return await _answer(lambda: write(found, asked, model=teacher.endpoint.served_name))

    async def _logprobs(
        self, teacher: OpenTeacher, sequences: Sequence[SequenceQuestion], reworded: Callable[[str], str]
    ) -> list[Values]:
        """Return the values of all; the first error gives up the others."""

        async def one(index: int, asked: SequenceQuestion) -> Values:
            try:
                return await teacher.logprobs(asked, label=f"sequence {index}")
            except InvalidSampleError as error:
                raise InvalidSampleError(error.sample, reworded(error.problem)) from None

        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(one(index, asked)) for index, asked in enumerate(sequences)]
        except BaseExceptionGroup as failed:
            raise failed.exceptions[0] from None
        self._rows.labels("logprobs").inc(len(tasks))
        return [task.result() for task in tasks]

    @web.middleware
    async def middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Key, bounds, and what becomes of errors."""
        if request.path in OPEN_PATHS:
            return await handler(request)
        protocol = request.path.strip("/") if request.match_info.http_exception is None else "unknown"
        started = time.monotonic()
        self._running += 1
        self._in_flight.set(self._running)
        try:
            answer = await self._answered(request, handler)
        finally:
            self._running -= 1
            self._in_flight.set(self._running)
        self._requests.labels(protocol, answer.status).inc()
        self._seconds.labels(protocol).observe(time.monotonic() - started)
        return answer

    async def _answered(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        # Without a key whoever is on this machine may ask, and no page that its browser shows.
        refusal = is_of_another_page(request, LOOPBACK if self._settings.key is None else None)
        if refusal is not None:
            return _failed(request, 403, refusal)
        if self._settings.key is not None and not _has_key(request.headers, self._settings.key):
            return _failed(request, 401, "the key is missing or wrong", {"WWW-Authenticate": "Bearer, Basic"})
        if self._running > MAX_REQUESTS:
            return _failed(request, 503, f"{MAX_REQUESTS} requests are in flight", {"Retry-After": "1"})
        try:
            return await handler(request)
        except web.HTTPException as error:
            return _failed(request, error.status, error.text or error.reason)
        except BadRequestError as error:
            return _failed(request, 400, str(error))
        except (InvalidSampleError, SampleTooLongError) as error:
            return _failed(request, 422, str(error), cause=error)
        except SampleError as error:
            log.warning("%s %s: %s (%s, %s)", request.method, request.path, error, error.fault, error.kind)
            return _failed(request, 503, str(error), cause=error)
        except RewardPoolError as error:
            log.warning("%s %s: %s", request.method, request.path, error)
            return _failed(request, 503, str(error))


async def _body(request: web.Request, model: type[M]) -> M:
    try:
        return model.model_validate_json(await read_body(request))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(str(part) for part in first["loc"]) or "body"
        raise web.HTTPBadRequest(text=f"{field}: {first['msg']}") from error


async def _parsed(request: web.Request, parse: Callable[[bytes], T]) -> T:
    """Beside the loop: a request may have a million token ids."""
    body = await read_body(request)
    return await asyncio.to_thread(parse, body)


async def _answer(write: Callable[[], bytes]) -> web.Response:
    return web.Response(body=await asyncio.to_thread(write), content_type="application/json")


def _reward(request: web.Request) -> OpenReward:
    if (teacher := request.app.get(TEACHER)) is not None:
        raise web.HTTPNotFound(
            text=f"{teacher.endpoint.pool} is a Teacher, which gives no reward: ask {LOGPROBS_PATH}, {COMPLETIONS} or"
            f" {TOKENS}"
        )
    return request.app[REWARD]


def _teacher(request: web.Request) -> OpenTeacher:
    if (teacher := request.app.get(TEACHER)) is None:
        raise web.HTTPNotFound(text="the pool is no Teacher, and only those give log-probabilities")
    return teacher


def _refuse_other(teacher: OpenTeacher, model: str | None) -> None:
    served = teacher.endpoint.served_name
    if model not in (None, ANY_MODEL, served):
        raise web.HTTPNotFound(text=f"model is {model!r:.80}, and {served!r} is served here: ask for that")


def _has_key(headers: Mapping[str, str], key: str) -> bool:
    """Return whether a request has the key: as a bearer token, or as the password of a URL, which is Basic."""
    scheme, _, presented = headers.get("Authorization", "").partition(" ")
    if scheme.lower() == "basic":
        try:
            presented = b64decode(presented, validate=True).decode().partition(":")[2]
        except (Base64Error, ValueError):  # of the second kind is what is not ASCII or not UTF-8
            return False
    elif scheme.lower() != "bearer":
        return False
    return hmac.compare_digest(presented.strip().encode(errors="surrogateescape"), key.encode())


def _failed(
    request: web.Request,
    status: int,
    problem: str,
    headers: Mapping[str, str] | None = None,
    *,
    cause: SampleError | None = None,
) -> web.Response:
    if request.path == RUN_CODE:
        return web.json_response(
            sandbox_error(problem[:2000]), status=504 if status == 503 else status, headers=headers
        )
    answer: dict[str, Any] = {"error": problem[:2000]}
    if cause is not None:
        answer |= {"fault": cause.fault, "kind": cause.kind}
    # Trainers that call raise_for_status show the reason and throw the body away.
    reason = re.sub(r"[^\x20-\x7e]+", " ", problem)[:300]
    return web.json_response(answer, status=status, reason=reason, headers=headers)
