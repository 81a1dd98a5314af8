"""A teacher's worker as a process: the real score middleware with a stand-in for SGLang's engine below it.

python -m support.teacher_process --port 8000

Its numbers are those of `tiny_teacher`. The key is that of $REWARDPOOL_KEY_FILE. Run with the servers' Python, which
has the engines' own HTTP server.
"""

import argparse
import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from support.tiny_teacher import VOCABULARY, as_sglang

from rewardpool_api.names import ENV_KEY_FILE
from rewardpool_worker.engine_side.middleware.score import ScoreMiddleware
from rewardpool_worker.engine_side.middleware.settings import Settings

LONGEST = 1024


async def engine(scope: Any, receive: Any, send: Any) -> None:
    """Stands in for SGLang: its models, and log-probabilities of given tokens."""
    body = b""
    while (message := await receive())["type"] == "http.request":
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    content: Any = {"data": [{"id": "teacher", "max_model_len": LONGEST}]}
    if scope["path"] == "/generate":
        content = as_sglang(json.loads(body))
    raw = json.dumps(content).encode()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": raw})


def main() -> None:
    """Entry point."""
    import uvicorn

    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    port = parser.parse_args().port
    settings = Settings(key_file=Path(os.environ[ENV_KEY_FILE]), model_type="Teacher", engine="sglang", top_k=8)
    middleware = ScoreMiddleware(engine, settings=settings)
    app = SimpleNamespace(state=SimpleNamespace(vocabulary_size=VOCABULARY))

    async def application(scope: Any, receive: Any, send: Any) -> None:
        await middleware({**scope, "app": app}, receive, send)

    uvicorn.run(application, host="127.0.0.1", port=port, lifespan="off", log_level="warning")


if __name__ == "__main__":
    main()
