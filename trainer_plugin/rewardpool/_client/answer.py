"""Reading of HTTP answers: a score, the sample's error, or a failure that another attempt may repair. Pure.

The contract answers a caller's mistake with status 200 and an `error` object. A raw 400 is understood too, because an
SGLang worker says that way that a sample is too long.
"""

import json
import re
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, NoReturn, TypeVar

from rewardpool._client.rules.retry import AnotherRevisionError, Kind, RetryableError, kind_of_status
from rewardpool._logprobs import Logprobs
from rewardpool.errors import (
    FunctionFailedError,
    InvalidSampleError,
    SampleError,
    SampleTooLongError,
    ScoreError,
    WrongTokenizerError,
)
from rewardpool_api.contract import (
    NO_WORKER_CODES,
    CallerError,
    Echo,
    InvalidResponseError,
    OtherRevisionError,
    OtherTokenizerError,
    Signature,
    parse_answer,
    parse_object,
    refusal_in,
    scores_in,
    signature_in,
)
from rewardpool_api.teacher_wire import BadAnswerError, SequenceQuestion, parse_values

T = TypeVar("T")

EXCERPT = 300  # characters

_TOO_LONG = (
    # SGLang: length first, limit second.
    re.compile(r"input \((?P<length>\d+) tokens\) is longer than the model's context length \((?P<limit>\d+) tokens\)"),
    # vLLM, when somebody points `url` at a server without the score middleware: limit first.
    re.compile(
        r"maximum (?:context|model) length (?:is|of) (?P<limit>\d+)\D.*?(?P<length>\d+) (?:input )?tokens", re.S
    ),
)


class Score(NamedTuple):
    value: float
    by: Signature


def read_score(status: int, body: bytes, sample: str, *, echo: Echo, adapter: str | None = None) -> Score:
    """The score in an answer to one sample, by the adapter that was asked for if one was.

    Raises:
        SampleError: This sample cannot be scored by any worker.
        RetryableError: Another attempt may do.
    """
    return read_scores(status, body, sample, count=1, echo=echo, adapter=adapter)[0]


def read_scores(
    status: int, body: bytes, samples: str, *, count: int, echo: Echo, adapter: str | None = None
) -> list[Score]:
    """The scores in an answer to so many samples, in their order; raises what `read_score` does."""
    read = partial(scores_in, count=count, adapter=adapter)
    found, by = _read(status, body, samples, echo=echo, read=read)
    return [Score(value, by) for value in found]


def read_logprobs(status: int, body: bytes, sample: str, *, echo: Echo, asked: SequenceQuestion) -> Logprobs:
    """The log-probabilities in an answer to a question; raises what `read_score` does."""
    values, by = _read(
        status, body, sample, echo=echo, read=lambda answer: refusal_in(answer) or parse_values(answer, asked)
    )
    return Logprobs(asked.start, by.revision, asked, values)


def _read(
    status: int, body: bytes, samples: str, *, echo: Echo, read: Callable[[dict[str, Any]], T | CallerError]
) -> tuple[T, Signature]:
    _check_status(status, body, samples)
    try:
        answer = parse_object(body)
        by = signature_in(answer, echo)
    except InvalidResponseError as error:
        raise RetryableError("invalid_response", str(error)) from error
    except OtherRevisionError as error:
        raise AnotherRevisionError(error) from None
    except OtherTokenizerError as error:
        raise WrongTokenizerError(samples, error.signature.revision, error.signature.tokenizer) from error
    try:
        found = read(answer)
    except (InvalidResponseError, BadAnswerError) as error:
        name = by.worker.name
        raise RetryableError("invalid_response", str(error) if name is None else f"worker {name}: {error}") from error
    if isinstance(found, CallerError):
        raise _sample_error(found, samples)
    return found, by


def check_echo(status: int, body: bytes, echo: Echo) -> Signature | None:
    """Refuse an answer to another request, and return its signature; None where it is not an answer.

    Raises:
        RetryableError: It is to another request, or of another revision than the one that may answer.
    """
    if status == 200:
        try:
            return signature_in(parse_object(body), echo)
        except InvalidResponseError as error:
            raise RetryableError("invalid_response", str(error)) from error
        except OtherRevisionError as error:
            raise AnotherRevisionError(error) from None
    return None


class Judgement(str):
    """Output of a judge, without the reasoning that its engine separated; empty if there is nothing else."""

    __slots__ = ("generations", "has_reasoning", "is_cut_off")

    def __new__(cls, words: str, *, is_cut_off: bool = False, has_reasoning: bool = False) -> "Judgement":
        judgement = super().__new__(cls, words)
        judgement.is_cut_off = is_cut_off
        judgement.has_reasoning = has_reasoning
        judgement.generations = 1
        return judgement

    is_cut_off: bool
    """True if it ended at `max_tokens`."""
    has_reasoning: bool
    """True if the engine's reasoning parser separated its reasoning."""
    generations: int
    """Generations that it cost: attempts that reached a worker until this one was answered."""


