"""A stand-in engine: a real process with the data plane's contract and no model, cheap to kill and to start again.

    python fixed_worker.py PORT DELAY_SECONDS

The score of a text is a fixed function of its bytes, the same in every process, so that a test knows the right answer.
A text of more than LIMIT_WORDS words is too long, as a model would say it.
"""

import asyncio
import hashlib
import sys

from aiohttp import web

from rewardpool_api.contract import SCORE_PATH, CallerError

LIMIT_WORDS = 100


def fixed_score(text: str) -> float:
    """A number between -1 and 1 that stands for the text."""
    digest = hashlib.sha256(text.encode()).digest()
    return int.from_bytes(digest[:6], "big") / 2**47 - 1.0


def answer(text: str) -> dict[str, object]:
    """The body that the contract wants for one text."""
    words = len(text.split())
    if words > LIMIT_WORDS:
        problem = CallerError(code="sample_too_long", message="too long", length_tokens=words, limit_tokens=LIMIT_WORDS)
        return problem.to_wire()
    return {"object": "list", "data": [{"index": 0, "embedding": [fixed_score(text)]}]}


def main(port: int, delay_seconds: float) -> None:
    """Serve until killed."""

    async def score(request: web.Request) -> web.Response:
        body = await request.json()
        await asyncio.sleep(delay_seconds)
        return web.json_response(answer(body["input"]))

    async def health(_: web.Request) -> web.Response:
        return web.Response()

    app = web.Application()
    app.router.add_post(SCORE_PATH, score)
    app.router.add_get("/health", health)
    web.run_app(app, host="127.0.0.1", port=port, print=None, access_log=None)


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
