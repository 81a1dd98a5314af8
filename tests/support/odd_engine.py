"""A stand-in for an engine whose numbers depend on how it is asked, in ways that a test chooses."""

from array import array
from zlib import crc32

from aiohttp import web
from support.fake_worker import Behaviour

from rewardpool_api.contract import SCORE_PATH
from rewardpool_api.teacher_wire import FLOAT32, INT32, Values, parse_request, to_wire

SHIFT = 0.01
LONG = 500
"""Tokens that it computes in one step."""


def numbers_of(*wrong: str, shift: float = SHIFT) -> Behaviour:
    """Scores, or log-probabilities, that differ by `shift` from the right ones.

    Args:
        wrong: When: for samples that are `cached`, `batched` with others, `reordered` against their first order, or
            `chunked`; or `always`.
        shift: By how much.
    """
    seen: dict[str, int] = {}

    async def behaviour(request: web.Request) -> web.Response:
        body = await request.json()
        given = [body["input_ids"]] if request.path != SCORE_PATH else body["input"]
        names = [repr(item) for item in given]
        at = [seen.get(name, len(seen) + place) for place, name in enumerate(names)]
        shifts = []
        for name, item in zip(names, given, strict=True):
            causes = {
                "always": True,
                "cached": name in seen,
                "batched": len(given) > 1,
                "reordered": at != sorted(at),
                "chunked": name not in seen and len(item) > LONG,
            }
            shifts.append(shift * any(causes[one] for one in wrong))
        for name in names:
            seen.setdefault(name, len(seen))
        if request.path == SCORE_PATH:
            scores = [crc32(name.encode()) / 2**32 + by for name, by in zip(names, shifts, strict=True)]
            return web.json_response({"data": [{"index": n, "embedding": [one]} for n, one in enumerate(scores)]})
        asked, _ = parse_request(await request.read())
        tokens = asked.token_ids[asked.start :]
        own = array(FLOAT32, (-1 - token / 256 - shifts[0] for token in tokens))
        top = array(FLOAT32, [-0.5] * asked.rows * asked.top_k)
        ids = array(INT32, [1] * asked.rows * asked.top_k)
        return web.json_response(to_wire(Values(tokens, own, ids, top), asked, model="teacher"))

    return behaviour