def read_judgement(status: int, body: bytes, sample: str) -> Judgement:
    """Return the text of a chat completion's first choice.

    Raises:
        SampleError: This request cannot be answered by any worker.
        RetryableError: Another attempt may do.
    """
    choice = _first_choice(status, body, sample)
    message = choice.get("message")
    # Null where `max_tokens` ended the judge within the reasoning that its engine separates.
    text = message.get("content") or "" if isinstance(message, dict) else None
    if not isinstance(message, dict) or not isinstance(text, str):
        raise RetryableError("invalid_response", f"the answer has no choices[0].message.content: {_excerpt(body)}")
    # vLLM writes `reasoning`, SGLang and older vLLMs `reasoning_content`.
    has_reasoning = bool(message.get("reasoning") or message.get("reasoning_content"))
    return Judgement(text, is_cut_off=choice.get("finish_reason") == "length", has_reasoning=has_reasoning)


def read_first_token(status: int, body: bytes, sample: str) -> list[tuple[str, float]]:
    """The alternatives of a chat completion's first token, and the logarithms of their probabilities, none above 0.

    Raises:
        SampleError: This request cannot be answered by any worker.
        RetryableError: Another attempt may do.
    """
    choice = _first_choice(status, body, sample)
    try:
        alternatives = choice["logprobs"]["content"][0]["top_logprobs"]
        found = [(str(each["token"]), float(each["logprob"])) for each in alternatives]
    except (KeyError, IndexError, TypeError, ValueError, OverflowError):
        found = []
    # Not a number is not below anything; rounding may bring a certain token a little above 0.
    if not found or not all(logarithm <= 1e-3 for _, logarithm in found):
        raise RetryableError(
            "invalid_response", f"the answer has no probabilities in choices[0].logprobs: {_excerpt(body)}"
        )
    return found


def _first_choice(status: int, body: bytes, sample: str) -> dict[str, Any]:
    _check_status(status, body, sample)
    answer = _json_object(body)
    error = answer.get("error")
    if isinstance(error, dict):
        raise _completion_error(error, body, sample)
    choices = answer.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    if not isinstance(choice, dict):
        raise RetryableError("invalid_response", f"the answer has no choices[0]: {_excerpt(body)}")
    return choice


def read_object(status: int, body: bytes, sample: str) -> dict[str, Any]:
    """The JSON object that an answer is, whatever it says.

    Raises:
        SampleError: This request cannot be answered by any worker.
        RetryableError: Another attempt may do.
    """
    _check_status(status, body, sample)
    return _json_object(body)


def _check_status(status: int, body: bytes, sample: str) -> None:
    if status == 200:
        return
    kind: Kind | None = "waiting" if status in (404, 503) and _code(body) in NO_WORKER_CODES else kind_of_status(status)
    if kind is not None:
        raise RetryableError(kind, f"HTTP {status}: {_excerpt(body)}", status=status)
    if status in (400, 413, 422):
        _refused(status, body, sample)
    raise _with_status(
        ScoreError(
            sample, f"the server answered HTTP {status}, which no retry repairs: {_excerpt(body)}", kind="refused"
        ),
        status,
    )


def _code(body: bytes) -> object:
    try:
        return json.loads(body)["error"]["code"]
    except (ValueError, RecursionError, LookupError, TypeError):
        return None


def _refused(status: int, body: bytes, sample: str) -> NoReturn:
    text = body.decode(errors="replace")
    for pattern in _TOO_LONG:
        if found := pattern.search(text):
            raise SampleTooLongError(sample, int(found["length"]), int(found["limit"]))
    raise _with_status(InvalidSampleError(sample, f"refused with HTTP {status}: {_excerpt(body)}"), status)


def _with_status(error: SampleError, status: int) -> SampleError:
    error.status = status
    return error


def _completion_error(error: dict[str, Any], body: bytes, sample: str) -> SampleError:
    """Return the message in a chat completion's `error`: the contract's, or that of a server that only speaks
    OpenAI's.
    """
    try:
        parsed = parse_answer(body, count=0)
    except InvalidResponseError:
        parsed = []
    if isinstance(parsed, CallerError):
        return _sample_error(parsed, sample)
    return InvalidSampleError(sample, str(error.get("message", "refused by the worker")))


def _sample_error(error: CallerError, sample: str) -> SampleError:
    """Return the sample's error. Raises RetryableError for `wrong_model`, which is the pool's unless that has moved."""
    match error.code:
        case "sample_too_long":
            return SampleTooLongError(sample, error.length_tokens, error.limit_tokens, fault=error.decided_fault)
        case "function_failed":
            problem = f"the reward function failed: {error.message}"
            return FunctionFailedError(sample, problem, fault=error.decided_fault)
        case "wrong_model":
            raise RetryableError("wrong_model", error.message, served=error.served)
        case _:
            return InvalidSampleError(sample, error.message, fault=error.decided_fault)


def _json_object(body: bytes) -> dict[str, Any]:
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RetryableError("invalid_response", f"the answer is not JSON: {_excerpt(body)}") from error
    if not isinstance(answer, dict):
        raise RetryableError("invalid_response", f"the answer is not a JSON object: {_excerpt(body)}")
    return answer


def _excerpt(body: bytes) -> str:
    text = " ".join(body[: 4 * EXCERPT].decode(errors="replace").split())
    return text[:EXCERPT] + ("…" if len(text) > EXCERPT else "") or "(empty answer)"
