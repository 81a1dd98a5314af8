"""Lets an engine that shares its GPU with a trainer sleep, and gives no score that a woken engine may have got wrong.

It stands between the score middleware, which asks for the key, and the engine, only where `spec.engine.sleep.enabled`
says so, and adds:

    POST /rewardpool/sleep   the weights move to the machine's memory, and the GPU is free for others
    POST /rewardpool/wake    they are back, and a real score proves it
    GET  /rewardpool/sleep   {"state": "Awake" | "Asleep", "in_flight": requests at the engine}

- **Nothing is lost by sleeping.** An engine that still works on something is not put to sleep (409). While it sleeps,
  requests are refused (503) at once: a sleeping vLLM would hold them without a word, a sleeping SGLang die of them.
- **A wake is proved.** A probe is scored before the first sleep and after every wake. SGLang without its weight backup
  wakes with random weights and answers as if nothing had happened; here that wake fails, and nobody gets such a score.

vLLM serves its sleep routes only together with routes that change or stop the engine, and one that runs any method of
its workers: the score middleware, which is always around this one, hands none of them on.

The state is that of this process: an engine must not have several servers (the API refuses the flags for that).
Settings come from the environment: see `SleepSettings`.
"""

import asyncio
import json
import logging
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from rewardpool_api import names
from rewardpool_api.contract import CHAT_PATH, SCORE_PATH
from rewardpool_api.names import SLEEP_PATH, WAKE_PATH
from rewardpool_worker.engine_side.middleware.asgi import App, Receive, Scope, Send, call, send_json
from rewardpool_worker.engine_side.middleware.errors import NoAnswerError

State = Literal["Awake", "Asleep"]

log = logging.getLogger("rewardpool.worker")

HEALTH_PATHS = frozenset({"/health", "/health_generate"})
"""Answered here while the engine sleeps: SGLang's own answer takes a generation, which a sleeping one cannot do."""
WORK_PATHS = frozenset({SCORE_PATH, CHAT_PATH, "/classify", "/pooling"})
"""Use of the engine's GPU."""

PROBE_TEXT = "The quick brown fox jumps over the lazy dog."
"""Long enough that other weights give another score."""
ENGINE_SECONDS = 300.0
"""For one call of the engine: 140 GB come back at 0.5 GB/s or faster."""


@dataclass(frozen=True)
class SleepSettings:
    """Settings of the worker; every value from one environment variable."""

    engine: str = "vllm"
    """REWARDPOOL_ENGINE: vllm or sglang."""
    model_type: str = "Discriminative"
    """REWARDPOOL_MODEL_TYPE: Discriminative or Generative."""
    served_name: str = ""
    """REWARDPOOL_SERVED_NAME: the `model` of the probe."""
    max_abs_diff: float = 0.01
    """REWARDPOOL_SLEEP_MAX_ABS_DIFF: largest difference between the probe's score before a sleep and after a wake."""

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None) -> "SleepSettings":
        """Read the settings.

        Raises:
            ValueError: REWARDPOOL_SLEEP_MAX_ABS_DIFF is no number.
        """
        environ = os.environ if environ is None else environ
        return cls(
            engine=environ.get(names.ENV_ENGINE, cls.engine),
            model_type=environ.get(names.ENV_MODEL_TYPE, cls.model_type),
            served_name=environ.get(names.ENV_SERVED_NAME, cls.served_name),
            max_abs_diff=float(environ.get(names.ENV_SLEEP_MAX_ABS_DIFF, cls.max_abs_diff)),
        )


class EngineRefusedError(RuntimeError):
    """The engine did not do what it was asked; the text has its words."""


class WeightsLostError(RuntimeError):
    """The engine woke and scores differently than before it slept."""


@dataclass(frozen=True)
class Call:
    """A request to the engine itself."""

    path: str
    body: dict[str, Any] | None = None
    query: str = ""


_SLEEP: Mapping[str, tuple[Call, ...]] = {
    # Level 1 keeps the weights in the machine's memory; level 2 would throw them away.
    "vllm": (Call("/sleep", query="level=1"),),
    "sglang": (Call("/release_memory_occupation", {"tags": ["kv_cache", "weights"]}),),
}
_WAKE: Mapping[str, tuple[Call, ...]] = {
    "vllm": (Call("/wake_up"),),
    # Weights first: the cache takes what is left of the GPU.
    "sglang": (
        Call("/resume_memory_occupation", {"tags": ["weights"]}),
        Call("/resume_memory_occupation", {"tags": ["kv_cache"]}),
    ),
}


