"""Serves a user's reward function as a worker: `python -m rewardpool_worker.function_server --function MODULE:NAME`.

The contract is that of every other engine: `POST /v1/embeddings`, one score per sample. A sample is one JSON text with
verl's four arguments, `{"data_source", "solution_str", "ground_truth", "extra_info"}`; what the function returns beside
`score` comes back as `data[i].info`. SIGTERM stops taking requests, finishes those in flight, and exits with 0.

A request that comes twice, because a trainer asked again or a router tried again, runs the function once: both get the
answer of the call that runs. A call that the machine is at fault for is answered with 503, to be tried elsewhere.
"""

import argparse
import asyncio
import contextlib
import json
import logging
import math
import os
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from aiohttp import web

from rewardpool_api import names
from rewardpool_api.contract import ANY_MODEL, REQUEST_ID_HEADER, SCORE_PATH, CallerError
from rewardpool_api.names import OnMissing, SandboxNetwork
from rewardpool_runtime.functions.limits import ALL, CallLimits
from rewardpool_runtime.functions.load import FunctionLoadError
from rewardpool_runtime.functions.outcome import Failed, FunctionArguments, FunctionScore
from rewardpool_runtime.functions.parent import environment
from rewardpool_runtime.functions.runner import FunctionRunner, ProcessRunner
from rewardpool_runtime.functions.source import FunctionSource
from rewardpool_runtime.guard.function import Boundary
from rewardpool_runtime.http_server import Runner, read_body
from rewardpool_runtime.state_files import state_dir
from rewardpool_worker.engine_side.middleware.answers import (
    echo,
    refused_for_another,
    worker_fields,
    worker_name,
)
from rewardpool_worker.engine_side.middleware.errors import InvalidRequestError, OtherModelError
from rewardpool_worker.engine_side.middleware.keys import KeyFile
from rewardpool_worker.engine_side.middleware.readiness import Readiness
from rewardpool_worker.engine_side.middleware.routes import OPEN_PATHS, ROUTED_PATHS
from rewardpool_worker.engine_side.middleware.settings import Settings
from rewardpool_worker.engine_side.worker_metrics import METRICS_PATH, WorkerMetrics
from rewardpool_worker.engine_side.writable_home import make_home_writable
from rewardpool_worker.function_sample import parse_sample
from rewardpool_worker.in_work import SCRAPE_HEADER, RequestsInWork

log = logging.getLogger("rewardpool.worker")


Handler = Any

PROBE_DEADLINE_SECONDS = 30.0
_WHOSE = {"verifier": "the function, or of that sample", "policy": "that sample's response", "infra": "this machine"}
EXIT_NOT_STARTED = 1


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of the command line."""

    function: str
    served_name: str
    host: str
    port: int
    concurrency: int | None
    cpu_seconds: float
    idle_seconds: float
    memory_mib: int
    calls_per_process: int | None
    env: tuple[str, ...]
    drain_seconds: float
    max_body_bytes: int
    key_file: Path | None
    probe_sample: FunctionArguments | None
    revision: str = ""
    network: SandboxNetwork = "Pod"
    on_missing: OnMissing = "Weaken"
    shared_port: bool = False
    modules: str = ""

    @property
    def limits(self) -> CallLimits:
        return CallLimits(
            cpu_seconds=self.cpu_seconds,
            idle_seconds=self.idle_seconds,
            memory_mib=self.memory_mib,
            concurrency=self.concurrency,
            calls_per_process=self.calls_per_process,
            of_pool=True,
        )

    @property
    def folders(self) -> tuple[str, ...]:
        return tuple(filter(None, self.modules.split(os.pathsep)))

    def boundary(self, environ: Mapping[str, str]) -> Boundary:
        """Return the boundary of the function's processes: on one machine, the keys of all pools."""
        network = self.network == "Pod"
        if self.key_file is None:
            return Boundary(network=network)
        key, state = self.key_file.absolute(), state_dir(environ).absolute()
        hidden = state if state in key.parents else key.parent
        shown = [*self.folders, *sys.path, tempfile.gettempdir()]
        return Boundary(key_file=str(key), hidden=str(hidden), shown=shown, network=network)


