"""Middleware that makes a stock model server a RewardPool worker: a key, one scoring route, and an honest readiness.

Plain ASGI around the engine's whole application: vLLM finds it by `--middleware`, SGLang's launcher and the server of
the engine transformers put it in. Each module here is one concern of it:

- **A key** (`keys`). Every path but the open ones needs `Authorization: Bearer KEY`. The key comes from a file, never
  from argv.
- **A list of paths** (`routes`). Engines have routes that change weights, stop the engine, or score by another rule.
  What RewardPool itself does not need is closed, to holders of the key too.
- **Scores** (`engine`, `heads`). A score is one number a sample. What has more has no score until somebody declares how
  they make one. A Teacher has log-probabilities instead, by `POST /generate` (`teacher_engines`).
- **Faults told apart** (`requests`, `complaints`). What the caller did wrong (a sample that is too long) is a 200 with
  an `error` object, because the router opens its circuit breaker on any other status; what the engine did wrong stays
  an error status, and a score that is not a finite number is such a fault, never a number.
- **Whose answer it is** (`answers`). Each answer repeats the request's `x-correlation-id` as `request_id`, and names
  the worker's `revision`, so that a trainer notices an answer to another request and knows which model scored.
- **Readiness** (`readiness`, `certificate`). `GET /rewardpool/ready` is 200 only when a real score came back, and when
  numbers did not depend on how they were asked for.
- **Sleep** (`sleep`). Where the engine shares its GPU with a trainer it sleeps, answers nobody meanwhile, and has to
  prove that it woke as it was.
- **Load**. `GET /rewardpool/load` says how many requests are in flight here, so that a worker that leaves is stopped
  when it is empty: a router forgets what it sent to a worker the moment it takes the worker off its list.

Settings come from the environment: see `settings`.
"""

import asyncio
import json
import logging
import time
from collections.abc import Callable
from typing import Any

from rewardpool_api import teacher_wire
from rewardpool_api.contract import REQUEST_ID_HEADER, CallerError
from rewardpool_api.names import LOAD_PATH, READY_PATH, SLEEP_PATH, WAKE_PATH
from rewardpool_worker.engine_side.middleware.answers import (
    echo,
    refused_for_another,
    with_echo,
    worker_fields,
    worker_name,
)
from rewardpool_worker.engine_side.middleware.asgi import (
    Answer,
    App,
    BufferedAnswer,
    Message,
    Receive,
    Scope,
    Send,
    header,
    read_body,
    replay,
    send_answer,
    send_json,
)
from rewardpool_worker.engine_side.middleware.complaints import COMPLAINTS, caller_complaint, engine_fault, fault
from rewardpool_worker.engine_side.middleware.engine import RunningEngine, countable_chat, countables
from rewardpool_worker.engine_side.middleware.errors import (
    EngineFaultError,
    InvalidRequestError,
    NoAnswerError,
    OtherModelError,
)
from rewardpool_worker.engine_side.middleware.keys import KeyFile
from rewardpool_worker.engine_side.middleware.readiness import Readiness
from rewardpool_worker.engine_side.middleware.requests import parse_chat, parse_request, refuse_media
from rewardpool_worker.engine_side.middleware.routes import ANSWERED_PATH, ENGINE_PATHS, OPEN_PATHS, ROUTED_PATHS
from rewardpool_worker.engine_side.middleware.settings import Settings
from rewardpool_worker.engine_side.middleware.sleep import ASLEEP, HEALTH_PATHS, EngineSleep

log = logging.getLogger("rewardpool.worker")

_ARRIVED = "rewardpool.arrived"


