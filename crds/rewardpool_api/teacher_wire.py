"""The wire of teachers: log-probabilities of given tokens, as arrays in one JSON body. Pure.

    POST /generate {"input_ids": [token id, ...],
                    "session_params": {"rewardpool": {"model": NAME, "start": 1, "top_k": 8}}}
    -> {"model": NAME, "start": 1, "rows": n - 1, "top_k": 8, "ids_per_row": 0,
        "token_ids": INT32, "logprobs": FLOAT32, "top_ids": INT32, "top_logprobs": FLOAT32}

Of n token ids, position i has the log-probability of token i given tokens 0 to i - 1; token 0 has none. The answer has
a row for each position from `start` (at least 1) to n - 1: row r belongs to token `start + r`. No row is missing and
none is padded: there are n - start of them, or an error.

INT32 and FLOAT32 are base64 of little-endian numbers, row by row. `token_ids` repeats the tokens that the rows belong
to, and `logprobs` has their log-probabilities. With `top_k`, each row of `top_ids` and `top_logprobs` has the k most
likely tokens, the likeliest first. With `ids` (INT32, `ids_per_row` for each row), `ids_logprobs` has theirs.

`/generate` is the one route on which both routers hand token ids on, and `session_params` the one field of it in which
sglang-router keeps what it does not know. Without that field a request is in SGLang's own words, as slime, miles and
AReaL send it, and so is its answer: see `SglangWords`.

A worker refuses with the error object of `rewardpool_api.contract`, status 200, like every other refusal; an answer
repeats request id, revision and tokenizer as a score's does.

This file is mounted into the engines' images as it is: it needs the standard library of Python 3.10, and a worker's
check of an answer NumPy.
"""

import base64
import hashlib
import json
import math
import re
import sys
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

LOGPROBS_PATH = "/generate"
OWN_FIELD = "rewardpool"
"""Of `session_params`."""

INT32, FLOAT32 = "i", "f"
MAX_INT32 = 2**31 - 1
MOST_VALUES = 1 << 22
"""Of an answer, each a token id and its log-probability: 32,768 rows with 64 alternatives are half of that, 23 MB."""
DEFAULT_TOP_K, MOST_TOP_K = 64, 1024
"""Of a pool that says nothing of it; of any pool."""
ANY_MODEL = "unknown"
"""The `model` of a request for the model that is there, as in `rewardpool_api.contract`."""

SUM_TOLERANCE = 1e-3
"""By which the probabilities of a row's most likely tokens may exceed 1: engines round each one to a float."""
ZERO_TOLERANCE = 1e-5
"""By which a log-probability may exceed 0, for the same reason."""
NO_PROBABILITY = -9999.0
"""What engines write for a token that cannot be; no model gives a token that little."""


class BadRequestError(ValueError):
    """A request that is not answered, whoever is asked; the text names the field, its value and what to do."""


class TooLongError(BadRequestError):
    """More tokens than the model takes."""

    def __init__(self, length: int, limit: int) -> None:
        super().__init__(f"input_ids has {length} tokens, and this teacher takes at most {limit}: send fewer")
        self.length_tokens = length
        self.limit_tokens = limit


class BadAnswerError(ValueError):
    """Log-probabilities that cannot be; the text names the row and the number."""


