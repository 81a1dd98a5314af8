"""SGLang's application at module level, and the function that serves it.

A sample's score is its length in tokens, and a teacher `tiny_teacher`.
"""

import os
from argparse import Namespace
from typing import Any

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import Response

app = FastAPI()
resident = {"kv_cache", "weights"}
"""What is on the GPU."""
weights = {"offset": 0.0}


@app.get("/health")
def health() -> Response:
    return Response(status_code=200)


@app.get("/v1/models")
def models() -> dict[str, Any]:
    arguments = app.state.arguments
    card = {"id": arguments.served_model_name, "object": "model", "max_model_len": arguments.context_length}
    return {"object": "list", "data": [card]}


@app.post("/release_memory_occupation")
async def release(request: Request) -> None:
    tags = set((await request.json())["tags"])
    resident.difference_update(tags)
    if "weights" in tags and not app.state.arguments.enable_weights_cpu_backup:
        weights["offset"] = 0.73


@app.post("/resume_memory_occupation")
async def resume(request: Request) -> None:
    resident.update((await request.json())["tags"])


@app.post("/update_weights_from_disk")
async def update_weights() -> None:
    weights["offset"] = 1.0


def compute() -> None:
    """Make a forward pass: over memory that is not there the scheduler dies of it."""
    if resident != {"kv_cache", "weights"}:
        os._exit(1)


@app.post("/generate")
async def generate(request: Request) -> Any:
    from support.tiny_teacher import as_sglang

    compute()
    said = as_sglang({"top_logprobs_num": 0, **await request.json()})
    own = said["meta_info"]["input_token_logprobs"]
    own[1:] = [[logprob - weights["offset"], *rest] for logprob, *rest in own[1:]]
    return said


@app.post("/v1/embeddings")
async def embeddings(request: Request) -> Any:
    compute()
    lengths = [len(sample) for sample in (await request.json())["input"]]
    scores = [length + weights["offset"] for length in lengths]
    data = [{"object": "embedding", "index": index, "embedding": [score]} for index, score in enumerate(scores)]
    usage = {"prompt_tokens": sum(lengths), "total_tokens": sum(lengths), "completion_tokens": 0}
    return {"object": "list", "data": data, "model": app.state.arguments.model_path, "usage": usage}


def launch_server(arguments: Namespace, **_: object) -> None:
    app.state.arguments = arguments
    if not arguments.is_embedding:
        app.state.vocabulary_size = 50
    uvicorn.run(app, host=arguments.host, port=arguments.port, log_level="warning")