class SleepMiddleware:
    """The ASGI application between the score middleware and the engine's. Starlette makes one per server process."""

    def __init__(self, app: App, *, settings: SleepSettings | None = None) -> None:
        self._app = app
        self._settings = settings or SleepSettings.from_environment()
        self._asleep = False
        self._in_flight = 0
        self._before: list[float] | None = None
        self._turn = asyncio.Lock()

    @property
    def state(self) -> State:
        """State of the engine, by which requests are let through."""
        return "Asleep" if self._asleep else "Awake"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, hand it on, or refuse it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        path = scope["path"]
        if path in (SLEEP_PATH, WAKE_PATH):
            await self._turn_over(scope, send)
        elif self._asleep and path in HEALTH_PATHS:
            await send_json(send, 200, {"state": self.state})
        elif self._asleep and path in WORK_PATHS:
            await send_json(send, 503, _error("asleep", f"the engine sleeps; POST {WAKE_PATH} wakes it"))
        else:
            await self._pass_on(scope, receive, send)

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        works = scope["path"] in WORK_PATHS
        self._in_flight += works
        try:
            await self._app(scope, receive, send)
        finally:
            self._in_flight -= works

    async def _turn_over(self, scope: Scope, send: Send) -> None:
        """Put the engine to sleep or wake it, one at a time; asked for what it is, it does nothing."""
        if scope["method"] == "GET":
            await send_json(send, 200, self._said())
            return
        try:
            async with self._turn:
                if scope["path"] == WAKE_PATH:
                    await self._wake(scope)
                elif not self._asleep and self._in_flight:
                    await send_json(send, 409, _error("busy", f"{self._in_flight} requests are at the engine"))
                    return
                else:
                    await self._sleep(scope)
        except WeightsLostError as error:
            log.error("%s", error)  # noqa: TRY400 - the message says it all
            await send_json(send, 500, _error("weights_lost", str(error)))
        except EngineRefusedError as error:
            log.error("%s", error)  # noqa: TRY400 - the message says it all
            await send_json(send, 502, _error("engine_refused", str(error)))
        else:
            await send_json(send, 200, self._said())

    async def _sleep(self, scope: Scope) -> None:
        if self._asleep:
            return
        # From here on nobody gets in, so nothing is in flight when the engine is asked.
        self._asleep = True
        try:
            if self._before is None:
                self._before = await self._probe(scope)
            for step in _SLEEP[self._settings.engine]:
                await self._call(scope, step)
        except BaseException:
            self._asleep = False
            raise

    async def _wake(self, scope: Scope) -> None:
        if not self._asleep:
            return
        for step in _WAKE[self._settings.engine]:
            said = await self._call(scope, step)
            # vLLM says "sleeping" where only some of its memory came back. SGLang says nothing.
            if isinstance(said, dict) and said.get("status", "awake") != "awake":
                raise EngineRefusedError(f"POST {step.path}: the engine says that it is {said['status']}")
        after, before = await self._probe(scope), self._before
        if before is None or _largest_difference(after, before) > self._settings.max_abs_diff:
            raise WeightsLostError(
                f"the woken engine scores its probe {after}, before it slept it was {before}: it came back without"
                " its weights, so nothing is scored until it is started again"
            )
        self._asleep = False

    async def _probe(self, scope: Scope) -> list[float]:
        """Numbers that stand for the weights: all of a sample, or the log-probability of a judge's first token."""
        model, engine = self._settings.served_name, self._settings.engine
        if self._settings.model_type == "Generative":
            messages = [{"role": "user", "content": PROBE_TEXT}]
            chat = {"model": model, "messages": messages, "max_tokens": 1, "temperature": 0, "logprobs": True}
            said = await self._call(scope, Call(CHAT_PATH, chat))
            where: tuple[str | int, ...] = ("choices", 0, "logprobs", "content", 0, "logprob")
        elif engine == "sglang":
            said = await self._call(scope, Call(SCORE_PATH, {"model": model, "input": [PROBE_TEXT]}))
            where = ("data", 0, "embedding")
        else:
            request = {"model": model, "input": [PROBE_TEXT], "use_activation": False}
            said = await self._call(scope, Call("/classify", request))
            where = ("data", 0, "probs")
        try:
            for step in where:
                said = said[step]
            numbers = [float(number) for number in (said if isinstance(said, list) else [said])]
        except (KeyError, IndexError, TypeError, ValueError, OverflowError) as error:
            raise EngineRefusedError(f"the probe's answer holds no number: {type(error).__name__}: {error}") from None
        if not numbers or not all(map(math.isfinite, numbers)):
            raise EngineRefusedError(f"the probe's answer is {numbers}, which is not one or more finite numbers")
        return numbers

    async def _call(self, scope: Scope, to: Call) -> Any:
        """Call the engine's own application, and return the JSON of its answer; None where it is empty.

        Raises:
            EngineRefusedError: it did not answer 200 with JSON, or not within ENGINE_SECONDS.
        """
        try:
            async with asyncio.timeout(ENGINE_SECONDS):
                answer = await call(self._app, scope, to.path, to.body, method="POST", query=to.query)
        except TimeoutError:
            raise EngineRefusedError(f"POST {to.path}: no answer within {ENGINE_SECONDS:g} s") from None
        except NoAnswerError as error:
            raise EngineRefusedError(f"POST {to.path}: {error}") from None
        words = answer.body[:500].decode(errors="replace")
        if answer.status != 200:
            raise EngineRefusedError(f"POST {to.path}: status {answer.status}: {words}")
        try:
            return json.loads(answer.body) if answer.body else None
        except ValueError:
            raise EngineRefusedError(f"POST {to.path}: the answer is not JSON: {words}") from None

    def _said(self) -> dict[str, Any]:
        return {"state": self.state, "in_flight": self._in_flight}


def _error(code: str, message: str) -> dict[str, Any]:
    return {"error": {"code": code, "message": message}}


def _largest_difference(some: list[float], others: list[float]) -> float:
    """Infinite between lists of two lengths."""
    return max(abs(a - b) for a, b in zip(some, others, strict=True)) if len(some) == len(others) else math.inf
