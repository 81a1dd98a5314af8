"""A teacher's worker as a process: the real score middleware with a stand-in for SGLang's engine below it.

python -m support.teacher_process --port 8000 --wrong null

Its numbers are those of `tiny_teacher`, or with `--wrong` such as cannot be. The key is that of
$REWARDPOOL_KEY_FILE. Run with the servers' Python, which has the engines' own HTTP server.
"""

import argparse
import json
import os
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from support.tiny_teacher import VOCABULARY, as_sglang

from rewardpool_api.names import ENV_KEY_FILE
from rewardpool_worker.engine_side.middleware.score import ScoreMiddleware
from rewardpool_worker.engine_side.middleware.settings import Settings

LONGEST = 1024
WRONG = {"logits": 9.95, "null": None, "-9999": -9999.0, "nan": float("nan")}
"""What an engine that is wrong gives in place of the last token's log-probability, by name."""


async def engine(scope: Any, receive: Any, send: Any, *, wrong: str | None) -> None:
    """Stands in for SGLang: its models, and log-probabilities of given tokens."""
    body = b""
    while (message := await receive())["type"] == "http.request":
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    content: Any = {"data": [{"id": "teacher", "max_model_len": LONGEST}]}
    if scope["path"] == "/generate":
        content = as_sglang(json.loads(body))
        if wrong is not None:
            content["meta_info"]["input_token_logprobs"][-1][0] = WRONG[wrong]
    raw = json.dumps(content).encode()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": raw})


def main() -> None:
    """Entry point."""
    import uvicorn

    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--wrong", choices=WRONG)
    given = parser.parse_args()
    settings = Settings(key_file=Path(os.environ[ENV_KEY_FILE]), model_type="Teacher", engine="sglang", top_k=8)
    middleware = ScoreMiddleware(partial(engine, wrong=given.wrong), settings=settings)
    app = SimpleNamespace(state=SimpleNamespace(vocabulary_size=VOCABULARY))

    async def application(scope: Any, receive: Any, send: Any) -> None:
        await middleware({**scope, "app": app}, receive, send)

    uvicorn.run(application, host="127.0.0.1", port=given.port, lifespan="off", log_level="warning")


if __name__ == "__main__":
    main()
