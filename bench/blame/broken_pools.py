"""Pools that never gave a score, under a policy with a number: each has to raise, and no sample may be scored."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any, Final

from blame.verifier import Answer, pool_that, refuses, says
from rewardpool import RewardPoolError, Sample, Scored
from rewardpool_api.contract import CallerError

SAMPLES: Final = 100
SETTINGS: Final = {"timeout": 3.0, "on_failure": {"policy": {"penalty": 0.0}, "verifier": "skip", "infra": "skip"}}
"""Everything is forgiven that can be."""


def _embedding(*values: float) -> str:
    return json.dumps({"data": [{"index": 0, "embedding": values}]})


BROKEN: Final[Mapping[str, Answer]] = {
    "500": says("broken", status=500),
    "502": says("bad gateway", status=502, content_type="text/html"),
    "404": says("no such path", status=404),
    "web page": says("<!doctype html><html><body>Sign in</body></html>", content_type="text/html"),
    "NaN": says(_embedding(float("nan"))),
    "embedding of 768 numbers": says(_embedding(*[0.5] * 768)),
    "wrong model": refuses(CallerError(code="wrong_model", message="serves another model", served="other")),
    "every function_failed": refuses(CallerError(code="function_failed", message="ValueError: broken")),
    "every function_failed, as the policy's fault": refuses(
        CallerError(code="function_failed", message="its time is used up", fault="policy")
    ),
}


async def scored_by(answer: Answer) -> tuple[int, str]:
    """Ask a broken pool for scores; returns how many it "scored", and the kind of error that ended that, or ""."""
    scored = 0
    async with pool_that(answer, **SETTINGS) as pool:
        try:
            async for _, outcome in pool.stream(Sample(text=f"sample {number}") for number in range(SAMPLES)):
                scored += isinstance(outcome, Scored)
        except RewardPoolError as error:
            return scored, type(error).__name__
    return scored, ""


def tried() -> dict[str, dict[str, Any]]:
    """Return what became of the samples of every broken pool."""
    found = {name: asyncio.run(scored_by(answer)) for name, answer in BROKEN.items()}
    return {name: {"samples": SAMPLES, "wrong": wrong, "raised": raised} for name, (wrong, raised) in found.items()}
