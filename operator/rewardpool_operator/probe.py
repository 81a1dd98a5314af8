"""Asking one worker directly, past the routers: does it score, how long may a sample be, how much is it working on.

vLLM and the function server run RewardPool's middleware, whose ready path makes a real score. An engine without it is
asked for a score as a trainer would ask.
"""

import json
import logging
import sys
from dataclasses import dataclass, replace
from typing import Any

import aiohttp

from rewardpool_api import names
from rewardpool_api.certificate import MOST_WORDS, NUMBERS_VARY
from rewardpool_api.contract import (
    CHAT_PATH,
    REQUEST_ID_HEADER,
    SCORE_PATH,
    CallerError,
    InvalidResponseError,
    parse_answer,
    parse_object,
    refusal_in,
    request_header,
)
from rewardpool_api.model import ModelType
from rewardpool_api.reasons import ConditionReason
from rewardpool_api.status import CertificateStatus
from rewardpool_api.teacher_wire import LOGPROBS_PATH, BadAnswerError, SequenceQuestion, Values, parse_values
from rewardpool_control.snapshot import Failure
from rewardpool_runtime.bounded import AnswerTooLargeError, read_text
from rewardpool_runtime.untrusted import count_of, printable, without_secrets

log = logging.getLogger(__name__)

SCORE_TIMEOUT = aiohttp.ClientTimeout(total=30, sock_connect=2)  # an engine's first score may compile something
QUICK_TIMEOUT = aiohttp.ClientTimeout(total=5, sock_connect=2)

# A worker itself gives each of its calls up after 300 s.
TURN_TIMEOUT = aiohttp.ClientTimeout(total=600, sock_connect=2)

MAX_ANSWER_BYTES = 1 << 20  # a score takes a hundred bytes, a list of models some kilobytes

MAX_REASON = 500  # characters
MAX_WORDS = 4096  # characters that are searched for a reason

MAX_MISSING = 16

MAX_DIGEST = 64  # characters

PROBE_TEXT = "Is this pool ready?"


@dataclass(frozen=True, kw_only=True)
class ProbeResult:
    """Answer of a worker."""

    ok: bool
    max_model_len: int | None = None
    """Longest sample in tokens; None when it does not say."""
    tokenizer: str | None = None
    probe_score: float | None = None
    """Its score of the probe text, finite; None when it does not say."""
    unsandboxed: tuple[str, ...] | None = None
    """Things that its function reaches though it should not, in words; None when it does not say."""
    certificate: CertificateStatus | None = None
    """True if its numbers depended on how they were asked for; None when it does not say."""
    error: str | None = None
    failure: Failure | None = None
    """Reason why this process never gives one; None where another question may bring one."""
    reached: bool = True
    """Something listens at the worker's address; while an engine loads, nothing does."""


class NoScoreError(Exception):
    """The text says why there was no score."""


class NumbersVaryError(NoScoreError):
    """The worker's numbers depend on how they are asked for."""


class WorkerUnreachableError(NoScoreError):
    """Nothing listens at the worker's address."""


async def probe_score(
    session: aiohttp.ClientSession, worker_url: str, *, key: str | None, served_name: str, model_type: ModelType
) -> ProbeResult:
    """Get one real score from a worker.

    Returns:
        The outcome; a worker that does not answer is an outcome, no error.
    """
    caller = _Caller(session, worker_url.rstrip("/"), key)
    try:
        ready = await caller.get(names.READY_PATH, timeout=SCORE_TIMEOUT, absent_is_none=True)
        if ready is None:
            score = await _score_as_a_trainer(caller, served_name, model_type)
            length = await _listed_length(caller, served_name)
            return ProbeResult(ok=True, max_model_len=length, probe_score=score)
        tokenizer = ready.get("tokenizer")
        return ProbeResult(
            ok=True,
            max_model_len=_tokens(ready.get("max_model_len")),
            tokenizer=tokenizer if isinstance(tokenizer, str) and 0 < len(tokenizer) <= MAX_DIGEST else None,
            probe_score=_score(ready.get("probe_score")),
            unsandboxed=_missing(ready.get("sandbox")),
            certificate=_certificate(ready.get("certificate"), caller),
        )
    except (NoScoreError, InvalidResponseError) as error:
        said = printable(caller.said(str(error)), most=MAX_REASON)
        varies = isinstance(error, NumbersVaryError)
        failure = Failure(reason=ConditionReason.NUMBERS_VARY, message=said) if varies else None
        return ProbeResult(ok=False, error=said, failure=failure, reached=not isinstance(error, WorkerUnreachableError))