class SandboxMissingError(Exception):
    """The machine lacks what spec.sandbox needs; the text says what."""


class StarvedError(Exception):
    """The machine is at fault, and another worker may score the sample."""


class FunctionServer:
    """The HTTP side: who may ask, what is a sample, what is answered, and how to stop."""

    def __init__(self, runner: FunctionRunner, options: Options) -> None:
        self._runner = runner
        self._options = options
        self._in_work = RequestsInWork()
        self._name = worker_name()
        self._running: dict[tuple[str, bytes], asyncio.Future[tuple[dict[str, Any], float]]] = {}
        """Answers that are being made, by the request's id and body."""
        self._key = KeyFile(options.key_file)
        self._readiness = Readiness(deadline_seconds=PROBE_DEADLINE_SECONDS, clock=time.monotonic)
        self._metrics = WorkerMetrics(places=lambda: runner.places)
        self._in_flight = 0
        self._empty = asyncio.Event()
        self._empty.set()
        self._draining = False

    def application(self) -> web.Application:
        application = web.Application(client_max_size=self._options.max_body_bytes, middlewares=[self._admit])
        application.router.add_get("/health", self._health)
        application.router.add_get(names.READY_PATH, self._ready)
        application.router.add_get(names.LOAD_PATH, self._load)
        application.router.add_get(METRICS_PATH, self._exposition)
        application.router.add_get(names.WORKERS_METRICS_PATH, self._exposition)
        application.router.add_get("/v1/models", self._models)
        application.router.add_post(SCORE_PATH, self._score)
        for path in sorted(ROUTED_PATHS - {SCORE_PATH}):
            application.router.add_post(path, self._not_scored)
        return application

    async def drain(self, deadline_seconds: float) -> int:
        """Take no more requests and wait for those in flight; returns how many the deadline left behind."""
        self._draining = True
        log.info("draining, %d requests in flight", self._in_flight)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(deadline_seconds):
                await self._empty.wait()
        return self._in_flight

    @web.middleware
    async def _admit(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if self._draining and request.path != METRICS_PATH:
            # /health too: a router that hears 503 sends nothing more here, and tries this request elsewhere.
            refused = _error(503, "draining", "this worker is leaving")
            refused.force_close()
            return refused
        authorization = request.headers.get("Authorization", "").encode(errors="surrogateescape")
        if request.path not in OPEN_PATHS and not self._key.admits(authorization):
            return _error(401, "unauthorized", "this worker needs the pool's key as Authorization: Bearer KEY")
        response: web.StreamResponse = await handler(request)
        return response

    async def _health(self, _: web.Request) -> web.Response:
        return web.json_response({})

    async def _ready(self, _: web.Request) -> web.Response:
        ready, report = await self._readiness.report(self._probe)
        return web.json_response(report, status=200 if ready else 503)

    async def _load(self, _: web.Request) -> web.Response:
        return web.json_response({"in_flight": self._in_flight})

    async def _exposition(self, request: web.Request) -> web.Response:
        if SCRAPE_HEADER in request.headers:
            body, content_type = self._metrics.exposition(request.headers.get("Accept", ""))
            return web.Response(body=body, headers={"Content-Type": content_type})
        body, content_type = self._metrics.exposition("")
        return web.Response(body=body + self._in_work.exposition(), headers={"Content-Type": content_type})

    async def _models(self, _: web.Request) -> web.Response:
        card = {"id": self._options.served_name, "object": "model", "owned_by": "rewardpool", "max_model_len": None}
        return web.json_response({"object": "list", "data": [card]})

    async def _not_scored(self, _: web.Request) -> web.Response:
        # Any other status would count against this worker at the router, which hands these paths on.
        error = CallerError(code="invalid_sample", message=f"this worker scores {SCORE_PATH}")
        return web.json_response(self._refused(error))

    async def _score(self, request: web.Request) -> web.Response:
        header = request.headers.get(REQUEST_ID_HEADER)
        # Bytes that are no UTF-8 arrive as lone surrogates.
        request_id = None if header is None else header.encode(errors="surrogateescape")
        revision = self._options.revision
        refused = refused_for_another(request_id, revision)
        try:
            answer, seconds = (refused, 0.0) if refused else await self._answer(request)
        except StarvedError as error:
            return _error(503, "starved", str(error))
        worker = worker_fields(self._name, seconds=seconds, ready_seconds=self._readiness.ready_seconds())
        return web.json_response({**answer, **echo(request_id, revision=revision, worker=worker)})

    async def _answer(self, request: web.Request) -> tuple[dict[str, Any], float]:
        async with self._counted():
            try:
                body = await read_body(request)
            except web.HTTPRequestEntityTooLarge:
                message = f"the request has more than {self._options.max_body_bytes} bytes"
                return self._refused(CallerError(code="sample_too_long", message=message)), 0.0
            except web.HTTPBadRequest as error:
                return self._refused(CallerError(code="invalid_sample", message=error.text or error.reason)), 0.0
            request_id = request.headers.get(REQUEST_ID_HEADER, "")
            if not request_id:
                return await self._scored(body, "")
            key = (request_id, body)
            while (running := self._running.get(key)) is not None:
                await asyncio.wait({running})
                if not running.cancelled():
                    return running.result()
            running = self._running[key] = asyncio.get_running_loop().create_future()
            try:
                answer = await self._scored(body, request_id)
            except StarvedError as error:
                running.set_exception(error)
                running.exception()  # there may be no other attempt
                raise
            else:
                running.set_result(answer)
                return answer
            finally:
                del self._running[key]
                running.cancel()

    async def _scored(self, body: bytes, request_id: str) -> tuple[dict[str, Any], float]:
        try:
            samples = parse_input(body, served=self._options.served_name)
        except InvalidRequestError as error:
            return self._refused(CallerError(code="invalid_sample", message=str(error))), 0.0
        except OtherModelError as error:
            return self._refused(error.refusal), 0.0
        # Trainers ask by the id alone, whatever else the header says.
        named, _, _ = request_id.partition(";")
        with self._in_work.request(named, calls=len(samples)) as work:
            # One sample, as nearly every request has, needs no task of its own, which costs 20 µs.
            alone = len(samples) == 1
            calls = [self._runner.run(sample, label=request_id, started=work.started) for sample in samples]
            outcomes = [await calls[0]] if alone else await asyncio.gather(*calls)
            seconds = work.seconds()
        data = []
        for index, outcome in enumerate(outcomes):
            if isinstance(outcome, Failed) and outcome.fault == "infra":
                self._metrics.failed("starved", outcome.fault)
                raise StarvedError(outcome.message)
            if isinstance(outcome, Failed):
                where = f"input {index}: " if len(outcomes) > 1 else ""
                message = f"{where}{outcome.message}"
                refusal = CallerError(code="function_failed", message=message, fault=outcome.fault)
                return self._refused(refusal), seconds
            data.append(answer_item(index, outcome))
        self._readiness.scored()
        self._metrics.scored(len(data))
        return {"object": "list", "model": self._options.served_name, "data": data, "usage": {}}, seconds

    def _refused(self, error: CallerError) -> dict[str, Any]:
        self._metrics.failed(error.code, error.decided_fault)
        return error.to_wire()

    async def _probe(self) -> dict[str, Any]:
        await self._runner.start()
        if self._options.probe_sample is not None:
            outcome = await self._runner.run(self._options.probe_sample, label="the probe sample")
            if isinstance(outcome, Failed):
                whose = _WHOSE[outcome.fault]
                raise RuntimeError(
                    f"the sample of --probe-sample got no score, by a fault of {whose}: {outcome.message}"
                )
        sandbox = {"missing": list(self._runner.reached)}
        return {"model": self._options.served_name, "max_model_len": None, "sandbox": sandbox}

    @contextlib.asynccontextmanager
    async def _counted(self) -> AsyncIterator[None]:
        self._in_flight += 1
        self._empty.clear()
        try:
            with self._metrics.request():
                yield
        finally:
            self._in_flight -= 1
            if self._in_flight == 0:
                self._empty.set()


def parse_input(body: bytes, *, served: str) -> list[FunctionArguments]:
    """Read the samples of a request to the worker that serves that name.

    Raises:
        InvalidRequestError: not the contract's request, or not a sample.
        OtherModelError: the request is for another model.
    """
    try:
        request = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(f"the request is not JSON: {error}") from None
    model = request.get("model") if isinstance(request, dict) else None
    if not isinstance(model, str):
        raise InvalidRequestError("`model` must be a text")
    if model not in (served, ANY_MODEL):
        raise OtherModelError(model, served)
    given = request.get("input")
    texts = [given] if isinstance(given, str) else given
    if not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts):
        raise InvalidRequestError("`input` must be one sample as a JSON text, or a list of them")
    return [parse_sample(text) for text in texts]