@dataclass(frozen=True)
class SequenceQuestion:
    """Question about one sequence.

    Attributes:
        token_ids: Of the whole sequence, int32, shape (n,).
        start: Position of the first row, at least 1.
        top_k: Most likely tokens of each row.
        ids: Further tokens of each row, int32, row by row; empty for none.
        ids_per_row: How many of those a row has.
        model: Who is to answer.
    """

    token_ids: "array[int]"
    start: int = 1
    top_k: int = 0
    ids: "array[int]" = field(default_factory=lambda: array(INT32))
    ids_per_row: int = 0
    model: str = ANY_MODEL

    @property
    def rows(self) -> int:
        return len(self.token_ids) - self.start

    @property
    def values(self) -> int:
        """Values of the answer, each a token id and its log-probability."""
        return self.rows * (1 + self.top_k + self.ids_per_row)

    @property
    def shapes(self) -> "dict[str, tuple[str, int]]":
        """The answer's arrays by their fields in `Values`: the numbers' type, and the count in a row."""
        return {
            "token_ids": (INT32, 1),
            "logprobs": (FLOAT32, 1),
            "top_ids": (INT32, self.top_k),
            "top_logprobs": (FLOAT32, self.top_k),
            "ids_logprobs": (FLOAT32, self.ids_per_row),
        }

    @property
    def most_answer_bytes(self) -> int:
        """Size of the answer's body: eight bytes a value in base64, and the words around them."""
        return 4096 + 11 * self.values

    def to_wire(self) -> dict[str, Any]:
        """The request's JSON."""
        own: dict[str, Any] = {"model": self.model, "start": self.start, "top_k": self.top_k}
        if self.ids_per_row:
            own |= {"ids": to_base64(self.ids), "ids_per_row": self.ids_per_row}
        return {"input_ids": self.token_ids.tolist(), "session_params": {OWN_FIELD: own}}


@dataclass(frozen=True)
class Values:
    """An answer's numbers, row by row; what was not asked is empty."""

    token_ids: "array[int]"
    logprobs: "array[float]"
    top_ids: "array[int]" = field(default_factory=lambda: array(INT32))
    top_logprobs: "array[float]" = field(default_factory=lambda: array(FLOAT32))
    ids_logprobs: "array[float]" = field(default_factory=lambda: array(FLOAT32))


# The question.


def question(
    token_ids: Any, *, start: int = 1, top_k: int = 0, ids: Any = None, model: str = ANY_MODEL, path: str = ""
) -> SequenceQuestion:
    """Make a question of what a caller has: sequences, or arrays and tensors of whole numbers.

    Args:
        token_ids: Of the whole sequence; shape (n,).
        start: Position of the first row.
        top_k: Most likely tokens of each row.
        ids: Further tokens of each row; shape (n - start, m).
        model: Who is to answer.
        path: In front of the fields' names in messages.

    Raises:
        BadRequestError: These are no token ids, or not of these shapes.
    """
    tokens = _token_ids(token_ids, f"{path}token_ids")
    _whole(start, f"{path}start")
    _whole(top_k, f"{path}top_k")
    if ids is None:
        return SequenceQuestion(tokens, start, top_k, model=model)
    rows = _listed(ids)
    if not isinstance(rows, Sequence) or not all(isinstance(_listed(row), Sequence) for row in rows):
        raise BadRequestError(f"{path}ids must be a list of token ids for each row, not {ids!r:.60}")
    lists = [_token_ids(row, f"{path}ids[{place}]") for place, row in enumerate(rows)]
    width = len(lists[0]) if lists else 0
    for place, row in enumerate(lists):
        if len(row) != width or not width:
            raise BadRequestError(
                f"{path}ids[{place}] has {len(row)} token ids and ids[0] {width}: give each row the same number, at"
                " least 1"
            )
    if len(lists) != (wanted := len(tokens) - start):
        raise BadRequestError(
            f"{path}ids has {len(lists)} rows, and there are {wanted} positions from start {start} to"
            f" {len(tokens) - 1}: give one row for each"
        )
    flat = array(INT32)
    for row in lists:
        flat.extend(row)
    return SequenceQuestion(tokens, start, top_k, flat, width, model)


def _listed(values: Any) -> Any:
    """An array or a tensor as a list; anything else as it is."""
    return values.tolist() if hasattr(values, "tolist") else values


