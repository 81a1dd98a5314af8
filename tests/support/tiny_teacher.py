"""A teacher of fifty tokens without an engine: what it gives a sequence is a function of the tokens so far."""

import json
import math
import random
from array import array
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

from aiohttp import web

from rewardpool_api.teacher_wire import (
    FLOAT32,
    INT32,
    SequenceQuestion,
    Values,
    answer,
    parse_request,
    question,
    to_base64,
    to_wire,
)

VOCABULARY = 50


def logprobs_of(logits: list[float]) -> "array[float]":
    """In float32, none above 0."""
    largest = max(logits)
    total = largest + math.log(math.fsum(math.exp(one - largest) for one in logits))
    return array(FLOAT32, (min(one - total, 0.0) for one in logits))


def computed(asked: SequenceQuestion) -> Values:
    """The right answer to a question."""
    own, top_ids, top, further = array(FLOAT32), array(INT32), array(FLOAT32), array(FLOAT32)
    for row in range(asked.rows):
        before = asked.token_ids[: asked.start + row]
        chance = random.Random(str(before))
        logprobs = logprobs_of([chance.uniform(-10, 10) for _ in range(VOCABULARY)])
        best = sorted(range(VOCABULARY), key=lambda token, of=logprobs: -of[token])[: asked.top_k]
        own.append(logprobs[asked.token_ids[asked.start + row]])
        top_ids.extend(best)
        top.extend(logprobs[token] for token in best)
        further.extend(logprobs[one] for one in asked.ids[row * asked.ids_per_row : (row + 1) * asked.ids_per_row])
    return Values(asked.token_ids[asked.start :], own, top_ids, top, further)


def as_vllm(token_ids: list[int], k: int) -> Any:
    """What vLLM's engine gives: flat lists, of token 0 nothing, then of each the token itself and ranks 1 to k."""
    found = computed(question(token_ids, top_k=k))
    ids, logprobs = [], []
    for row in range(len(token_ids) - 1):
        ids += [found.token_ids[row], *found.top_ids[row * k : (row + 1) * k]]
        logprobs += [found.logprobs[row], *found.top_logprobs[row * k : (row + 1) * k]]
    ends = [0, *range(k + 1, (k + 1) * len(token_ids), k + 1)]
    return SimpleNamespace(token_ids=ids, logprobs=logprobs, start_indices=[0, *ends[:-1]], end_indices=ends)


def as_sglang(request: dict[str, Any]) -> dict[str, Any]:
    """What SGLang's `/generate` answers: nested lists, of which the first is null, and flat most likely tokens."""
    token_ids, k = request["input_ids"], request["top_logprobs_num"]
    union = request.get("token_ids_logprob")
    ids = [union] * (len(token_ids) - 1) if union else None
    found = computed(question(token_ids, top_k=k, ids=ids))
    own = zip(found.logprobs, found.token_ids, strict=True)
    said: dict[str, Any] = {"input_token_logprobs": [[None, token_ids[0], None], *([*one, None] for one in own)]}
    if k:
        said |= {
            "input_top_logprobs_shape": [len(token_ids) - 1, k],
            "input_top_logprobs_null_prefix": 1,
            "input_top_logprobs_idx_flat_b64": to_base64(found.top_ids),
            "input_top_logprobs_val_flat_b64": to_base64(found.top_logprobs),
        }
    if union:
        rows = [found.ids_logprobs[at : at + len(union)] for at in range(0, len(found.ids_logprobs), len(union))]
        said["input_token_ids_logprobs"] = [
            None,
            *([[value, one, None] for value, one in zip(row, union, strict=True)] for row in rows),
        ]
    return json.loads(json.dumps({"text": "", "meta_info": said}))


async def teaches(request: web.Request) -> web.Response:
    """The answer of this teacher, for a `FakeWorker`."""
    asked, words = parse_request(await request.read())
    body = answer(computed(asked), asked, words, model="teacher", echo={})
    return web.Response(body=body, content_type="application/json")


def spoilt(**fields: Any) -> Callable[[web.Request], Awaitable[web.Response]]:
    """An answer with other fields than this teacher's."""

    async def behaviour(request: web.Request) -> web.Response:
        asked, _ = parse_request(await request.read())
        return web.json_response({**to_wire(computed(asked), asked, model="teacher"), **fields})

    return behaviour
