"""The data plane: one wire format for every engine, and how an answer becomes a score.

    POST /v1/embeddings {"model": NAME, "input": text | [text] | [token id] | [[token id]]}
    -> {"data": [{"index": i, "embedding": [score]}, ...]}

The `embedding` of item i is exactly one finite number, its score: the raw logit of a one-label model, no sigmoid or
softmax, or what `spec.model.head` makes of several. Another length is an error, never a score: it is what an engine
answers that serves no reward model (a hidden state), or one whose head nobody declared. An item of a process reward
model has the values of its steps as `steps`, a list of finite numbers; one of a function has as `info` an object with
what the function returned beside its score. `/v1/embeddings` is the only scoring route that
sglang-router forwards for every engine. `/v1/classify` is never used: it applies a softmax, and one label becomes 1.0.

A request that the worker refuses is answered with status **200** and an `error` object instead of data: its `code`, its
`message`, and the `fault` of what failed. The router counts every non-2xx against the worker's circuit breaker, so
twenty samples that are too long would otherwise take the whole pool out of service. A worker refuses a `model` that is
not its own with the code `wrong_model`; `"unknown"` stands for the one that it serves.

One of a pool's LoRA adapters is chosen by `"user": "adapter:NAME"`, and the answer's `model` is then NAME. The `model`
of a request cannot choose it behind every router: smg refuses a name that is not the pool's, and passes an alias on as
the pool's own, so that the base would score without a word.

The sample of a Function model travels as one JSON string in `input`, because the router drops fields it does not know.

An answer says whose it is: `request_id` repeats the request's header `x-correlation-id`, `revision` is the revision of
the worker that answered, and `tokenizer` the digest of its model's tokenizer and chat template. Both routers forward
that header, and the answer's body as it is; of a request's fields sglang-router keeps none in which an id could travel
on both routes, and some gateways write `x-request-id` anew. So an answer that something between trainer and worker
sends to the wrong request is noticed, and so is a model that read other words than those that were sent. Its `worker`
is an object that decides nothing: `name`, `seconds` of work on the request, and `ready_seconds` since its first score.

During a rollout workers of two revisions answer. A request that only one of them may answer says so in the same header:
`ID;revision=REVISION`. A worker of another one scores nothing and answers with the error `other_revision`, with status
200 like every refusal; what the trainer goes by is the answer's `revision`.

The contract has a version, for changes that the other end would misread. Version 1 is never written, so it costs
nothing; a later one is in the request's header, `ID;wire=2`, and in the answer, `"wire": 2`. Each end compares it with
its own before it reads anything else: a worker refuses with the error `other_wire`, a trainer takes no score.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

from rewardpool_api.teacher_wire import LOGPROBS_PATH

SCORE_PATH = "/v1/embeddings"
ADAPTER_USER = "adapter:"
"""In front of an adapter's name in the `user` of a request."""
CHAT_PATH = "/v1/chat/completions"
ECHOING_PATHS = (SCORE_PATH, CHAT_PATH, LOGPROBS_PATH)
"""Routes whose answers say whose they are."""
REQUEST_ID_HEADER = "x-correlation-id"
"""The same for all attempts of one request, whose answers are interchangeable."""
ANY_MODEL = "unknown"
"""The `model` of a request for the model that is there: smg sends it to any worker, sglang-router ignores the field."""

WIRE_VERSION = 1
"""Version of this contract. A field that the other end may leave out or ignore makes no other version."""
WIRE = ";wire="
"""Between a request's id and a version that is not 1."""
OTHER_WIRE = "other_wire"
"""`error.code` of a worker that another version of the contract was spoken to."""

WANTED_REVISION = ";revision="
"""Between a request's id and the one revision that may answer."""
OTHER_REVISION = "other_revision"
"""`error.code` of a worker of another revision than the wanted one."""

MOST_WORKER_NAME = 253
"""Characters, as Kubernetes allows a pod's."""

NO_WORKER_CODES = ("model_not_found", "no_available_workers")
"""`error.code` of a router that has no worker at all (smg, status 404), or none that lives (both routers, status 503).
No worker of ours answers with one of these."""
WAITING_PAUSE_SECONDS = (1.0, 3.0)
"""Shortest and longest pause of a trainer after such an answer. smg refuses at once where sglang-router waits, so it is
the trainers who wait; at a known pace, so that the operator can count them."""