def _token_ids(values: Any, name: str) -> "array[int]":
    if isinstance(values, array) and values.typecode == INT32:
        return values
    listed = _listed(values)
    if not isinstance(listed, Sequence) or isinstance(listed, (str, bytes)):
        raise BadRequestError(f"{name} must be a list of token ids, not {values!r:.60}")
    # By type: bool is an int in Python, and 1.0 equals 1.
    if {*map(type, listed)} - {int}:
        place = next(place for place, one in enumerate(listed) if type(one) is not int)
        raise BadRequestError(f"{name}[{place}] is {listed[place]!r:.40}, not a whole number")
    if listed and not (min(listed) >= 0 and max(listed) <= MAX_INT32):
        place = next(place for place, one in enumerate(listed) if not 0 <= one <= MAX_INT32)
        raise BadRequestError(f"{name}[{place}] is {listed[place]}, not a token id: those are 0 to {MAX_INT32}")
    return array(INT32, listed)


def _whole(value: object, name: str) -> int:
    if type(value) is not int:
        raise BadRequestError(f"{name} must be a whole number, not {value!r:.40}")
    return value


def check_question(
    asked: SequenceQuestion,
    *,
    vocabulary: int | None = None,
    most_tokens: int | None = None,
    most_top_k: int = MOST_TOP_K,
) -> None:
    """Refuse what no teacher of this size answers.

    Args:
        asked: The question.
        vocabulary: Tokens of the model; None where that is not known.
        most_tokens: Of a sequence; None where that is not known.
        most_top_k: Of the pool.

    Raises:
        BadRequestError: The text names the field and its bound.
    """
    length = len(asked.token_ids)
    if length < 2:
        raise BadRequestError(
            f"input_ids has {length} tokens: the first one has no log-probability, so send at least 2"
        )
    if most_tokens is not None and length > most_tokens:
        raise TooLongError(length, most_tokens)
    if not 1 <= asked.start < length:
        raise BadRequestError(
            f"start is {asked.start}, and must be 1 to {length - 1}: token 0 has no log-probability, and there are"
            f" {length} tokens"
        )
    tokens = MAX_INT32 if vocabulary is None else vocabulary
    for name, value, bound in (
        ("top_k", asked.top_k, min(most_top_k, tokens)),
        ("ids_per_row", asked.ids_per_row, tokens),
    ):
        if not 0 <= value <= bound:
            raise BadRequestError(f"{name} is {value}, and this teacher gives 0 to {bound} tokens a row")
    if len(asked.ids) != asked.rows * asked.ids_per_row:
        raise BadRequestError(
            f"ids has {len(asked.ids)} token ids, not {asked.ids_per_row} for each of {asked.rows} rows"
        )
    if asked.values > MOST_VALUES:
        raise BadRequestError(
            f"{asked.rows} rows with top_k {asked.top_k} and {asked.ids_per_row} ids are {asked.values} values, and one"
            f" answer has at most {MOST_VALUES}: ask fewer tokens a row, or raise start"
        )
    if vocabulary is not None:
        for name, ids in (("input_ids", asked.token_ids), ("ids", asked.ids)):
            if ids and (max(ids) >= vocabulary or min(ids) < 0):
                place = next(place for place, one in enumerate(ids) if not 0 <= one < vocabulary)
                raise BadRequestError(
                    f"{name}[{place}] is {ids[place]}, and the model has the tokens 0 to {vocabulary - 1}"
                )


_OWN = {"model", "start", "top_k", "ids", "ids_per_row"}