class ScoreMiddleware:
    """The ASGI application around the engine's. Starlette makes one per server process."""

    def __init__(
        self, app: App, *, settings: Settings | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._app = app
        self._settings = settings or Settings.from_environment()
        self._clock = clock
        self._name = worker_name()
        self._engine = RunningEngine(app, self._settings)
        self._key = KeyFile(self._settings.key_file)
        self._readiness = Readiness(deadline_seconds=self._settings.probe_seconds, clock=clock)
        self._scored_path = ANSWERED_PATH[self._settings.model_type]
        sleeps = self._settings.sleep_max_abs_diff is not None
        self._sleep_paths = frozenset({SLEEP_PATH, WAKE_PATH}) if sleeps else frozenset()
        self._in_flight = 0
        self._sleep = EngineSleep(
            app,
            engine=self._settings.engine,
            max_abs_diff=self._settings.sleep_max_abs_diff or 0.0,
            fingerprint=self._engine.fingerprint,
            in_flight=lambda: self._in_flight + self._readiness.is_probing,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        path = scope["path"]
        if path not in OPEN_PATHS and not self._key.admits(header(scope, b"authorization")):
            await _refuse_key(scope, send)
        elif path == READY_PATH:
            ready, report = await self._report_ready(scope)
            await send_json(send, 200 if ready else 503, report)
        elif path == LOAD_PATH:
            await send_json(send, 200, {"in_flight": self._in_flight})
        elif scope["type"] == "http" and scope["method"] == "POST" and path == self._scored_path:
            self._in_flight += 1
            scope[_ARRIVED] = self._clock()
            try:
                await self._serve(scope, receive, send)
            finally:
                self._in_flight -= 1
        elif scope["type"] == "http" and scope["method"] == "POST" and path in ROUTED_PATHS:
            await read_body(receive, 0)
            await self._refuse(scope, send, f"this worker scores {self._scored_path}")
        elif scope["type"] == "http" and path in self._sleep_paths:
            if path == SLEEP_PATH and scope["method"] != "GET":
                # However recently a score came back, the next prober has to find out anew.
                self._readiness.forget()
            await self._sleep.answer(scope, send)
        elif scope["type"] != "http" or path not in ENGINE_PATHS:
            await _refuse_route(scope, send)
        elif self._sleep.is_asleep and path in HEALTH_PATHS:
            await send_json(send, 200, self._sleep.report())
        else:
            await self._app(scope, receive, send)

    async def _report_ready(self, scope: Scope) -> tuple[bool, dict[str, Any]]:
        if self._sleep.is_asleep:
            return False, {"ready": False, "reason": ASLEEP}
        engine = self._engine
        return await self._readiness.report(lambda: engine.probe(scope), lambda: engine.certify(scope))

    def _echo(self, scope: Scope) -> dict[str, Any]:
        request_id = header(scope, REQUEST_ID_HEADER.encode())
        seconds = self._clock() - scope.get(_ARRIVED, self._clock())
        worker = worker_fields(self._name, seconds=seconds, ready_seconds=self._readiness.ready_seconds())
        return echo(request_id, revision=self._settings.revision, worker=worker, tokenizer=self._engine.tokenizer)

    async def _answer(self, scope: Scope, send: Send, content: dict[str, Any]) -> None:
        await send_json(send, 200, {**content, **self._echo(scope)})

    async def _refuse(self, scope: Scope, send: Send, message: str) -> None:
        await self._answer(scope, send, CallerError(code="invalid_sample", message=message).to_wire())

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = await read_body(receive, self._settings.max_body_bytes)
        request_id = header(scope, REQUEST_ID_HEADER.encode())
        if (refused := refused_for_another(request_id, self._settings.revision)) is not None:
            await self._answer(scope, send, refused)
            return
        if body is None:
            await self._refuse(scope, send, f"the request has more than {self._settings.max_body_bytes} bytes")
            return
        if self._sleep.is_asleep:
            await self._sleep.refuse(send)
            return
        serve = {"Discriminative": self._serve_scores, "Teacher": self._serve_logprobs, "Generative": self._serve_chat}
        try:
            await serve[self._settings.model_type](scope, receive, send, body)
        except NoAnswerError:
            # Nobody is there to tell. Were it the engine's fault, the server would notice that nothing was sent.
            log.debug("a caller disconnected")
        except teacher_wire.TooLongError as error:
            length, limit = error.length_tokens, error.limit_tokens
            refusal = CallerError(code="sample_too_long", message=str(error), length_tokens=length, limit_tokens=limit)
            await self._answer(scope, send, refusal.to_wire())
        except (InvalidRequestError, teacher_wire.BadRequestError) as error:
            await self._refuse(scope, send, str(error))
        except OtherModelError as error:
            await self._answer(scope, send, error.refusal.to_wire())
        except EngineFaultError as error:
            log.error("%s", error)  # noqa: TRY400 - the message says it all; a traceback per sample would not
            await send_answer(send, fault(500, str(error), worker=self._name))

    async def _serve_scores(self, scope: Scope, receive: Receive, send: Send, body: bytes) -> None:
        said, samples = parse_request(body)
        model = await self._engine.choose_model(scope, said)
        await self._engine.refuse_beyond_vocabulary(scope, samples)
        answer = await self._engine.scores(scope, receive, model, samples)
        complaint = caller_complaint(answer)
        if complaint is not None:
            refusal = await self._engine.refusal(scope, answer, complaint, countables(model, samples))
            await self._answer(scope, send, refusal.to_wire())
        elif answer.status != 200:
            await send_answer(send, engine_fault(answer, worker=self._name))
        else:
            await self._answer(scope, send, self._engine.read_scores(answer, model, len(samples)))
            self._readiness.scored()

    async def _serve_logprobs(self, scope: Scope, receive: Receive, send: Send, body: bytes) -> None:
        question, words = teacher_wire.parse_request(body)
        model = await self._engine.choose_model(scope, question.model)
        try:
            found = await self._engine.logprobs(scope, receive, question)
            if isinstance(found, CallerError):
                await self._answer(scope, send, found.to_wire())
                return
            said = self._echo(scope)
            # Beside the loop, which has other callers: of a long answer this takes a second.
            content = await asyncio.to_thread(teacher_wire.answer, found, question, words, model=model, echo=said)
        except teacher_wire.BadRequestError as error:
            if words is None or isinstance(error, teacher_wire.TooLongError):
                raise
            raise InvalidRequestError(words.reworded(str(error))) from None
        await send_answer(send, Answer(200, content))
        self._readiness.scored()

    async def _serve_chat(self, scope: Scope, receive: Receive, send: Send, body: bytes) -> None:
        """Pass a request on, and a streamed answer as it comes; a whole answer says whose it is."""
        request = parse_chat(body)
        refuse_media(scope, request.get("messages"))
        if isinstance(said := request.get("model"), str):
            model = await self._engine.choose_model(scope, said)
            body = body if model == said else json.dumps({**request, "model": model}).encode()
        buffered = BufferedAnswer()
        status, is_buffered = 0, False

        async def forward(message: Message) -> None:
            nonlocal status, is_buffered
            if message["type"] == "http.response.start":
                status = message["status"]
                is_json = (header(message, b"content-type") or b"").startswith(b"application/json")
                is_buffered = status in COMPLAINTS or (status == 200 and is_json)
            if is_buffered:
                await buffered.send(message)
                return
            await send(message)
            if status == 200 and message["type"] == "http.response.body" and not message.get("more_body"):
                self._readiness.scored()

        await self._app(scope, replay(body, receive), forward)
        if not is_buffered:
            return
        answer = buffered.answer()
        if status == 200:
            await send_answer(send, Answer(200, with_echo(answer.body, self._echo(scope))))
            self._readiness.scored()
            return
        complaint = caller_complaint(answer)
        if complaint is None:
            await send_answer(send, engine_fault(answer, worker=self._name))
        else:
            refusal = await self._engine.refusal(scope, answer, complaint, countable_chat(request))
            await self._answer(scope, send, refusal.to_wire())


async def _refuse_route(scope: Scope, send: Send) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008, "reason": "there is no such route"})
        return
    error = {"code": "not_found", "message": "a worker serves what scoring needs, and nothing else"}
    await send_json(send, 404, {"error": error})


async def _refuse_key(scope: Scope, send: Send) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008, "reason": "a key is needed"})
        return
    message = "this worker needs the pool's key as Authorization: Bearer KEY"
    body = json.dumps({"error": {"code": "unauthorized", "message": message}}).encode()
    await send_answer(send, Answer(401, body), (b"www-authenticate", b"Bearer"))
