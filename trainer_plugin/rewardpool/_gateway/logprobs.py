"""Log-probabilities of given tokens in vLLM's words, answered from a teacher; data in, data out.

POST /v1/completions         {"prompt": [token id, ...] or a list of those, "max_tokens": 1, "prompt_logprobs": k}
                          -> {"choices": [{"prompt_logprobs": [null, {TOKEN: {"logprob": ..., "rank": ...}}, ...]}]}
POST /inference/v1/generate  {"token_ids": [token id, ...], "sampling_params": {"max_tokens": 1, "prompt_logprobs": k}}
                          -> {"prompt_logprobs": [...], "choices": [...]}

TRL, and AReaL with vLLM, send the first one, prime-rl and SkyRL the second. Nothing is generated, so a choice has no
text and no tokens. A position has the token itself first and then ranks 1 to k, as vLLM writes them: prime-rl and AReaL
take the first one for the token's own. Its rank, where it is not among the k, is k + 1, the least that it can be: TRL
sorts by rank and keeps k.

`/generate`, in SGLang's words, is `rewardpool_api.teacher_wire`'s.
"""

import json
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rewardpool_api.teacher_wire import (
    MOST_VALUES,
    BadRequestError,
    SequenceQuestion,
    Values,
    question,
    refuse_sampling,
    renamed,
)

COMPLETIONS: Final = "/v1/completions"
TOKENS: Final = "/inference/v1/generate"
MAX_SEQUENCES: Final = 4096