def parse_request(body: bytes) -> "tuple[SequenceQuestion, SglangWords | None]":
    """Read a request, as a worker gets it; routers add fields with their defaults.

    Returns:
        The question; and None, or what an answer in SGLang's words needs to know beside it.

    Raises:
        BadRequestError: It is something else, or asks for what changes no log-probability, such as a temperature.
    """
    try:
        request = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadRequestError(f"the request is not JSON: {error}") from None
    if not isinstance(request, dict):
        raise BadRequestError("the request is not a JSON object")
    session = request.get("session_params")
    if not isinstance(session, dict) or OWN_FIELD not in session:
        return parse_sglang(request)
    own = session[OWN_FIELD]
    if not isinstance(own, dict):
        raise BadRequestError(f"session_params.{OWN_FIELD} must be an object, not {own!r:.40}")
    if unknown := sorted(map(str, own.keys() - _OWN)):
        raise BadRequestError(f"session_params.{OWN_FIELD} has the unknown field {unknown[0]!r:.40}")
    refuse_other_inputs(request)
    refuse_sampling(request.get("sampling_params"))
    model = _text(own.get("model", ANY_MODEL), "model")
    ids, width = array(INT32), _whole(own.get("ids_per_row", 0), "ids_per_row")
    if "ids" in own:
        try:
            ids = from_base64(own["ids"], INT32)
        except BadAnswerError as error:
            raise BadRequestError(f"ids is {error}") from None
    if len(ids) != 0 and width < 1:
        raise BadRequestError(f"ids_per_row is {width}, and must be at least 1 where there are ids")
    asked = SequenceQuestion(
        _token_ids(request.get("input_ids"), "input_ids"),
        _whole(own.get("start", 1), "start"),
        _whole(own.get("top_k", 0), "top_k"),
        ids,
        width,
        model,
    )
    return asked, None


def _text(value: object, name: str) -> str:
    if not isinstance(value, str):
        raise BadRequestError(f"{name} must be a text, not {value!r:.40}")
    return value


def refuse_other_inputs(request: Mapping[str, Any]) -> None:
    """Refuse what an answer would not follow, of any words."""
    for name in ("text", "image_data", "lora_path", "custom_logit_processor"):
        if request.get(name):
            raise BadRequestError(f"{name} must not be set: a teacher takes token ids in input_ids alone")
    if request.get("stream"):
        raise BadRequestError("stream must be false: the answer is one body")


def refuse_sampling(sampling: object, *, temperatures: tuple[int, ...] = (1,), path: str = "sampling_params.") -> None:
    """Refuse what the answer would not follow: it is of the model's own distribution, and nothing is generated.

    Args:
        sampling: The parameters; None for none.
        temperatures: That are taken: engines' clients say 0 where nothing is to be sampled.
        path: In front of the fields' names in messages.

    Raises:
        BadRequestError: The text names the parameter.
    """
    if sampling is None:
        return
    if not isinstance(sampling, dict):
        raise BadRequestError(f"sampling_params must be an object, not {sampling!r:.40}")
    temperature = sampling.get("temperature")
    if temperature is not None and (isinstance(temperature, bool) or temperature not in temperatures):
        raise BadRequestError(
            f"{path}temperature is {temperature!r:.20}, and must be {' or '.join(map(str, temperatures))}: no engine"
            " applies it to the log-probabilities of given tokens; scale them in the trainer"
        )
    # 0 and -1 stand for "none" in one engine or another.
    plain = {"top_p": (1,), "top_k": (-1, 0), "min_p": (0,), "repetition_penalty": (1,), "n": (1,)}
    changing = {"logit_bias", "bad_words", "allowed_token_ids", "custom_params", "truncate_prompt_tokens"}
    for name, value in sampling.items():
        if not value or (name in plain and not isinstance(value, bool) and value in plain[name]):
            continue
        if name in plain or name in changing or str(name).endswith("_penalty"):
            raise BadRequestError(
                f"{path}{name} is {value!r:.40}, and must not be set: log-probabilities of given tokens do not follow"
                " it"
            )


# SGLang's words.


@dataclass(frozen=True)
class SglangWords:
    """Facts for an answer in SGLang's form, beside the question.

    Attributes:
        start: `logprob_start_len`: position of the first item. Of token 0 the item has no number; SGLang has none of
            the first item of any start, and here each position behind token 0 has its own.
        ids: How many token ids each row asked for, as rows may ask for different numbers of them; None where none
            were asked for.
        request_id: `rid`, which the answer repeats.
    """

    start: int = 0
    ids: tuple[int, ...] | None = None
    request_id: str | None = None

    def reworded(self, problem: str) -> str:
        """A problem with the question, by the names of SGLang's fields."""
        return renamed(problem, _IN_SGLANG)