def answer_item(index: int, scored: FunctionScore) -> dict[str, Any]:
    """Return the entry of an answer's `data` for one sample."""
    item = {"object": "embedding", "index": index, "embedding": [scored.value]}
    return {**item, "info": scored.info} if scored.info else item


def _error(status: int, code: str, message: str) -> web.Response:
    return web.json_response({"error": {"code": code, "message": message}}, status=status)


def make_runner(options: Options) -> FunctionRunner:
    """The runner the options ask for."""
    env, boundary = environment(options.env, os.environ), options.boundary(os.environ)
    if options.modules and "PYTHONPATH" in env:
        env["PYTHONPATH"] = options.modules  # for the programs that the function starts
    source = FunctionSource(name=options.function, reference=options.function, folders=options.folders)
    return ProcessRunner(source, limits=options.limits, env=env, boundary=boundary)


def check_sandbox(reached: Sequence[str], on_missing: OnMissing) -> None:
    """Refuse to serve, or say in the log, that the function reaches what it should not.

    Raises:
        SandboxMissingError: it does, and is not to be served so.
    """
    if reached and on_missing == "Refuse":
        raise SandboxMissingError("; ".join(reached))
    if reached:
        log.warning("the function is not sandboxed: %s", "; ".join(reached))


async def serve(options: Options) -> None:
    """Serve until SIGTERM or SIGINT, then finish what is in flight.

    Raises:
        FunctionLoadError: there is no such function, or it cannot be called.
        SandboxMissingError: it would reach what it should not.
        OSError: the address cannot be listened on.
    """
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    runner = make_runner(options)
    server = FunctionServer(runner, options)
    application = Runner(server.application(), shutdown_timeout=1.0)
    try:
        await runner.start()
        check_sandbox(runner.reached, options.on_missing)
        await application.setup()
        await web.TCPSite(application, options.host, options.port, reuse_port=options.shared_port).start()
        log.info("serving %s on %s:%d", options.function, options.host, options.port)
        await stop.wait()
        if left := await server.drain(options.drain_seconds):
            log.warning("%d requests were still in flight after %g seconds", left, options.drain_seconds)
    finally:
        await application.cleanup()
        await runner.close()


