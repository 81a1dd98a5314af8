"""Serves a reward model by transformers: `python rewardpool_worker.zip transformers_server --model PATH …`.

The engine for models that only their own code can score. It is an ASGI application as vLLM's and SGLang's are, so key,
readiness, load, limits and the answer to a caller's mistake are the score middleware's, which is put around it. What is
here: the four routes that the middleware asks, the metrics, and dynamic batching.

Batching waits for nobody: while the model computes, samples gather, and the next round takes all that are there, sorted
by length and cut into batches of at most so many samples and so many tokens, padding included. A batch that fails is
scored again one by one, so that one sample fails alone.

Mounted into stock images; needs uvicorn and prometheus_client beside what `transformers_model.py` needs.
"""

import argparse
import asyncio
import json
import logging
import math
import os
import signal
import sys
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from rewardpool_api.contract import SCORE_PATH
from rewardpool_worker.engine_side.middleware.asgi import (
    DisconnectedError,
    Receive,
    Scope,
    Send,
    read_body,
    send_json,
    unless_disconnected,
)
from rewardpool_worker.engine_side.middleware.score import ScoreMiddleware
from rewardpool_worker.engine_side.transformers_model import ModelRefusedError, load
from rewardpool_worker.engine_side.writable_home import make_home_writable

Ids = list[int]

log = logging.getLogger("rewardpool.worker")

KEEP_ALIVE_SECONDS = 120  # longer than routers keep an idle connection, so that none is closed under a request
EXIT_REFUSED = 1
EXIT_GPU_LOST = 3


class Model(Protocol):
    """A served model; `transformers_model.RewardModel` is one."""

    max_model_len: int

    def encode(self, sample: str | Sequence[int]) -> Ids:
        """Token ids of a sample; raises ValueError for one that the model cannot take."""

    def score(self, batch: Sequence[Ids]) -> list[float]:
        """A number per sample."""


class BatchMetrics(Protocol):
    """Counters; `worker_metrics.WorkerMetrics` has them, where each is described."""

    def request(self) -> AbstractContextManager[None]:
        """A scoring request, from its arrival to its answer."""

    def scored(self, samples: int) -> None: ...

    def failed(self, kind: str, fault: str) -> None:
        """A request gets no scores."""

    def exposition(self, accept: str) -> tuple[bytes, str]:
        """Body and content type for a scraper."""


@dataclass(frozen=True)
class Bounds:
    """Bounds of a batch."""

    samples: int = 32
    tokens: int = 16384
    """Padding included. One sample alone may have more."""

    def __post_init__(self) -> None:
        if self.samples < 1 or self.tokens < 1:
            raise ValueError("--max-batch-samples and --max-batch-tokens must be greater than 0")


def plan_batches(lengths: Sequence[int], bounds: Bounds) -> list[list[int]]:
    """Cut samples into batches; a pure function.

    Args:
        lengths: tokens of each sample.

    Returns:
        Positions of the samples, each once: the shortest together, for the least padding.
    """
    batches: list[list[int]] = []
    for position in sorted(range(len(lengths)), key=lengths.__getitem__):
        batch = batches[-1] if batches else None
        # The last one is the longest, so it says how wide the batch is.
        if batch and len(batch) < bounds.samples and (len(batch) + 1) * lengths[position] <= bounds.tokens:
            batch.append(position)
        else:
            batches.append([position])
    return batches


@dataclass(frozen=True)
class _Waiting:
    ids: Ids
    score: asyncio.Future[float]


class SampleBatcher:
    """Scores samples of all requests together, on a thread of its own."""

    def __init__(self, score: Callable[[list[Ids]], list[float]], bounds: Bounds) -> None:
        self._score = score
        self._bounds = bounds
        self._queue: asyncio.Queue[_Waiting] = asyncio.Queue()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="score")
        self._rounds: asyncio.Task[None] | None = None

    async def scores(self, samples: Sequence[Ids]) -> list[float]:
        """Scores in the order of the samples; raises what the model raised. Cancelled, it leaves out what waits."""
        if self._rounds is None:
            self._rounds = asyncio.create_task(self._run())
        loop = asyncio.get_running_loop()
        waiting = [_Waiting(ids, loop.create_future()) for ids in samples]
        for each in waiting:
            self._queue.put_nowait(each)
        return await asyncio.gather(*(each.score for each in waiting))

    async def _run(self) -> None:
        while True:
            gathered = [await self._queue.get()]
            while not self._queue.empty():
                gathered.append(self._queue.get_nowait())
            for batch in plan_batches([len(each.ids) for each in gathered], self._bounds):
                await self._answer([gathered[position] for position in batch])

    async def _answer(self, batch: list[_Waiting]) -> None:
        batch = [each for each in batch if not each.score.done()]
        if not batch:
            return
        call = asyncio.get_running_loop().run_in_executor(self._thread, self._score, [each.ids for each in batch])
        try:
            answered = list(zip(batch, await call, strict=True))
        except Exception as error:  # whatever the model's own code raises
            if len(batch) == 1:
                if not batch[0].score.done():
                    batch[0].score.set_exception(error)
                return
            log.warning("a batch of %d is scored one by one: %s: %s", len(batch), type(error).__name__, error)
            for each in batch:
                await self._answer([each])
            return
        for each, score in answered:
            if not each.score.done():
                each.score.set_result(score)