def renamed(problem: str, names: Mapping[str, str]) -> str:
    """A problem that begins with a field's name, by the field's name in other words."""
    field_name = re.match(r"\w*", problem)[0]  # type: ignore[index] # it matches any text
    return names.get(field_name, field_name) + problem[len(field_name) :]


_IN_SGLANG = {
    "start": "logprob_start_len",
    "top_k": "top_logprobs_num",
    "ids": "token_ids_logprob",
    "ids_per_row": "token_ids_logprob",
}
_SGLANG_FIELDS = frozenset(
    {
        *("input_ids", "sampling_params", "return_logprob", "logprob_start_len", "top_logprobs_num", "model", "rid"),
        *("token_ids_logprob", "token_ids_logprob_positions"),
        # What routers add, or what changes no number.
        *("log_metrics", "no_logs", "background", "priority", "extra_key", "data_parallel_rank", "routing_key", "user"),
    }
)


def parse_sglang(request: Mapping[str, Any]) -> tuple[SequenceQuestion, SglangWords]:
    """Read a request for log-probabilities in SGLang's words.

    `token_ids_logprob_positions` is a list of token ids for each position, which only a patched SGLang knows.

    Raises:
        BadRequestError: It asks for something else, or has a field that the answer would not follow.
    """
    refuse_other_inputs(request)
    for name, value in request.items():
        if value and name not in _SGLANG_FIELDS:
            raise BadRequestError(
                f"{name} is {value!r:.40}, and must not be set: a teacher's answer does not follow it"
            )
    if request.get("return_logprob") is not True:
        raise BadRequestError(
            f"return_logprob is {request.get('return_logprob')!r:.20}, and must be true: a teacher gives the"
            " log-probabilities of given tokens, and generates nothing"
        )
    sampling = request.get("sampling_params")
    refuse_sampling(sampling, temperatures=(0, 1))
    new = (sampling or {}).get("max_new_tokens")
    if isinstance(new, bool) or new not in (0, 1):
        raise BadRequestError(
            f"sampling_params.max_new_tokens is {new!r:.20}, and must be 0: a teacher generates nothing"
        )
    tokens = _token_ids(request.get("input_ids"), "input_ids")
    start = request.get("logprob_start_len")
    if start is None or start == -1:
        raise BadRequestError(
            "logprob_start_len is not set: give the position of the first token, or 0 for all of them"
        )
    start = _whole(start, "logprob_start_len")
    if not 0 <= start < max(len(tokens), 1):
        raise BadRequestError(f"logprob_start_len is {start}, and must be 0 to {len(tokens) - 1}")
    first = max(start, 1)
    ids, widths = _sglang_ids(request, rows=len(tokens) - first)
    top_k = _whole(request.get("top_logprobs_num") or 0, "top_logprobs_num")
    model = _text(request.get("model") or ANY_MODEL, "model")
    rid = request.get("rid")
    asked = question(tokens, start=first, top_k=top_k, ids=ids or None, model=model)
    return asked, SglangWords(start, widths, rid if isinstance(rid, str) else None)


def _sglang_ids(request: Mapping[str, Any], *, rows: int) -> tuple[list[Any], tuple[int, ...] | None]:
    """Token ids of each row, filled up to one length, and how many of them each row asked for."""
    flat, by_position = request.get("token_ids_logprob"), request.get("token_ids_logprob_positions")
    if flat is not None and by_position is not None:
        raise BadRequestError("token_ids_logprob and token_ids_logprob_positions are both set: give one of them")
    if flat is not None:
        same = _token_ids(flat, "token_ids_logprob")
        return ([same] * rows if same else []), (len(same),) * rows
    if by_position is None:
        return [], None
    positions = len(request["input_ids"])
    if not isinstance(by_position, list) or len(by_position) != positions:
        given = f"{len(by_position)} lists" if isinstance(by_position, list) else repr(by_position)[:40]
        raise BadRequestError(
            f"token_ids_logprob_positions is {given}: give a list of token ids for each of {positions} tokens of"
            " input_ids"
        )
    lists = [
        _token_ids(one, f"token_ids_logprob_positions[{place}]")
        for place, one in enumerate(by_position[positions - rows :], start=positions - rows)
    ]
    width = max(map(len, lists), default=0)
    filled = [one + array(INT32, [one[0] if one else 0]) * (width - len(one)) for one in lists]
    return (filled if width else []), tuple(map(len, lists))