Fault = Literal["policy", "verifier", "infra", "capacity"]
"""Cause of a failed score: `policy` (its code loops, its answer is too long), `verifier` (function, judge or the row
given to them), `infra` (worker, router, network), `capacity` (no free place in time)."""
FAULTS: tuple[Fault, ...] = get_args(Fault)

CallerErrorCode = Literal["sample_too_long", "invalid_sample", "function_failed", "wrong_model"]
FAULT_OF_CODE: Mapping[CallerErrorCode, Fault] = {
    "sample_too_long": "policy",
    "invalid_sample": "verifier",
    "function_failed": "verifier",
    "wrong_model": "infra",
}
"""The fault of an error object that names none."""


class DetailedScore(float):
    """A score, and what the worker gave beside it; a number like any other where that does not matter."""

    __slots__ = ("info", "steps")

    def __new__(
        cls, value: float, *, steps: tuple[float, ...] | None = None, info: dict[str, Any] | None = None
    ) -> "DetailedScore":
        """Make one of a finite score."""
        score = super().__new__(cls, value)
        score.steps = steps
        score.info = info or {}
        return score

    steps: tuple[float, ...] | None
    """The finite values of the steps in the order of the text, of which the score is the aggregate."""
    info: dict[str, Any]
    """What a function returned beside its score, JSON values."""


class InvalidResponseError(ValueError):
    """An answer that is not what the contract says; the message says in what way. Never turned into a number."""


def request_header(request_id: str, revision: str | None) -> str:
    """Value of `x-correlation-id`; `revision` is the one that may answer, None where any may."""
    begun = request_id if WIRE_VERSION == 1 else f"{request_id}{WIRE}{WIRE_VERSION}"
    return begun if revision is None else f"{begun}{WANTED_REVISION}{revision}"


class Echo(NamedTuple):
    """Parts of a request that its answer must repeat."""

    request_id: str
    """The request's id, which begins its header `x-correlation-id`."""
    is_required: bool
    """False where the server may be another program than a RewardPool's worker, which repeats nothing."""
    tokenizer: str | None = None
    """Digest of the tokenizer that wrote the sample's token ids; None where any model may score it."""
    revision: str | None = None
    """The one revision that may answer; None where any may."""

    @property
    def header(self) -> str:
        """Value of the request's header, which the answer repeats."""
        return request_header(self.request_id, self.revision)


class AnsweringWorker(NamedTuple):
    """The worker that answered; None is what it does not say."""

    name: str | None = None
    seconds: float | None = None
    """Of its work on the request; what a function's call waited for a place is not in it."""
    ready_seconds: float | None = None
    """Since it was ready to score."""


class Signature(NamedTuple):
    """Whose an answer is; None is what a server does not say."""

    revision: str | None
    tokenizer: str | None
    said_of_worker: object = None
    """As it was sent."""

    @property
    def worker(self) -> AnsweringWorker:
        """Who answered. It is for people, so what cannot be read is left out; read when it is asked for."""
        return _worker(self.said_of_worker)


def other_wire(*, trainer: object, worker: object) -> str:
    """Return the error for two ends of different versions, with what to do."""
    return (
        f"the trainer speaks version {trainer!r:.20} of the wire contract and the worker version {worker!r:.20}:"
        " install the pool's version of rewardpool for the trainer, or upgrade the pool"
    )


class OtherRevisionError(ValueError):
    """The answer of another revision than the one that may answer; `found` is its name, None where it says none."""

    def __init__(self, wanted: str, found: str | None) -> None:
        super().__init__(wanted, found)
        self.wanted = wanted
        self.found = found

    def __str__(self) -> str:
        return f"revision {self.found} answered, and revision {self.wanted} is to score this"


class OtherTokenizerError(ValueError):
    """The answer of a model whose tokenizer is not the one that wrote the sample, which read other words than those."""

    def __init__(self, signature: Signature) -> None:
        super().__init__(signature)
        self.signature = signature