class _RequestError(Exception):
    """A request at fault; the text goes to its caller."""

    kind, fault = "invalid_sample", "verifier"


class _TooLongError(_RequestError):
    kind, fault = "sample_too_long", "policy"


class Application:
    """The ASGI application below the score middleware, whose requests it answers: those have been checked."""

    def __init__(self, model: Model, *, served_name: str, bounds: Bounds, metrics: BatchMetrics) -> None:
        self._model = model
        self._metrics = metrics
        self._served_name = served_name
        self._batcher = SampleBatcher(model.score, bounds)
        # One thread: a tokenizer is not for several, and a long text must not hold up the loop.
        self._encoding = ThreadPoolExecutor(1, thread_name_prefix="encode")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise NotImplementedError(f"{scope['type']} is not served")
        match scope["method"], scope["path"]:
            case "GET", "/health":
                await send_json(send, 200, {})
            case "GET", "/metrics":
                accept = dict(scope["headers"]).get(b"accept", b"").decode("latin-1")
                await _send_bytes(send, 200, *self._metrics.exposition(accept))
            case "GET", "/v1/models":
                card = {"id": self._served_name, "object": "model", "owned_by": "rewardpool"}
                await send_json(
                    send, 200, {"object": "list", "data": [{**card, "max_model_len": self._model.max_model_len}]}
                )
            case "POST", "/tokenize":
                await self._answered(send, self._tokenize(await _read(receive)))
            case "POST", path if path == SCORE_PATH:
                with self._metrics.request():
                    request = await _read(receive)
                    await self._answered(send, self._counted(self._scores_for(request, receive)))
            case _:
                await send_json(send, 404, {"error": "there is no such route"})

    async def _answered(self, send: Send, working: Awaitable[dict[str, Any] | None]) -> None:
        try:
            answer = await working
        except _RequestError as refusal:
            await send_json(send, 400, {"error": {"message": str(refusal)}})
        except Exception as error:  # the model's own code
            log.exception("no score")
            await send_json(send, 500, {"error": {"message": f"{type(error).__name__}: {error}"}})
        else:
            if answer is not None:
                await send_json(send, 200, answer)

    async def _counted(self, scoring: Awaitable[dict[str, Any] | None]) -> dict[str, Any] | None:
        try:
            answer = await scoring
        except Exception as error:
            kind, fault = (error.kind, error.fault) if isinstance(error, _RequestError) else ("no_score", "infra")
            self._metrics.failed(kind, fault)
            raise
        if answer is None:
            self._metrics.failed("abandoned", "infra")
        else:
            self._metrics.scored(len(answer["data"]))
        return answer

    async def _scores_for(self, request: dict[str, Any], receive: Receive) -> dict[str, Any] | None:
        """Return the answer; None when the caller disconnects before, and then nothing more is computed for it."""
        try:
            return await unless_disconnected(self._scores(request), receive)
        except DisconnectedError:
            return None

    async def _scores(self, request: dict[str, Any]) -> dict[str, Any]:
        self._check_model(request)
        given = request["input"]
        samples = given if isinstance(given, list) and not isinstance(given[0], int) else [given]
        encoded = [await self._encode(sample, index) for index, sample in enumerate(samples)]
        limit = self._model.max_model_len
        for ids in encoded:
            if len(ids) > limit:
                # SGLang's words, which the middleware reads.
                message = f"The input ({len(ids)} tokens) is longer than the model's context length ({limit} tokens)."
                raise _TooLongError(message)
        scores = await self._batcher.scores(encoded)
        odd = next((index for index, score in enumerate(scores) if not math.isfinite(score)), None)
        if odd is not None:
            raise RuntimeError(f"the model scored input {odd} as {scores[odd]}, which is not a finite number")
        data = [{"object": "embedding", "index": index, "embedding": [score]} for index, score in enumerate(scores)]
        tokens = sum(map(len, encoded))
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        return {"object": "list", "model": self._served_name, "data": data, "usage": usage}

    async def _tokenize(self, request: dict[str, Any]) -> dict[str, Any]:
        self._check_model(request)
        return {"count": len(await self._encode(request["prompt"], 0)), "max_model_len": self._model.max_model_len}

    def _check_model(self, request: dict[str, Any]) -> None:
        if request["model"] != self._served_name:
            raise _RequestError(f"the model `{request['model']}` does not exist; there is {self._served_name}")

    async def _encode(self, sample: str | Ids, index: int) -> Ids:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._encoding, self._model.encode, sample)
        except ValueError as error:
            raise _RequestError(f"input {index}: {error}") from None


