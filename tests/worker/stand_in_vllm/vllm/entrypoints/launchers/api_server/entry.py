"""The server, by the command line of the real one. A sample's score is its length, and a teacher `tiny_teacher`.

STAND_IN_LOSES_WEIGHTS: after a wake it scores differently, as SGLang did without its backup.
STAND_IN_ONE_LOSES_WEIGHTS: the same for the one that makes this file, of all that could.
STAND_IN_VARIES: a sample of several in one request has another score than alone.
STAND_IN_LOG: a file that gets a line for each score, and when it begins to wake and when it sleeps.
"""

import argparse
import asyncio
import importlib
import os
import time
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

parser = argparse.ArgumentParser()
for flag in ("--served-model-name", "--host"):
    parser.add_argument(flag)
parser.add_argument("--port", type=int)
parser.add_argument("--runner", default="generate")
parser.add_argument("--middleware", action="append", default=[])
parser.add_argument("--enable-sleep-mode", action="store_true")
arguments, _ = parser.parse_known_args()

app = FastAPI()
awake = asyncio.Event()
awake.set()
weights = {"offset": 0.0}


def note(what: str) -> None:
    """Write down what happens now, in monotonic seconds, which all processes of a machine share."""
    if "STAND_IN_LOG" in os.environ:
        with open(os.environ["STAND_IN_LOG"], "a") as log:
            log.write(f"{time.monotonic()} {what}\n")


def is_the_one() -> bool:
    """Whether this server makes the file of STAND_IN_ONE_LOSES_WEIGHTS."""
    if "STAND_IN_ONE_LOSES_WEIGHTS" not in os.environ:
        return False
    try:
        open(os.environ["STAND_IN_ONE_LOSES_WEIGHTS"], "x").close()
    except FileExistsError:
        return False
    return True


@app.get("/health")
async def health() -> dict[str, Any]:
    return {}


@app.get("/v1/models")
async def models() -> dict[str, Any]:
    return {"object": "list", "data": [{"id": arguments.served_model_name, "max_model_len": 512}]}


@app.post("/classify")
async def classify(request: Request) -> dict[str, Any]:
    samples = (await request.json())["input"]
    # The scheduler is paused: nobody is told, nothing comes back.
    note("score")
    await awake.wait()
    await asyncio.sleep(0.05)
    varies = "STAND_IN_VARIES" in os.environ and len(samples) > 1
    logits = [len(sample) + weights["offset"] + varies for sample in samples]
    data = [{"index": index, "label": None, "probs": [logit], "num_classes": 1} for index, logit in enumerate(logits)]
    return {"data": data, "usage": {"prompt_tokens": 1, "total_tokens": 1}}


class EngineClient:
    """The engine as it is asked in process; needs the tests' folder on the path."""

    async def generate(self, prompt: Any, sampling: Any, request_id: str) -> AsyncIterator[Any]:
        from support.tiny_teacher import as_vllm

        note("score")
        await awake.wait()
        await asyncio.sleep(0.05)
        flat = as_vllm(prompt["prompt_token_ids"], sampling.prompt_logprobs)
        flat.logprobs = [one - weights["offset"] for one in flat.logprobs]
        yield SimpleNamespace(prompt_logprobs=flat)


if arguments.runner == "generate":
    app.state.engine_client = EngineClient()
    app.state.vllm_config = SimpleNamespace(model_config=SimpleNamespace(get_vocab_size=lambda: 50))


if os.environ.get("VLLM_SERVER_DEV_MODE") == "1":

    @app.post("/sleep")
    async def sleep(level: int = 1, mode: str = "abort") -> JSONResponse:
        assert arguments.enable_sleep_mode
        awake.clear()
        if level == 2 or "STAND_IN_LOSES_WEIGHTS" in os.environ or is_the_one():
            weights["offset"] = 0.73
        note("sleep")
        return JSONResponse({"status": "sleeping", "level": level})

    @app.post("/wake_up")
    async def wake_up(request: Request) -> JSONResponse:
        tags = request.query_params.getlist("tags") or None
        note("wake")
        awake.set()
        return JSONResponse({"status": "awake", "tags": tags})

    @app.get("/is_sleeping")
    async def is_sleeping() -> JSONResponse:
        return JSONResponse({"is_sleeping": not awake.is_set()})

    @app.post("/collective_rpc")
    async def collective_rpc() -> JSONResponse:
        return JSONResponse({"results": ["anything"]})


if __name__ == "__main__":
    for path in arguments.middleware:
        module, _, name = path.rpartition(".")
        app.add_middleware(getattr(importlib.import_module(module), name))
    uvicorn.run(app, host=arguments.host, port=arguments.port, log_level="warning")
