"""An honest readiness: a worker is ready when a real score came back."""

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Any

from rewardpool_api.certificate import MOST_WORDS, NUMBERS_VARY
from rewardpool_worker.engine_side.middleware.certificate import NumbersVaryError

Probe = Callable[[], Awaitable[dict[str, Any]]]
"""Makes one real score and returns what to say about the model; raises whatever went wrong."""
Certify = Callable[[], Awaitable[dict[str, Any]]]
# A flooded engine is ready: its probe would wait behind the flood, fail its deadline, and take the busiest worker out
# of service.
FRESH_SECONDS = 5.0
CERTIFICATE_ATTEMPTS = 3
FAILED_SECONDS = 1.0  # many probers do not add to the trouble


class Readiness:
    """Readiness of the worker, from at most one probe at a time.

    Probers share a running probe, a recent score stands in for one, and a failure is remembered for a moment. So
    neither kubelets, routers and operators together nor a stranger can pile up probes on the engine.
    """

    def __init__(self, *, deadline_seconds: float, clock: Callable[[], float]) -> None:
        self._deadline_seconds = deadline_seconds
        self._clock = clock
        self._last_score = -math.inf
        self._ready_since: float | None = None
        self._last_failure = -math.inf
        self._said: dict[str, Any] = {}
        self._reason = ""
        self._certificate: dict[str, Any] | None = None
        self._certificate_attempts = 0
        self._varies = False
        self._running: asyncio.Task[None] | None = None

    def scored(self) -> None:
        """Note that a score just came back to a caller."""
        self._note_score()

    @property
    def is_probing(self) -> bool:
        """True if a probe or the certificate is at the engine."""
        return self._running is not None and not self._running.done()

    def ready_seconds(self) -> float:
        """Return for how long it has scored: since its first score, or the first one since it was asleep."""
        return 0.0 if self._ready_since is None else self._clock() - self._ready_since

    def forget(self) -> None:
        self._last_score = -math.inf
        self._ready_since = None

    def _note_score(self) -> None:
        self._last_score = self._clock()
        if self._ready_since is None:
            self._ready_since = self._last_score

    async def report(self, probe: Probe, certify: Certify | None = None) -> tuple[bool, dict[str, Any]]:
        """Return whether the worker is ready, and the JSON to say so with; waits for a probe where none is recent.

        After its first probe the process is certified, once; a function may be random, and is not.
        """
        if self._is_due():
            if self._running is None or not self.is_probing:
                self._running = asyncio.create_task(self._run(probe, certify))
            # One prober that gives up must not cancel the probe that others wait for.
            await asyncio.shield(self._running)
        if self._said and self._last_score > self._last_failure:
            return True, {"ready": True, **self._said}
        return False, {"ready": False, "reason": self._reason, **({"code": NUMBERS_VARY} if self._varies else {})}

    def _is_due(self) -> bool:
        now = self._clock()
        # Before the first probe the model's limits are not known, however many scores came back.
        proven = bool(self._said) and now - self._last_score <= FRESH_SECONDS
        return not self._varies and not proven and now - self._last_failure > FAILED_SECONDS

    async def _run(self, probe: Probe, certify: Certify | None) -> None:
        started = self._clock()
        try:
            # Stock images may have Python 3.10, which lacks asyncio.timeout.
            described = await asyncio.wait_for(probe(), self._deadline_seconds)  # noqa: TID251
            score_seconds = round(self._clock() - started, 4)
            if self._certificate is None and certify is not None:
                self._certificate = await self._certified(certify)
        except TimeoutError:
            self._fail(f"no score within {self._deadline_seconds:g} seconds")
        except NumbersVaryError as error:
            # Another attempt might come out better, and the numbers would be no better for it.
            self._varies = True
            self._fail(str(error))
        except Exception as error:  # whatever the engine raises is the reason it is not ready
            self._fail(f"{type(error).__name__}: {error}")
        else:
            self._note_score()
            certificate = {"certificate": self._certificate} if self._certificate else {}
            self._said = {**described, **certificate, "score_seconds": score_seconds}

    async def _certified(self, certify: Certify) -> dict[str, Any]:
        """Return what to say of its numbers; an engine that fails at these samples alone serves others."""
        self._certificate_attempts += 1
        try:
            return await certify()
        except NumbersVaryError:
            raise
        except Exception as error:
            if self._certificate_attempts < CERTIFICATE_ATTEMPTS:
                raise
            said = f"the engine failed {self._certificate_attempts} times: {type(error).__name__}: {error}"
            return {"outcome": "NotCertified", "message": said[:MOST_WORDS]}

    def _fail(self, reason: str) -> None:
        self._last_failure = self._clock()
        self._reason = reason
