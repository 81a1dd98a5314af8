"""The peer of the function engine: the same function behind a bare ASGI app. Run by uvicorn.

    BENCH_FUNCTION=compute_score uvicorn engine.plain_app:app

No key, no limit, no deadline, no check of what the function returns. A sync function runs in a thread: on the event
loop a slow call would stop all others.
"""

import asyncio
import inspect
import json
import os
from typing import Any, Final

from engine import rewards

ENV_FUNCTION: Final = "BENCH_FUNCTION"


async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Answer a sample with its score, and anything that is no POST with an empty object."""
    if scope["type"] != "http":
        return
    function = getattr(rewards, os.environ[ENV_FUNCTION])
    answer: dict[str, Any] = {}
    if scope["method"] == "POST":
        sample = json.loads(json.loads(await _body(receive))["input"])
        is_async = inspect.iscoroutinefunction(function)
        score = await (function(**sample) if is_async else asyncio.to_thread(function, **sample))
        answer = {"data": [{"index": 0, "embedding": [score]}]}
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
    await send({"type": "http.response.body", "body": json.dumps(answer).encode()})


async def _body(receive: Any) -> bytes:
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    return body