@dataclass(frozen=True, kw_only=True)
class CallerError:
    """The `error` object of an answer: the worker refuses the request, and another worker would too.

    Attributes:
        code: The kind of refusal.
        message: In words.
        fault: Default: that of the code.
        length_tokens: Of a sample that is too long; None where the worker does not know.
        limit_tokens: Of the model; None where the worker does not know.
        served: The model that the worker serves, for `wrong_model`.
    """

    code: CallerErrorCode
    message: str
    fault: Fault | None = None
    length_tokens: int | None = None
    limit_tokens: int | None = None
    served: str | None = None

    @property
    def decided_fault(self) -> Fault:
        """The fault, or that of the code."""
        return self.fault or FAULT_OF_CODE[self.code]

    def to_wire(self) -> dict[str, Any]:
        """The whole answer body that carries this error."""
        fields = {**vars(self), "fault": self.decided_fault}
        error = {key: value for key, value in fields.items() if value is not None}
        return {"object": "list", "data": [], "error": error}


def parse_answer(body: bytes | str, *, count: int, adapter: str | None = None) -> list[float] | CallerError:
    """Read the scores out of an answer; raises what `parse_object` and `scores_in` do."""
    return scores_in(parse_object(body), count=count, adapter=adapter)


def parse_object(body: bytes | str) -> dict[str, Any]:
    """Read the JSON object that an answer's body is.

    Raises:
        InvalidResponseError: it is something else.
    """
    import orjson  # engines' images, where this module is for its names, need not have it

    try:
        answer = orjson.loads(body)
    except ValueError:
        answer = _lenient(body)
    if not isinstance(answer, dict):
        raise InvalidResponseError(f"the answer is a JSON {type(answer).__name__}, not an object")
    return answer