def _number_of(kind: type[float], *, least: float, most: float = math.inf) -> Callable[[str], float]:
    """A reader of an option's number, which argparse calls by the function's name."""

    def number(text: str) -> float:
        value = kind(text)
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"{text} is not between {least:g} and {most:g}")
        return value

    return number


def parser() -> argparse.ArgumentParser:
    """The command line. Of the standard library: what a richer one takes to import, a pool at zero would wait for."""
    made = argparse.ArgumentParser(
        prog="python -m rewardpool_worker.function_server",
        description="Serve a Python reward function behind RewardPool's scoring contract.",
        epilog="example: python -m rewardpool_worker.function_server --function rewards:compute_score --port 8000",
        allow_abbrev=False,
    )
    environ = os.environ
    key_file, max_body_bytes = environ.get(names.ENV_KEY_FILE), environ.get(names.ENV_MAX_BODY_BYTES)
    count, port = _number_of(int, least=1), _number_of(int, least=1, most=65535)
    seconds, any_count = _number_of(float, least=0.0), _number_of(int, least=0)
    option = made.add_argument
    option("--function", required=True, help="the reward function, as module:function")
    option("--served-name", default="function", help="the `model` of a request")
    option("--host", default="127.0.0.1", help="address to listen on")
    option("--port", type=port, default=names.WORKER_PORT, help="port to listen on")
    option("--modules", default="", help="folders of the function's modules, which this server does not import from")
    option("--shared-port", action="store_true", help="listen there beside others of this user, who holds the port")
    limit = _number_of(float, least=0.001)
    option("--concurrency", type=count, help="calls at once (default: its processors; 32 of an async function)")
    option("--cpu-seconds", type=limit, default=CallLimits.cpu_seconds, help="processor time of a call")
    option(
        "--idle-seconds", type=limit, default=CallLimits.idle_seconds, help="time that a call may wait for other things"
    )
    option("--memory-mib", type=any_count, default=CallLimits.memory_mib, help="memory of a call; 0: no limit")
    option(
        "--calls-per-process",
        type=any_count,
        help="calls until a process is replaced; 0: never (default: 1, or 0 with rewardpool.sandbox)",
    )
    option("--env", action="append", default=[], metavar="NAME", help=f"a variable for the function; {ALL}: all")
    option("--network", choices=get_args(SandboxNetwork), default="Pod", help="None: the function cannot make sockets")
    option("--on-missing", choices=get_args(OnMissing), default="Weaken", help="where the machine lacks a boundary")
    option("--drain-seconds", type=seconds, default=60.0, help="longest wait on SIGTERM")
    option("--max-body-bytes", type=count, default=max_body_bytes or Settings.max_body_bytes, help="longest request")
    option("--key-file", type=Path, default=key_file or None, help="file with the pool's key")
    option("--revision", default=environ.get(names.ENV_REVISION, ""), help="the pool's revision, which answers name")
    option("--probe-sample", type=Path, help="JSON file with a sample to score before the worker is ready")
    return made


def _sample_in(file: Path) -> FunctionArguments:
    """Read the probe sample.

    Raises:
        InvalidRequestError: there is none in the file.
    """
    try:
        return parse_sample(file.read_text())
    except (OSError, ValueError) as error:
        raise InvalidRequestError(f"--probe-sample {file}: {error}") from None


def options_of(read: argparse.Namespace) -> Options:
    """The options of a command line.

    Raises:
        InvalidRequestError: the probe sample is none.
    """
    given = dict(vars(read))
    file, env = given.pop("probe_sample"), tuple(given.pop("env"))
    return Options(**given, env=env, probe_sample=_sample_in(file) if file else None)


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve a Python reward function behind RewardPool's scoring contract; returns the exit status."""
    read = parser().parse_args(arguments)
    make_home_writable(os.environ)
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    try:
        asyncio.run(serve(options_of(read)))
    except (FunctionLoadError, SandboxMissingError, OSError, ValueError) as error:
        log.error("not started: %s: %s", type(error).__name__, error)  # noqa: TRY400 - a reason, not a crash
        return EXIT_NOT_STARTED
    return 0


if __name__ == "__main__":
    sys.exit(main())
