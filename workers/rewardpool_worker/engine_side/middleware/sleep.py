"""Lets an engine that shares its GPU with a trainer sleep, and gives no number that a woken engine may have got wrong.

Where `spec.engine.sleep.enabled` says so, the score middleware answers, to holders of the key:

    POST /rewardpool/sleep   the weights move to the machine's memory, and the GPU is free for others
    POST /rewardpool/wake    they are back, and real numbers prove it
    GET  /rewardpool/sleep   {"state": "Awake" | "Asleep", "in_flight": requests that are being answered}

- **Nothing is lost by sleeping.** An engine that still works on something is not put to sleep (409). While it sleeps,
  requests are refused (503) at once: a sleeping vLLM would hold them without a word, a sleeping SGLang die of them.
- **A wake is proved.** The engine's numbers for a fixed sample are taken before the first sleep and after every wake.
  SGLang without its weight backup wakes with random weights and answers as if nothing had happened; here that wake
  fails, and nobody gets such a number.

vLLM serves its sleep routes only together with routes that change or stop the engine, and one that runs any method of
its workers: the score middleware hands none of them on.

The state is that of this process: an engine must not have several servers (the API refuses the flags for that).
"""

import asyncio
import json
import logging
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rewardpool_api.names import WAKE_PATH
from rewardpool_worker.engine_side.middleware.asgi import App, Scope, Send, call, send_json
from rewardpool_worker.engine_side.middleware.errors import EngineFaultError, NoAnswerError

log = logging.getLogger("rewardpool.worker")

# Not handed on while the engine sleeps: SGLang's own answer takes a generation, which a sleeping one cannot do.
HEALTH_PATHS = frozenset({"/health", "/health_generate"})
ENGINE_SECONDS = 300.0  # of one call: 140 GB come back at 0.5 GB/s or faster
ASLEEP = f"the engine sleeps; POST {WAKE_PATH} wakes it"

Fingerprint = Callable[[Scope], Awaitable[Sequence[float]]]
"""Numbers that stand for the engine's weights; raises EngineFaultError."""


class EngineRefusedError(RuntimeError):
    """The engine did not do what it was asked; the text has its words."""


class WeightsLostError(RuntimeError):
    """The engine woke and gives other numbers than before it slept."""


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


class EngineSleep:
    """State of the engine's sleep, from the request to sleep until its wake is proved.

    Args:
        app: The engine's application.
        engine: vllm or sglang.
        max_abs_diff: By which a number of `fingerprint` may differ between the time before a sleep and after a wake.
        fingerprint: Asks the engine itself.
        in_flight: Requests that it works on now.
    """

    def __init__(
        self, app: App, *, engine: str, max_abs_diff: float, fingerprint: Fingerprint, in_flight: Callable[[], int]
    ) -> None:
        self._app = app
        self._engine = engine
        self._max_abs_diff = max_abs_diff
        self._fingerprint = fingerprint
        self._in_flight = in_flight
        self._before: Sequence[float] | None = None
        self._turn = asyncio.Lock()
        self.is_asleep = False

    def report(self) -> dict[str, Any]:
        return {"state": "Asleep" if self.is_asleep else "Awake", "in_flight": self._in_flight()}

    async def refuse(self, send: Send) -> None:
        await send_json(send, 503, _error("asleep", ASLEEP))

    async def answer(self, scope: Scope, send: Send) -> None:
        """Put the engine to sleep or wake it, one at a time; where it is so already, do nothing."""
        if scope["method"] == "GET":
            await send_json(send, 200, self.report())
            return
        try:
            async with self._turn:
                if scope["path"] == WAKE_PATH:
                    await self._wake(scope)
                elif not self.is_asleep and (count := self._in_flight()):
                    await send_json(send, 409, _error("busy", f"{count} requests are at the engine"))
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
            await send_json(send, 200, self.report())

    async def _sleep(self, scope: Scope) -> None:
        if self.is_asleep:
            return
        # From here on nobody gets in, so nothing is in flight when the engine is asked.
        self.is_asleep = True
        try:
            if self._before is None:
                self._before = await self._numbers(scope)
            for step in _SLEEP[self._engine]:
                await self._call(scope, step)
        except BaseException:
            self.is_asleep = False
            raise

    async def _wake(self, scope: Scope) -> None:
        if not self.is_asleep:
            return
        for step in _WAKE[self._engine]:
            said = await self._call(scope, step)
            # vLLM says "sleeping" where only some of its memory came back. SGLang says nothing.
            if isinstance(said, dict) and said.get("status", "awake") != "awake":
                raise EngineRefusedError(f"POST {step.path}: the engine says that it is {said['status']}")
        after, before = await self._numbers(scope), self._before
        off = math.inf if before is None else _largest_difference(after, before)
        if off > self._max_abs_diff:
            raise WeightsLostError(
                f"the woken engine's numbers for its probe differ by {off:.3g} from those before it slept"
                f" ({self._max_abs_diff:g} allowed): it came back without its weights, so it answers nothing until it"
                " is started again"
            )
        self.is_asleep = False

    async def _numbers(self, scope: Scope) -> Sequence[float]:
        try:
            async with asyncio.timeout(ENGINE_SECONDS):
                return await self._fingerprint(scope)
        except TimeoutError:
            raise EngineRefusedError(f"its probe: no answer within {ENGINE_SECONDS:g} s") from None
        except EngineFaultError as error:
            raise EngineRefusedError(f"its probe: {error}") from None

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


def _error(code: str, message: str) -> dict[str, Any]:
    return {"error": {"code": code, "message": message}}


def _largest_difference(some: Sequence[float], others: Sequence[float]) -> float:
    """Infinite between lists of two lengths."""
    return max(abs(a - b) for a, b in zip(some, others, strict=True)) if len(some) == len(others) else math.inf
