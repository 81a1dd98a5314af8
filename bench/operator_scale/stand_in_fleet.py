"""StandInFleet: one process that answers for every router and every worker of a cluster whose pods have no process.

kwok's pods have addresses and nothing behind them. Where the whole network of the pods is local (`ip route add
local`), one socket that listens on every address gets what is meant for any of them, and the socket's own address tells
for whom. So the operator runs as it is, and asks what it would ask real pods:

    8080  routers: the worker list, kept for each address; a worker that is added is on the list at once
    9090  their metrics: nobody waits, nothing is in flight
    8000  workers: scoring since they were started, and idle

A pod's address may be given to a later pod, which then starts with the list of the one before. Real routers start with
an empty one.

    python -m operator_scale.stand_in_fleet
"""

import asyncio
import itertools
from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from rewardpool_api import names

MAX_MODEL_LEN = 4096
METRICS = "smg_http_connections_active 0\nsmg_worker_requests_active 0\nsmg_worker_retries_total 0\n"

Answer = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class StandInFleet:
    """The worker lists of all routers, by the router's address."""

    def __init__(self) -> None:
        self._lists: dict[str, dict[str, str]] = defaultdict(dict)
        self._numbers = itertools.count(1)

    async def router(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer for the router whose address was called."""
        workers = self._lists[_called(request)]
        match request.method, request.path.strip("/").split("/"):
            case "GET", ["health"]:
                return web.Response(text="OK")
            case "GET", ["workers"]:
                return web.json_response({"workers": [_entry(*worker) for worker in workers.items()]})
            case "POST", ["workers"]:
                worker, url = f"worker-{next(self._numbers)}", (await request.json())["url"]
                workers[worker] = url
                return web.json_response({"worker_id": worker, "url": url}, status=202)
            case "GET", ["workers", worker] if worker in workers:
                return web.json_response(_entry(worker, workers[worker]))
            case "DELETE", ["workers", worker] if workers.pop(worker, None):
                return web.json_response({"worker_id": worker}, status=202)
            case _:
                return web.Response(status=404)

    async def metrics(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer for a router's Prometheus endpoint."""
        return web.Response(text=METRICS) if request.path == "/metrics" else web.Response(status=404)

    async def worker(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer for the worker whose address was called."""
        answers: dict[str, dict[str, Any]] = {
            names.READY_PATH: {"max_model_len": MAX_MODEL_LEN},
            names.LOAD_PATH: {"in_flight": 0},
            "/health": {},
        }
        if request.path not in answers:
            return web.Response(status=404)
        return web.json_response(answers[request.path])


def _called(request: web.BaseRequest) -> str:
    assert request.transport is not None  # a request that is being answered has its connection
    address: str = request.transport.get_extra_info("sockname")[0]
    return address


def _entry(worker: str, url: str) -> dict[str, Any]:
    return {"id": worker, "url": url, "load": 0, "is_healthy": True}


async def serve() -> None:
    """Listen on every address until the process is ended."""
    fleet = StandInFleet()
    ports: dict[int, Answer] = {
        names.ROUTER_PORT: fleet.router,
        names.ROUTER_METRICS_PORT: fleet.metrics,
        names.WORKER_PORT: fleet.worker,
    }
    for port, answer in ports.items():
        runner = web.ServerRunner(web.Server(answer, access_log=None))
        await runner.setup()
        await web.TCPSite(runner, host="0.0.0.0", port=port, backlog=4096).start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve())
