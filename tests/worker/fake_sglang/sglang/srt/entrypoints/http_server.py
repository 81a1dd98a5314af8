"""SGLang's application at module level, and the function that serves it. A sample's score is its length in tokens."""

from argparse import Namespace
from typing import Any

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response

app = FastAPI()


@app.get("/health")
def health() -> Response:
    return Response(status_code=200)


@app.get("/v1/models")
def models() -> dict[str, Any]:
    arguments = app.state.arguments
    card = {"id": arguments.served_model_name, "object": "model", "max_model_len": arguments.context_length}
    return {"object": "list", "data": [card]}


@app.post("/v1/embeddings")
async def embeddings(request: Request) -> Any:
    lengths = [len(sample) for sample in (await request.json())["input"]]
    limit = app.state.arguments.context_length
    if max(lengths) > limit:
        message = f"The input ({max(lengths)} tokens) is longer than the model's context length ({limit} tokens)."
        content = {"object": "error", "message": message, "type": "BadRequestError", "param": None, "code": 400}
        return JSONResponse(content, status_code=400)
    data = [{"object": "embedding", "index": i, "embedding": [float(length)]} for i, length in enumerate(lengths)]
    usage = {"prompt_tokens": sum(lengths), "total_tokens": sum(lengths), "completion_tokens": 0}
    return {"object": "list", "data": data, "model": app.state.arguments.model_path, "usage": usage}


def launch_server(arguments: Namespace) -> None:
    app.state.arguments = arguments
    uvicorn.run(app, host=arguments.host, port=arguments.port, log_level="warning")