def sglang_answer(found: Values, asked: SequenceQuestion, words: SglangWords, *, echo: Mapping[str, Any]) -> bytes:
    """An answer in SGLang's words.

    It is made in pieces: one call of `json` for a long answer would let nothing else run for a second.
    """
    token_ids = asked.token_ids
    nothing = words.start == 0  # of token 0
    lists: dict[str, tuple[str, Iterable[Any]]] = {}
    own = ([logprob, token, None] for logprob, token in zip(found.logprobs, found.token_ids, strict=True))
    lists["input_token_logprobs"] = (f"[null,{token_ids[0]},null]", own)
    if k := asked.top_k:
        top = (_sglang_row(found.top_logprobs, found.top_ids, row * k, k) for row in range(asked.rows))
        lists["input_top_logprobs"] = ("null", top)
    if words.ids is not None:
        width = asked.ids_per_row
        further = (_sglang_row(found.ids_logprobs, asked.ids, row * width, n) for row, n in enumerate(words.ids))
        lists["input_token_ids_logprobs"] = ("null", further)
    meta: dict[str, Any] = {
        "id": words.request_id,
        "finish_reason": {"type": "length", "length": 0},
        "prompt_tokens": len(token_ids),
        "completion_tokens": 0,
        "cached_tokens": 0,
        "output_token_logprobs": [],
    }
    parts = [json.dumps({"text": "", "output_ids": [], **echo})[:-1], ',"meta_info":', json.dumps(meta)[:-1]]
    for name, (first, items) in lists.items():
        parts.append(f',"{name}":[')
        parts.append(",".join([first] * nothing + [*_pieces(items)]))
        parts.append("]")
    return "".join([*parts, "}}"]).encode()


def _sglang_row(logprobs: "array[float]", ids: "array[int]", first: int, count: int) -> list[list[Any]]:
    end = first + count
    return [[logprob, token, None] for logprob, token in zip(logprobs[first:end], ids[first:end], strict=True)]


def _pieces(items: Iterable[Any]) -> Iterable[str]:
    """The items of a JSON list, some at a time."""
    remaining = iter(items)
    while some := [*islice(remaining, 64)]:
        yield json.dumps(some, separators=(",", ":"))[1:-1]


# The answer.


def answer(
    found: Values, asked: SequenceQuestion, words: SglangWords | None, *, model: str, echo: Mapping[str, Any]
) -> bytes:
    """The body of an answer, in the words of the request; `echo` says whose answer it is."""
    if words is not None:
        return sglang_answer(found, asked, words, echo={"model": model, **echo})
    return json.dumps({**to_wire(found, asked, model=model), **echo}).encode()


def to_wire(found: Values, asked: SequenceQuestion, *, model: str) -> dict[str, Any]:
    """The answer's JSON."""
    said: dict[str, Any] = {
        "model": model,
        "start": asked.start,
        "rows": asked.rows,
        "top_k": asked.top_k,
        "ids_per_row": asked.ids_per_row,
        "token_ids": to_base64(found.token_ids),
        "logprobs": to_base64(found.logprobs),
    }
    if asked.top_k:
        said |= {"top_ids": to_base64(found.top_ids), "top_logprobs": to_base64(found.top_logprobs)}
    if asked.ids_per_row:
        said["ids_logprobs"] = to_base64(found.ids_logprobs)
    return said


