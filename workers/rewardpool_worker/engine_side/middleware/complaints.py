"""Faults told apart: what an engine says about a request, and what it says about itself."""

import json
import re
from dataclasses import dataclass

from rewardpool_worker.engine_side.middleware.asgi import Answer
from rewardpool_worker.engine_side.middleware.errors import EngineFaultError

COMPLAINTS = frozenset({400, 404, 413, 422})
# Python's words for a NaN that a strict JSON encoder met. vLLM takes every ValueError for the caller's fault, so a
# model that computes NaN answers with status 400 and this text.
NOT_FINITE = "Out of range float values are not JSON compliant"
_TOO_LONG = tuple(
    re.compile(pattern, re.DOTALL)
    for pattern in (
        # vLLM, after tokenising; "at least" when its tokenizer stopped early.
        r"maximum context length is (?P<limit>\d+) tokens.*contains (?P<bound>at least )?(?P<length>\d+) input tokens",
        # vLLM, before tokenising, where there are more characters than the limit's tokens could hold.
        r"maximum context length is (?P<limit>\d+) tokens.*contains (?P<characters>\d+) characters",
        # SGLang, and the server of the engine transformers.
        r"input \((?P<length>\d+) tokens\) is longer than the model's context length \((?P<limit>\d+) tokens\)",
    )
)


@dataclass(frozen=True)
class TooLong:
    """An engine's message about a sample that does not fit."""

    limit_tokens: int
    length_tokens: int | None
    """None where the engine did not say, or counted only as far as the limit."""


def parse_too_long(message: str) -> TooLong | None:
    """Read limit and length, in tokens, out of vLLM's or SGLang's complaint; None when it is about something else."""
    for pattern in _TOO_LONG:
        if found := pattern.search(message):
            parts = found.groupdict()
            exact = parts.get("length") and not parts.get("bound")
            return TooLong(int(parts["limit"]), int(parts["length"]) if exact else None)
    return None


def caller_complaint(answer: Answer) -> str | None:
    """Return the engine's message when it says that the request is at fault; None when the answer is anything else."""
    # A 404 without a message is a route that the engine does not have: the pool is set up wrongly.
    if answer.status not in COMPLAINTS:
        return None
    try:
        said = json.loads(answer.body)
        said = said["error"] if isinstance(said.get("error"), dict) else said
        message = said.get("message")
    except (ValueError, AttributeError):
        return None
    return message if isinstance(message, str) and NOT_FINITE not in message else None


def only_200(answer: Answer) -> Answer:
    """Return an answer whose status is 200; raises EngineFaultError for another."""
    if answer.status != 200:
        raise EngineFaultError(f"status {answer.status}: {answer.body[:500].decode(errors='replace')}")
    return answer


def fault(status: int, message: str, *, worker: str) -> Answer:
    """Return the answer that says that the engine of a worker failed."""
    error = {"code": "engine_fault", "message": f"worker {worker}: {message}"}
    return Answer(status, json.dumps({"error": error}).encode())


def engine_fault(answer: Answer, *, worker: str) -> Answer:
    """Return an engine's failure as it is passed on: its own words, under a status that is never the caller's fault."""
    status = answer.status if answer.status >= 500 or answer.status == 429 else 500
    said = answer.body[:2000].decode(errors="replace")
    if NOT_FINITE in said:
        said = f"the engine's score is NaN or infinite ({said})"
    return fault(status, f"the engine answered {answer.status}: {said}", worker=worker)
