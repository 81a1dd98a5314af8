"""Requests for log-probabilities to a teacher's engine: vLLM in its own process, SGLang by its own route.

Measured with vLLM 0.32 and SGLang 0.5.23. vLLM's own route makes an object of each log-probability and writes JSON of
it on the loop that answers `/health` too, which 8,192 rows with 64 alternatives keep from answering for seconds: the
routers would take the worker out. Asked in process for its flat lists, it gives the same numbers and blocks nothing.
SGLang's route has a flat form of the most likely tokens, and its nested one for the rest.

Both give every row, from the first token on, whatever `start` is: behind a prefix that SGLang has in its cache, it
gives other numbers. What is below `start` is left out here.
"""

import asyncio
import json
import uuid
from array import array
from collections.abc import Mapping
from typing import Any

from rewardpool_api.teacher_wire import (
    FLOAT32,
    INT32,
    BadAnswerError,
    BadRequestError,
    SequenceQuestion,
    Values,
    columns_of,
    from_base64,
    table_of,
)
from rewardpool_worker.engine_side.middleware.asgi import DisconnectedError, Receive, Scope, unless_disconnected

# Rows times different ids of a question to SGLang, which has one list of ids for all rows.
MOST_UNION = 1 << 20


async def ask_vllm(scope: Scope, receive: Receive, asked: SequenceQuestion) -> Values:
    """Ask the engine of this process; the request is aborted when the caller disconnects.

    Raises:
        BadRequestError: vLLM refuses the request, or has no log-probabilities of given ids.
        BadAnswerError: There are other rows than those of the question.
        DisconnectedError: The caller closed its connection.
    """
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    if asked.ids_per_row:
        raise BadRequestError(
            "ids must not be set: vllm has no log-probabilities of given ids here; ask top_k, or serve this teacher"
            " with spec.engine.name sglang"
        )
    sampling = SamplingParams(
        max_tokens=1,
        temperature=0.0,
        prompt_logprobs=asked.top_k,
        flat_logprobs=True,
        detokenize=False,
        output_kind=RequestOutputKind.FINAL_ONLY,
    )
    engine = scope["app"].state.engine_client
    prompt = {"prompt_token_ids": asked.token_ids.tolist()}

    async def generate() -> Any:
        last = None
        async for output in engine.generate(prompt, sampling, f"teacher-{uuid.uuid4().hex}"):
            last = output
        return last

    try:
        output = await unless_disconnected(generate(), receive)
    except ValueError as error:  # vLLM's own are of this kind
        raise BadRequestError(f"vllm refuses the request: {error}") from None
    except DisconnectedError:
        raise
    except Exception as error:
        raise BadAnswerError(f"vllm failed with {type(error).__name__}: {error}") from error
    flat = getattr(output, "prompt_logprobs", None)
    if flat is None:
        raise BadAnswerError("vllm ended the request without log-probabilities")
    return await asyncio.to_thread(of_vllm, flat, asked)


def of_vllm(flat: Any, asked: SequenceQuestion) -> Values:
    """The rows of vLLM's flat lists; pure.

    Args:
        flat: A `vllm.logprobs.FlatLogprobs`: nothing for token 0, then for each token itself and ranks 1 to k.

    Raises:
        BadAnswerError: They are not of this form.
    """
    width, rows = asked.top_k + 1, len(asked.token_ids) - 1
    sizes = len(flat.start_indices), len(flat.token_ids), len(flat.logprobs)
    if sizes != (rows + 1, rows * width, rows * width) or flat.end_indices[0] != 0:
        raise BadAnswerError(
            f"vllm has {sizes[0]} positions with {sizes[2]} log-probabilities in all, not {rows + 1} with {width} each"
            " but the first"
        )
    if flat.end_indices[1:] != [*range(width, (rows + 1) * width, width)]:
        raise BadAnswerError(f"vllm has positions with more or fewer log-probabilities than {width}")
    first = (asked.start - 1) * width
    try:
        ids = columns_of(flat.token_ids[first:], INT32, width)
        logprobs = columns_of(flat.logprobs[first:], FLOAT32, width)
    except (TypeError, OverflowError) as error:
        raise BadAnswerError(f"vllm has a value that is not a number: {error}") from None
    return Values(ids[0], logprobs[0], table_of(ids[1:], INT32), table_of(logprobs[1:], FLOAT32))