def parse_values(answer: Mapping[str, Any], asked: SequenceQuestion) -> Values:
    """Read an answer that is no error; each row is there, and belongs to the token that was sent.

    Raises:
        BadAnswerError: It is the answer to another question, or has other shapes, or no finite numbers.
    """
    for name in ("start", "rows", "top_k", "ids_per_row"):
        if answer.get(name) != getattr(asked, name) or isinstance(answer.get(name), bool):
            raise BadAnswerError(
                f"the answer's {name} is {answer.get(name)!r:.40}, and {getattr(asked, name)} was asked"
            )

    def read(name: str, code: str, per_row: int) -> "array[Any]":
        if not per_row:
            return array(code)
        try:
            values = from_base64(answer.get(name), code)
        except BadAnswerError as error:
            raise BadAnswerError(f"the answer's {name} is {error}") from None
        if len(values) != asked.rows * per_row:
            raise BadAnswerError(
                f"the answer's {name} has {len(values)} values, not {per_row} for each of {asked.rows} rows"
            )
        return values

    found = Values(**{name: read(name, code, per_row) for name, (code, per_row) in asked.shapes.items()})
    _check_own(found, asked)
    for name in ("logprobs", "top_logprobs", "ids_logprobs"):
        _check_finite(name, getattr(found, name))
    return found


def check_values(found: Values, asked: SequenceQuestion, *, vocabulary: int) -> None:
    """Refuse numbers that are no log-probabilities of this question, before they leave the worker.

    Raises:
        BadAnswerError: Another number of rows; a row of another token; a number that is not finite or above 0, or
            stands for none; an id beyond the vocabulary; a less likely token before a likelier one; a token that is
            likelier than the most likely one; probabilities that sum to more than 1.
    """
    import numpy  # engines have it, trainers' clients need not

    rows, k = asked.rows, asked.top_k
    for name, (_, per_row) in asked.shapes.items():
        if len(getattr(found, name)) != rows * per_row:
            raise BadAnswerError(f"{len(getattr(found, name))} {name}, not {per_row} for each of {rows} rows")
    _check_own(found, asked)
    for name in ("logprobs", "top_logprobs", "ids_logprobs"):
        numbers = getattr(found, name)
        _check_finite(name, numbers)
        values = numpy.frombuffer(numbers, numpy.float32)
        wrong = (values > ZERO_TOLERANCE) | (values <= NO_PROBABILITY)
        if wrong.any():
            place = int(wrong.argmax())
            raise BadAnswerError(f"{name}[{place}] is {numbers[place]}, not a log-probability")
    if not k:
        return
    ids = numpy.frombuffer(found.top_ids, numpy.int32)
    wrong = (ids < 0) | (ids >= vocabulary)
    if wrong.any():
        place = int(wrong.argmax())
        raise BadAnswerError(f"top_ids[{place}] is {ids[place]}, and the model has {vocabulary} tokens")
    top = numpy.frombuffer(found.top_logprobs, numpy.float32).reshape(rows, k)
    is_rising = (top[:, :-1] < top[:, 1:]).any(axis=0)
    if is_rising.any():
        rank = int(is_rising.argmax()) + 1
        raise BadAnswerError(f"the token of rank {rank + 1} is likelier than that of rank {rank} in some row")
    if (numpy.frombuffer(found.logprobs, numpy.float32) > top[:, 0]).any():
        raise BadAnswerError("the token itself is likelier than the most likely one in some row")
    further = numpy.frombuffer(found.ids_logprobs, numpy.float32).reshape(rows, asked.ids_per_row)
    is_likelier = (further > top[:, :1]).any(axis=0)
    if is_likelier.any():
        place = int(is_likelier.argmax())
        raise BadAnswerError(f"the token of ids[:, {place}] is likelier than the most likely one in some row")
    largest = float(numpy.exp(top, dtype=numpy.float64).sum(axis=1).max())
    if largest > 1 + SUM_TOLERANCE:
        raise BadAnswerError(f"the probabilities of a row's {k} most likely tokens sum to {largest:.4f}")


