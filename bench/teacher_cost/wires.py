"""An answer of a teacher by RewardPool's wire and by nested JSON: its bytes, and the time of either end. No engine.

Both begin with the flat lists that vLLM's engine gives to its own process. RewardPool's checks each answer at both
ends, the other at none. The nested one is vLLM's without the tokens' texts, read into arrays as TRL reads it.
"""

import json
import math
import random
import statistics
import time
from array import array
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, Final

import orjson

from rewardpool import Logprobs
from rewardpool._client.answer import read_logprobs
from rewardpool_api.contract import Echo
from rewardpool_api.teacher_wire import FLOAT32, INT32, SequenceQuestion, answer, check_values, question
from rewardpool_worker.engine_side.middleware.teacher_engines import of_vllm

VOCABULARY: Final = 152_000
NESTED: Final = ("json", "orjson")


def flat_lists(asked: SequenceQuestion) -> Any:
    """What vLLM's engine would give: of each position the token itself, and k tokens, the likeliest first."""
    chance = random.Random(3)
    k = asked.top_k
    ids, logprobs = [], []
    tops = sorted((-math.log(k + 1) - 12 * chance.random() for _ in range(k)), reverse=True)
    for token in asked.token_ids[1:]:
        shift = chance.random()
        ids += [token, *chance.sample(range(VOCABULARY), k)]
        logprobs += [tops[-1] - shift - 1, *(_float32(one - shift) for one in tops)]
    ends = [0, *range(k + 1, (k + 1) * len(asked.token_ids), k + 1)]
    return SimpleNamespace(token_ids=ids, logprobs=logprobs, start_indices=[0, *ends[:-1]], end_indices=ends)


def _float32(value: float) -> float:
    return array(FLOAT32, [value])[0]


def read_ours(body: bytes, asked: SequenceQuestion) -> Logprobs:
    """As the client does."""
    return read_logprobs(200, body, "s", echo=Echo(request_id="", is_required=False), asked=asked)


def write_nested(flat: Any, asked: SequenceQuestion, dump: Callable[[Any], bytes]) -> bytes:
    """The same as objects, a position after the other."""
    width = asked.top_k + 1
    ranks = [width, *range(1, width)]

    def position(first: int) -> dict[str, Any]:
        ids, logprobs = flat.token_ids[first : first + width], flat.logprobs[first : first + width]
        return {
            str(token): {"logprob": logprob, "rank": rank, "decoded_token": None}
            for token, logprob, rank in zip(ids, logprobs, ranks, strict=True)
        }

    positions = [None, *(position(first) for first in range(0, len(flat.token_ids), width))]
    return dump({"id": "cmpl-0", "object": "text_completion", "choices": [{"index": 0, "prompt_logprobs": positions}]})


def read_nested(
    body: bytes, asked: SequenceQuestion, load: Callable[[bytes], Any]
) -> tuple["array[float]", "array[int]", "array[float]"]:
    """Own log-probabilities, and ids and log-probabilities of the k most likely tokens, as arrays."""
    said = load(body)
    own, ids, logprobs = array(FLOAT32), array(INT32), array(FLOAT32)
    for token, position in zip(asked.token_ids[1:], said["choices"][0]["prompt_logprobs"][1:], strict=True):
        ranked = sorted(position.items(), key=lambda item: item[1]["rank"])[: asked.top_k]
        own.append(position[str(token)]["logprob"])
        ids.extend(int(one) for one, _ in ranked)
        logprobs.extend(-math.inf if math.isnan(entry["logprob"]) else entry["logprob"] for _, entry in ranked)
    return own, ids, logprobs


def sizes(positions: tuple[int, ...], ks: tuple[int, ...]) -> Iterator[SequenceQuestion]:
    """A question for each size."""
    chance = random.Random(5)
    for rows in positions:
        token_ids = [chance.randrange(VOCABULARY) for _ in range(rows + 1)]
        for k in ks:
            yield question(token_ids, top_k=k)


def ours(flat: Any, asked: SequenceQuestion) -> bytes:
    """A worker's answer, from the engine's lists to the body."""
    found = of_vllm(flat, asked)
    check_values(found, asked, vocabulary=VOCABULARY)
    return answer(found, asked, None, model="teacher", echo={"revision": "r"})


def measure(asked: SequenceQuestion, *, rounds: int) -> dict[str, Any]:
    """Both wires for one size: bytes, and the median seconds of either end, turn by turn."""
    flat = flat_lists(asked)
    dumps: dict[str, Callable[[Any], bytes]] = {"json": lambda said: json.dumps(said).encode(), "orjson": orjson.dumps}
    loads: dict[str, Callable[[bytes], Any]] = {"json": json.loads, "orjson": orjson.loads}
    seconds: dict[str, dict[str, list[float]]] = {way: {"server": [], "client": []} for way in ("rewardpool", *NESTED)}
    size = {}
    expected = of_vllm(flat, asked).top_logprobs
    for _ in range(rounds):
        body, took = timed(ours, flat, asked)
        size["rewardpool"] = len(body)
        seconds["rewardpool"]["server"].append(took)
        seconds["rewardpool"]["client"].append(timed(read_ours, body, asked)[1])
        for way in NESTED:
            body, took = timed(write_nested, flat, asked, dumps[way])
            size[way] = len(body)
            seconds[way]["server"].append(took)
            found, took = timed(read_nested, body, asked, loads[way])
            seconds[way]["client"].append(took)
            assert found[2] == expected
    return {
        "positions": asked.rows,
        "top_k": asked.top_k,
        "bytes": size,
        "seconds": {
            way: {end: statistics.median(values) for end, values in ends.items()} for way, ends in seconds.items()
        },
    }


def timed(work: Callable[..., Any], *given: Any) -> tuple[Any, float]:
    """What it returns, and its seconds."""
    began = time.perf_counter()
    found = work(*given)
    return found, time.perf_counter() - began
