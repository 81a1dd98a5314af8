"""`python judging_worker.py PORT`: the score middleware, on a port, around an engine that says which revision it is.

It runs where uvicorn is: in the servers' environment.
"""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "crds"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "workers"))

import uvicorn

from rewardpool_worker.engine_side.middleware.score import ScoreMiddleware


async def engine(scope: Any, receive: Any, send: Any) -> None:
    """Answer a chat with the revision, and anything else with an empty object."""
    if scope["type"] != "http":
        return
    while (await receive()).get("more_body"):
        pass
    if "chat" in scope["path"]:
        await asyncio.sleep(0.1)  # a router gives all to one worker that has always answered in time
    said = {"content": os.environ["REWARDPOOL_REVISION"], "role": "assistant"}
    answer = {"choices": [{"index": 0, "message": said, "finish_reason": "stop"}]} if "chat" in scope["path"] else {}
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps(answer).encode()})


if __name__ == "__main__":
    uvicorn.run(ScoreMiddleware(engine), host="127.0.0.1", port=int(sys.argv[1]), log_level="warning", lifespan="off")