async def _read(receive: Receive) -> dict[str, Any]:
    request: dict[str, Any] = json.loads(await read_body(receive, sys.maxsize) or b"")
    return request


async def _send_bytes(send: Send, status: int, body: bytes, content_type: str) -> None:
    described = [(b"content-type", content_type.encode()), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": described})
    await send({"type": "http.response.body", "body": body})


class _Guarded:
    """A model whose GPU may fail for good: no later call of the process would succeed, so the process ends."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self.max_model_len: int = model.max_model_len

    def encode(self, sample: str | Sequence[int]) -> Ids:
        ids: Ids = self._model.encode(sample)
        return ids

    def score(self, batch: Sequence[Ids]) -> list[float]:
        try:
            scores: list[float] = self._model.score(batch)
        except RuntimeError as error:
            if type(error).__name__ == "AcceleratorError" or "CUDA error" in str(error):
                log.critical("the GPU failed, the worker has to be started anew: %s", error)
                logging.shutdown()
                os._exit(EXIT_GPU_LOST)
            raise
        return scores


def options(argv: Sequence[str]) -> argparse.Namespace:
    """The command line; argparse ends the process where it is wrong."""
    parser = argparse.ArgumentParser(description="Serve a reward model by transformers, behind the score middleware.")
    parser.add_argument("--model", required=True, help="a folder, or a repository of the hub")
    parser.add_argument("--revision", help="of the repository")
    parser.add_argument("--served-model-name", required=True, help="the `model` of a request")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (%(default)s)")
    parser.add_argument("--port", type=int, default=8000, help="port to listen on (%(default)s)")
    parser.add_argument("--dtype", choices=("auto", "bfloat16", "float16", "float32"), default="auto")
    parser.add_argument("--device", help="such as cpu or cuda:1; by default a GPU where there is one")
    parser.add_argument("--max-model-len", type=int, help="longest sample in tokens")
    parser.add_argument("--trust-remote-code", action="store_true", help="run the checkpoint's own code")
    parser.add_argument("--drain-seconds", type=int, default=60, help="longest wait on SIGTERM (%(default)s)")
    parser.add_argument("--max-batch-samples", type=int, default=Bounds.samples, help="(%(default)s)")
    parser.add_argument("--max-batch-tokens", type=int, default=Bounds.tokens, help="with padding (%(default)s)")
    return parser.parse_args(argv)


def main(argv: Sequence[str]) -> int:
    """Serve until SIGTERM; returns the exit code."""
    given = options(argv)
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    # While the model loads, and after uvicorn has finished what was in flight: it raises the signal again then.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with tempfile.TemporaryDirectory(prefix="rewardpool-modules-") as modules:
        # Before transformers is imported. A folder of its own: replicas that share one run what another is writing.
        os.environ.setdefault("HF_MODULES_CACHE", modules)
        make_home_writable(os.environ)
        import uvicorn

        from rewardpool_worker.engine_side.worker_metrics import WorkerMetrics

        try:
            bounds = Bounds(given.max_batch_samples, given.max_batch_tokens)
            model = load(
                given.model,
                revision=given.revision,
                dtype=given.dtype,
                trust_remote_code=given.trust_remote_code,
                max_model_len=given.max_model_len,
                device=given.device,
            )
        except (ModelRefusedError, ValueError) as error:
            refused = "model refused" if isinstance(error, ModelRefusedError) else f"error: {type(error).__name__}"
            log.error("%s: %s", refused, error)  # noqa: TRY400 - a reason, not a crash
            return EXIT_REFUSED
        application = Application(
            _Guarded(model), served_name=given.served_model_name, bounds=bounds, metrics=WorkerMetrics()
        )
        uvicorn.run(
            ScoreMiddleware(application),
            host=given.host,
            port=given.port,
            lifespan="off",
            log_level="warning",
            access_log=False,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=given.drain_seconds,
        )
    return 0