def _lenient(body: bytes | str) -> Any:
    """Read what orjson refuses and Python writes, such as NaN, so that its place can be named."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as broken:
        raise InvalidResponseError(f"the answer is not JSON: {broken}") from None


def signature_in(answer: dict[str, Any], echo: Echo) -> Signature:
    """Return whose an answer is.

    Raises:
        InvalidResponseError: the answer is of another version of the contract or to another request, or lacks what a
            worker of RewardPool says.
        OtherRevisionError: another revision answered than the one that may.
        OtherTokenizerError: the model that answered took the sample's token ids for other words.
    """
    if (wire := answer.get("wire", 1 if echo.is_required else WIRE_VERSION)) != WIRE_VERSION:
        raise InvalidResponseError(other_wire(trainer=WIRE_VERSION, worker=wire))
    request_id, revision, tokenizer = answer.get("request_id"), answer.get("revision"), answer.get("tokenizer")
    if request_id != echo.header and (request_id is not None or echo.is_required):
        if request_id is None:
            raise InvalidResponseError(
                f"the answer does not repeat the request's {REQUEST_ID_HEADER}: no worker of the pool sent it, or"
                " something between trainer and router removes that header"
            )
        raise InvalidResponseError(
            f"the answer is to the request {request_id!r:.80}, and this is {echo.header}: something between trainer"
            " and worker sends answers to the wrong requests"
        )
    if not (revision is None or (isinstance(revision, str) and revision)) or (echo.is_required and revision is None):
        raise InvalidResponseError(f"the answer's revision is {revision!r:.80}, not that of a worker")
    if not (tokenizer is None or isinstance(tokenizer, str)):
        raise InvalidResponseError(f"the answer's tokenizer is {tokenizer!r:.80}, not a digest")
    signature = Signature(revision, tokenizer, answer.get("worker"))
    if echo.revision is not None and revision != echo.revision:
        raise OtherRevisionError(echo.revision, revision)
    if echo.tokenizer is not None and tokenizer is not None and tokenizer != echo.tokenizer:
        raise OtherTokenizerError(signature)
    return signature


def _worker(said: object) -> AnsweringWorker:
    if not isinstance(said, dict):
        return AnsweringWorker()
    name, seconds, ready = said.get("name"), _finite(said.get("seconds")), _finite(said.get("ready_seconds"))
    is_name = isinstance(name, str) and 0 < len(name) <= MOST_WORKER_NAME and name.isprintable()
    return AnsweringWorker(
        name if is_name else None,
        None if seconds is None else max(0.0, seconds),
        None if ready is None else max(0.0, ready),
    )


def scores_in(answer: dict[str, Any], *, count: int, adapter: str | None = None) -> list[float] | CallerError:
    """Read the scores out of an answer.

    Args:
        answer: the response of a 200.
        count: how many samples were sent.
        adapter: the adapter that was asked for; the answer has to name it, or something else scored.

    Returns:
        `count` finite floats in the order of the input, those with steps or info as `DetailedScore`; or the error
        object of the answer.

    Raises:
        InvalidResponseError: another shape, another number of items, an item that is not one finite number, or scores
            of another model than the adapter.
    """
    if (refusal := refusal_in(answer)) is not None:
        return refusal
    if adapter is not None and answer.get("model") != adapter:
        raise InvalidResponseError(f"the adapter {adapter} was asked for, and {answer.get('model')!r:.100} scored")
    data = answer.get("data")
    if not isinstance(data, list) or len(data) != count:
        found = len(data) if isinstance(data, list) else "no list"
        raise InvalidResponseError(f"the answer has {found} in `data`, {count} samples were sent")
    scores: dict[int, float] = {}
    for position, item in enumerate(data):
        index = item.get("index", position) if isinstance(item, dict) else position
        if type(index) is not int or not 0 <= index < count:
            raise InvalidResponseError(f"data[{position}].index is {index!r}, not one of 0 to {count - 1}")
        scores[index] = _score(item, position)
    if len(scores) != count:
        raise InvalidResponseError(f"the answer has the indexes {sorted(scores)}, not each of 0 to {count - 1} once")
    return [scores[index] for index in range(count)]


def refusal_in(answer: dict[str, Any]) -> CallerError | None:
    """Return the error object of an answer; None where it has none.

    Raises:
        InvalidResponseError: its error is something else.
    """
    error = answer.get("error")
    if error is not None and not isinstance(error, dict):
        raise InvalidResponseError(f"the answer's error is {error!r:.300}, not an object")
    return None if error is None else _caller_error(error)


def _score(item: object, position: int) -> float:
    embedding = item.get("embedding") if isinstance(item, dict) else None
    if not isinstance(item, dict) or not isinstance(embedding, list):
        raise InvalidResponseError(f"data[{position}].embedding is not a list with one number")
    if len(embedding) != 1:
        raise InvalidResponseError(
            f"data[{position}].embedding has {len(embedding)} numbers, a score is exactly one: the engine serves no "
            "reward model with one label (declare spec.model.head), or no worker of RewardPool answered"
        )
    score = _finite(embedding[0])
    if score is None:
        raise InvalidResponseError(f"data[{position}].embedding is [{embedding[0]!r:.40}], not one finite number")
    steps, info = item.get("steps"), item.get("info")
    if steps is None and info is None:
        return score
    if not isinstance(info, dict | None):
        raise InvalidResponseError(f"data[{position}].info is {info!r:.80}, not an object")
    return DetailedScore(score, steps=None if steps is None else _steps(steps, position), info=info)


def _steps(values: object, position: int) -> tuple[float, ...]:
    steps = [_finite(value) for value in values] if isinstance(values, list) else []
    known = tuple(value for value in steps if value is not None)
    if not known or len(known) != len(steps):
        raise InvalidResponseError(f"data[{position}].steps is {values!r:.80}, not a list of finite numbers")
    return known


def _finite(value: object) -> float | None:
    # bool is an int in Python; JSON's NaN and Infinity arrive as floats, and an int may be too large for one.
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _caller_error(error: dict[str, Any]) -> CallerError:
    code = error.get("code")
    if not isinstance(code, str) or code not in FAULT_OF_CODE:
        raise InvalidResponseError(f"the answer's error has the unknown code {code!r}: {error.get('message')}")
    fault, served = error.get("fault"), error.get("served")
    if fault is not None and fault not in FAULTS:
        raise InvalidResponseError(f"the answer's error has the unknown fault {fault!r:.40}: {error.get('message')}")
    return CallerError(
        code=code,  # type: ignore[arg-type]  # a key of that mapping
        message=str(error.get("message", "")),
        fault=fault,
        served=served if isinstance(served, str) else None,
        length_tokens=_tokens(error.get("length_tokens")),
        limit_tokens=_tokens(error.get("limit_tokens")),
    )


def _tokens(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