async def score_text(
    session: aiohttp.ClientSession, worker_url: str, key: str | None, served_name: str, text: str
) -> float | CallerError:
    """Get a worker's score of one text.

    Returns:
        The raw score, or why the model gives this text none.

    Raises:
        NoScoreError: no answer came, or one that blames the worker; another attempt may bring a score.
        InvalidResponseError: the answer has no finite number.
    """
    request = {"model": served_name, "input": text}
    scores = await scores_of(session, worker_url, key, request, count=1)
    return scores if isinstance(scores, CallerError) else scores[0]


async def scores_of(
    session: aiohttp.ClientSession,
    worker_url: str,
    key: str | None,
    request: dict[str, Any],
    *,
    count: int,
    timeout: aiohttp.ClientTimeout = SCORE_TIMEOUT,
) -> list[float] | CallerError:
    """Get a worker's scores of the `count` samples of a request; otherwise as `score_text`."""
    caller = _Caller(session, worker_url.rstrip("/"), key)
    scores = parse_answer(await caller.post(SCORE_PATH, request, timeout=timeout), count=count)
    return replace(scores, message=caller.said(scores.message)) if isinstance(scores, CallerError) else scores


async def logprobs_of(
    session: aiohttp.ClientSession,
    worker_url: str,
    key: str | None,
    asked: SequenceQuestion,
    *,
    timeout: aiohttp.ClientTimeout = SCORE_TIMEOUT,
) -> Values | CallerError:
    """Get the answer of a teacher's worker to a question; raises what `score_text` does."""
    caller = _Caller(session, worker_url.rstrip("/"), key)
    most = asked.most_answer_bytes
    answer = parse_object(await caller.post(LOGPROBS_PATH, asked.to_wire(), timeout=timeout, most_bytes=most))
    if (refusal := refusal_in(answer)) is not None:
        return replace(refusal, message=caller.said(refusal.message))
    try:
        return parse_values(answer, asked)
    except BadAnswerError as error:
        raise InvalidResponseError(str(error)) from None


async def read_in_flight(session: aiohttp.ClientSession, worker_url: str, *, key: str | None) -> int | None:
    """Requests the worker is working on, by its own count; None when it does not say."""
    try:
        answer = await _Caller(session, worker_url.rstrip("/"), key).get(names.LOAD_PATH, timeout=QUICK_TIMEOUT)
    except NoScoreError as error:
        log.debug("%s does not say what it is working on: %s", worker_url, error)
        return None
    stated = (answer or {}).get("in_flight")
    count = count_of(stated)
    if count is None:
        log.warning("%s is working on %.60r requests, which is not a number of requests: left out", worker_url, stated)
    return count


@dataclass(frozen=True, kw_only=True)
class Turned:
    """Result of a request to an engine to sleep or wake."""

    ok: bool
    busy: bool = False
    weights_lost: bool = False
    """It woke and scores differently than before: nothing but a new start repairs that."""
    error: str = ""


async def turn(session: aiohttp.ClientSession, worker_url: str, *, awake: bool, key: str | None) -> Turned:
    """Wake a worker's engine, or put it to sleep; returns when it is done. What fails is an outcome, no error."""
    path = names.WAKE_PATH if awake else names.SLEEP_PATH
    try:
        caller = _Caller(session, worker_url.rstrip("/"), key)
        status, text, answer = await caller.request("POST", path, None, TURN_TIMEOUT)
    except NoScoreError as error:
        return Turned(ok=False, error=str(error))
    said = (answer or {}).get("error")
    code, message = (said.get("code"), said.get("message")) if isinstance(said, dict) else (None, None)
    words = caller.said(str(message or f"POST {path}: status {status}: {text}"))
    return Turned(ok=status == 200, busy=code == "busy", weights_lost=code == "weights_lost", error=words)


async def takes_key(session: aiohttp.ClientSession, worker_url: str, *, key: str) -> bool:
    """Return whether the worker admits who presents this key; False as well when it does not answer."""
    try:
        await _Caller(session, worker_url.rstrip("/"), key).get(names.LOAD_PATH, timeout=QUICK_TIMEOUT)
    except NoScoreError as error:
        log.debug("%s does not take the next key yet: %s", worker_url, error)
        return False
    return True