def _check_own(found: Values, asked: SequenceQuestion) -> None:
    sent = asked.token_ids[asked.start :]
    if found.token_ids != sent:
        place = next(at for at in range(asked.rows) if found.token_ids[at] != sent[at])
        raise BadAnswerError(
            f"row {place} belongs to the token {found.token_ids[place]}, and token {asked.start + place} that was sent"
            f" is {sent[place]}"
        )


def _check_finite(name: str, numbers: "array[float]") -> None:
    # The upper byte of infinities and of what is not a number, and of numbers from 1.7e38 on.
    upper = _little_endian(numbers).tobytes()[3::4]
    if b"\x7f" in upper or b"\xff" in upper:
        place = next((at for at, one in enumerate(numbers) if not math.isfinite(one)), None)
        if place is not None:
            raise BadAnswerError(f"{name}[{place}] is {numbers[place]}, not a finite number")


# The vocabulary.


VOCABULARY_DIGEST: Final = r"^[0-9a-f]{16}$"
"""Form of a digest of a vocabulary."""


def vocabulary_digest(vocabulary: Mapping[str, int]) -> str:
    """A digest that is the same where each token id stands for the same token; of all tokens, special ones too."""
    listed = sorted((number, token) for token, number in vocabulary.items())
    return hashlib.sha256(json.dumps(listed).encode()).hexdigest()[:16]


def vocabulary_in(tokenizer: bytes, config: bytes | None) -> "dict[str, int]":
    """The vocabulary in a fast tokenizer's files, `tokenizer.json` and `tokenizer_config.json`.

    Raises:
        ValueError: They are not of that form.
    """
    try:
        said = json.loads(tokenizer)
        found = said["model"]["vocab"]
        vocabulary = {one[0]: number for number, one in enumerate(found)} if isinstance(found, list) else dict(found)
        vocabulary |= {one["content"]: one["id"] for one in said.get("added_tokens") or ()}
        added = json.loads(config).get("added_tokens_decoder") if config else None
        vocabulary |= {one["content"]: int(number) for number, one in (added or {}).items()}
    except (LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"tokenizer.json has no vocabulary: {type(error).__name__}: {error}") from None
    return vocabulary


# Arrays.


def to_base64(values: "array[Any]") -> str:
    """An array as the wire has it."""
    return base64.b64encode(_little_endian(values)).decode()


def from_base64(text: object, code: str) -> "array[Any]":
    """An array of the wire; `code` is INT32 or FLOAT32.

    Raises:
        BadAnswerError: It is none; the text says what it is instead.
    """
    if not isinstance(text, str):
        raise BadAnswerError(f"{text!r:.40}, not base64")
    try:
        raw = base64.b64decode(text, validate=True)
    except ValueError as error:
        raise BadAnswerError(f"not base64 ({error})") from None
    values = array(code)
    if len(raw) % values.itemsize:
        raise BadAnswerError(f"{len(raw)} bytes, not {values.itemsize} for each value")
    values.frombytes(raw)
    return _little_endian(values)


def _little_endian(values: "array[Any]") -> "array[Any]":
    """The same where this machine's numbers are little-endian already, which is all that engines run on."""
    if sys.byteorder == "little":
        return values
    turned = values[:]
    turned.byteswap()
    return turned


def columns_of(flat: "Iterable[Any]", code: str, per_row: int) -> "list[array[Any]]":
    """The columns of a table that is given row by row."""
    values = array(code, flat)
    return [values[place::per_row] for place in range(per_row)]


def table_of(columns: "Sequence[array[Any]]", code: str) -> "array[Any]":
    """A table row by row, of columns that are all of one length."""
    width = len(columns)
    values = array(code, bytes(array(code).itemsize * width * len(columns[0]))) if columns else array(code)
    for place, column in enumerate(columns):
        values[place::width] = column
    return values