def to_sglang(asked: SequenceQuestion) -> dict[str, Any]:
    """The request to SGLang's `/generate`; pure.

    Raises:
        BadRequestError: The rows' ids are too many different ones.
    """
    request: dict[str, Any] = {
        "input_ids": asked.token_ids.tolist(),
        "sampling_params": {"max_new_tokens": 0},
        "return_logprob": True,
        "logprob_start_len": 0,
        "top_logprobs_num": asked.top_k,
    }
    if asked.top_k:
        request |= {"return_flat_raw_top_logprobs": True, "return_flat_raw_top_logprobs_b64": True}
    if asked.ids_per_row:
        union = sorted({*asked.ids})
        rows = len(asked.token_ids) - 1
        if len(union) * rows > MOST_UNION:
            raise BadRequestError(
                f"ids has {len(union)} different token ids over {rows} positions, and sglang computes each of them at"
                f" each position, at most {MOST_UNION} in all: ask fewer ids, a shorter sequence, or top_k"
            )
        request["token_ids_logprob"] = union
    return request


def of_sglang(body: bytes, asked: SequenceQuestion) -> Values:
    """The rows of SGLang's answer; pure.

    Raises:
        BadAnswerError: They are not of this form.
    """
    try:
        said = json.loads(body)["meta_info"]
        own = _own_of_sglang(said["input_token_logprobs"], asked)
        logprobs = array(FLOAT32, (item[0] for item in own))
        token_ids = array(INT32, (item[1] for item in own))
        top_ids, top_logprobs = _top_of_sglang(said, asked)
        further = _further_of_sglang(said["input_token_ids_logprobs"], asked) if asked.ids_per_row else _no_numbers()
    except BadAnswerError:
        raise
    except (ValueError, LookupError, TypeError, OverflowError) as error:
        raise BadAnswerError(f"sglang's answer holds no log-probabilities: {type(error).__name__}: {error}") from None
    return Values(token_ids, logprobs, top_ids, top_logprobs, further)


def _own_of_sglang(found: Any, asked: SequenceQuestion) -> "list[Any]":
    if len(found) != len(asked.token_ids):
        raise BadAnswerError(f"sglang has {len(found)} positions, not {len(asked.token_ids)}")
    return list(found[asked.start :])


def _top_of_sglang(said: Mapping[str, Any], asked: SequenceQuestion) -> "tuple[array[int], array[float]]":
    k, rows = asked.top_k, len(asked.token_ids) - 1
    if not k:
        return array(INT32), _no_numbers()
    shape, prefix = said["input_top_logprobs_shape"], said["input_top_logprobs_null_prefix"]
    if (shape, prefix) != ([rows, k], 1):
        raise BadAnswerError(f"sglang has most likely tokens of shape {shape} after {prefix}, not {[rows, k]} after 1")
    ids = from_base64(said["input_top_logprobs_idx_flat_b64"], INT32)
    logprobs = from_base64(said["input_top_logprobs_val_flat_b64"], FLOAT32)
    first = (asked.start - 1) * k
    return ids[first:], logprobs[first:]


def _further_of_sglang(found: Any, asked: SequenceQuestion) -> "array[float]":
    width = asked.ids_per_row
    values = _no_numbers()
    for row, items in enumerate(found[asked.start :]):
        by_id = {item[1]: item[0] for item in items}
        values.extend(array(FLOAT32, (by_id[one] for one in asked.ids[row * width : (row + 1) * width])))
    return values


def _no_numbers() -> "array[float]":
    return array(FLOAT32)