class _Caller:
    """GET and POST of JSON objects with the pool's key, which no answer tells."""

    def __init__(self, session: aiohttp.ClientSession, url: str, key: str | None) -> None:
        self._session = session
        self._key = key
        self._url = url
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        # Without an id, and without this header the wire contract's version is 1.
        if wire := request_header("", None):
            self._headers[REQUEST_ID_HEADER] = wire

    async def get(
        self, path: str, *, timeout: aiohttp.ClientTimeout, absent_is_none: bool = False
    ) -> dict[str, Any] | None:
        status, text, answer = await self.request("GET", path, None, timeout)
        if absent_is_none and status == 404:
            return None
        if status != 200 or answer is None:
            reason = self.said(str((answer or {}).get("reason") or text))
            if answer is not None and answer.get("code") == NUMBERS_VARY:
                raise NumbersVaryError(reason)
            raise NoScoreError(f"GET {path}: status {status}: {reason}")
        return answer

    async def post(
        self,
        path: str,
        request: dict[str, Any],
        *,
        timeout: aiohttp.ClientTimeout = SCORE_TIMEOUT,
        most_bytes: int = MAX_ANSWER_BYTES,
    ) -> str:
        status, text, _ = await self.request("POST", path, request, timeout, most_bytes=most_bytes)
        if status != 200:
            raise NoScoreError(f"POST {path}: status {status}: {self.said(text)}")
        return text

    def said(self, words: str) -> str:
        """Return the worker's words, fit to be shown: users' code runs there, and can read the key."""
        return without_secrets(words[:MAX_WORDS], [self._key])[:MAX_REASON]

    async def request(
        self,
        method: str,
        path: str,
        request: dict[str, Any] | None,
        timeout: aiohttp.ClientTimeout,
        *,
        most_bytes: int = MAX_ANSWER_BYTES,
    ) -> tuple[int, str, dict[str, Any] | None]:
        try:
            async with self._session.request(
                method, self._url + path, json=request, headers=self._headers, timeout=timeout
            ) as response:
                text = await read_text(response, limit_bytes=most_bytes)
                answer = _object(text)
                return response.status, text, answer
        except TimeoutError:
            raise NoScoreError(f"{method} {path}: no answer in time") from None
        except AnswerTooLargeError as error:
            raise NoScoreError(f"{method} {path}: {error}") from None
        except aiohttp.ClientConnectorError as error:
            raise WorkerUnreachableError(f"{method} {path}: {type(error).__name__}: {error}") from None
        except aiohttp.ClientError as error:
            raise NoScoreError(f"{method} {path}: {type(error).__name__}: {error}") from None


async def _score_as_a_trainer(caller: _Caller, served_name: str, model_type: ModelType) -> float | None:
    """Return the score; None of a judge, whose answer is no number."""
    if model_type == "Generative":
        messages = [{"role": "user", "content": PROBE_TEXT}]
        await caller.post(CHAT_PATH, {"model": served_name, "messages": messages, "max_tokens": 1})
        return None
    scores = parse_answer(await caller.post(SCORE_PATH, {"model": served_name, "input": PROBE_TEXT}), count=1)
    if isinstance(scores, CallerError):
        raise NoScoreError(f"POST {SCORE_PATH}: {scores.code}: {caller.said(scores.message)}")
    return scores[0]


async def _listed_length(caller: _Caller, served_name: str) -> int | None:
    try:
        models = (await caller.get("/v1/models", timeout=QUICK_TIMEOUT) or {}).get("data")
    except NoScoreError as error:
        log.debug("the longest sample stays unknown: %s", error)
        return None
    cards = [card for card in models if isinstance(card, dict)] if isinstance(models, list) else []
    card = next((card for card in cards if card.get("id") == served_name), cards[0] if cards else {})
    return _tokens(card.get("max_model_len"))


def _object(text: str) -> dict[str, Any] | None:
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return answer if isinstance(answer, dict) else None


def _score(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= sys.float_info.max:
        return None
    return float(value)


def _certificate(said: object, caller: _Caller) -> CertificateStatus | None:
    if not isinstance(said, dict) or said.get("outcome") not in ("Certified", "NotCertified"):
        return None
    difference = _score(said.get("max_abs_diff"))
    return CertificateStatus(
        outcome=said["outcome"],
        max_abs_diff=difference if difference is not None and difference >= 0 else None,
        message=printable(caller.said(str(said.get("message", ""))), most=MOST_WORDS),
    )


def _missing(sandbox: object) -> tuple[str, ...] | None:
    missing = sandbox.get("missing") if isinstance(sandbox, dict) else None
    if not isinstance(missing, list) or not all(isinstance(one, str) for one in missing):
        return None
    return tuple(printable(one, most=MAX_REASON) for one in missing[:MAX_MISSING])


def _tokens(value: object) -> int | None:
    return count_of(value) or None