_SAMPLING = frozenset(
    {
        *("max_tokens", "prompt_logprobs", "temperature"),
        # Refused where they would change a number.
        *("n", "top_p", "top_k", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty"),
        # Of tokens that are generated, or of how an engine works.
        *("logprobs", "seed", "stop", "stop_token_ids", "ignore_eos", "min_tokens", "include_stop_str_in_output"),
        *("detokenize", "skip_special_tokens", "spaces_between_special_tokens", "output_kind"),
        *("skip_reading_prefix_cache", "flat_logprobs"),
    }
)
_ABOUT = frozenset({"model", "user", "request_id", "priority", "cache_salt", "stream_options"})
_COMPLETIONS_FIELDS = _SAMPLING | _ABOUT | {"prompt", "echo", "add_special_tokens", "return_tokens_as_token_ids"}
_TOKENS_FIELDS = _ABOUT | {"token_ids", "sampling_params"}


@dataclass(frozen=True)
class PromptLogprobs:
    """A question: the log-probabilities of each sequence's tokens and of the k most likely tokens.

    Attributes:
        sequences: A question for each.
        model: Who is to answer; None for whoever is there.
        names: What messages about a question call its fields.
    """

    sequences: Sequence[SequenceQuestion]
    model: str | None
    names: Mapping[str, str]

    def reworded(self, problem: str) -> str:
        return renamed(problem, self.names)


def parse_completions(body: bytes) -> PromptLogprobs:
    """Read a request to `/v1/completions`. Raises BadRequestError where it asks for anything but log-probabilities."""
    request = _object(body)
    _refuse_fields(request, _COMPLETIONS_FIELDS, path="")
    prompt = request.get("prompt")
    if not isinstance(prompt, list) or not prompt:
        raise BadRequestError(f"prompt is {prompt!r:.40}: give token ids, or a list of lists of them")
    several = isinstance(prompt[0], list)
    if several and len(prompt) > MAX_SEQUENCES:
        raise BadRequestError(f"prompt has {len(prompt)} sequences, and one request may have {MAX_SEQUENCES}")
    top_k = _top_k(request, path="")
    sequences = [
        question(one, top_k=top_k, path=f"prompt[{index}]: " if several else "prompt: ")
        for index, one in enumerate(prompt if several else [prompt])
    ]
    # The bound of one sequence's is the teacher's to say.
    if several and (values := sum(one.values for one in sequences)) > MOST_VALUES:
        raise BadRequestError(
            f"prompt has {len(sequences)} sequences with prompt_logprobs {top_k}, which are {values} values, and one"
            f" request may have at most {MOST_VALUES}: send fewer sequences in each"
        )
    return PromptLogprobs(sequences, _model(request), {"top_k": "prompt_logprobs", "input_ids": "prompt"})


def parse_tokens(body: bytes) -> PromptLogprobs:
    """Read a request to `/inference/v1/generate`. Raises BadRequestError as `parse_completions`."""
    request = _object(body)
    _refuse_fields(request, _TOKENS_FIELDS, path="")
    sampling = request.get("sampling_params")
    if not isinstance(sampling, dict):
        raise BadRequestError(f"sampling_params must be an object, not {sampling!r:.40}")
    path = "sampling_params."
    _refuse_fields(sampling, _SAMPLING, path=path)
    asked = question(request.get("token_ids"), top_k=_top_k(sampling, path=path))
    names = {"top_k": "sampling_params.prompt_logprobs", "input_ids": "token_ids"}
    return PromptLogprobs([asked], _model(request), names)


def completions_answer(found: Sequence[Values], asked: PromptLogprobs, *, model: str) -> bytes:
    """The answer of `/v1/completions`."""
    tokens = sum(len(one.token_ids) for one in asked.sequences)
    usage = {"prompt_tokens": tokens, "completion_tokens": 0, "total_tokens": tokens}
    said = {"id": f"cmpl-{uuid.uuid4().hex}", "object": "text_completion", "created": int(time.time())}
    parts = [json.dumps({**said, "model": model, "usage": usage})[:-1], ',"choices":[']
    for index, (values, one) in enumerate(zip(found, asked.sequences, strict=True)):
        choice = {"index": index, "text": "", "logprobs": None, "finish_reason": "length", "stop_reason": None}
        parts += [*("," * (index > 0)), json.dumps(choice)[:-1], ',"prompt_logprobs":', _positions(values, one), "}"]
    return "".join([*parts, "]}"]).encode()


def tokens_answer(found: Sequence[Values], asked: PromptLogprobs, *, model: str) -> bytes:
    """The answer of `/inference/v1/generate`."""
    choice: dict[str, Any] = {"index": 0, "logprobs": None, "finish_reason": "length", "token_ids": []}
    said = {"request_id": uuid.uuid4().hex, "model": model, "choices": [choice], "kv_transfer_params": None}
    positions = _positions(found[0], asked.sequences[0])
    return "".join([json.dumps(said)[:-1], ',"prompt_logprobs":', positions, "}"]).encode()


def _positions(found: Values, asked: SequenceQuestion) -> str:
    """JSON of all positions. Written by hand: an object for each token would take ten times the memory."""
    return "[" + ",".join(["null", *_rows(found, asked.top_k)]) + "]"


def _rows(found: Values, k: int) -> Iterator[str]:
    for row, (token, logprob) in enumerate(zip(found.token_ids, found.logprobs, strict=True)):
        first = row * k
        ids = found.top_ids[first : first + k]
        rank = ids.index(token) + 1 if token in ids else k + 1 if k else "null"
        entries = [_entry(token, logprob, rank)]
        entries += [
            _entry(other, found.top_logprobs[first + place], place + 1)
            for place, other in enumerate(ids)
            if other != token
        ]
        yield "{" + ",".join(entries) + "}"


def _entry(token: int, logprob: float, rank: int | str) -> str:
    return f'"{token}":{{"logprob":{logprob!r},"rank":{rank},"decoded_token":null}}'


def _object(body: bytes) -> dict[str, Any]:
    try:
        request = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadRequestError(f"the request is not JSON: {error}") from None
    if not isinstance(request, dict):
        raise BadRequestError("the request is not a JSON object")
    return request


def _refuse_fields(fields: Mapping[str, Any], known: frozenset[str], *, path: str) -> None:
    for name, value in fields.items():
        if value and name not in known:
            raise BadRequestError(f"{path}{name} is {value!r:.40}, and must not be set: a teacher does not follow it")


def _top_k(sampling: Mapping[str, Any], *, path: str) -> int:
    refuse_sampling(sampling, temperatures=(0, 1), path=path)
    new, k = sampling.get("max_tokens"), sampling.get("prompt_logprobs")
    if isinstance(new, bool) or new not in (0, 1):
        raise BadRequestError(f"{path}max_tokens is {new!r:.20}, and must be 0 or 1: a teacher generates nothing")
    if type(k) is not int or k < 0:
        raise BadRequestError(
            f"{path}prompt_logprobs is {k!r:.20}: give the number of most likely tokens of each position, at least 0"
        )
    return k


def _model(request: Mapping[str, Any]) -> str | None:
    model = request.get("model")
    if model is not None and not isinstance(model, str):
        raise BadRequestError(f"model must be a text, not {model!r:.40}")
    return model
