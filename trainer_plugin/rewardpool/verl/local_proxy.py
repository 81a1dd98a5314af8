"""An address on this machine's loopback from which requests go on to a pool.

Reward functions written for verl send requests to `http://{reward_router_address}/v1/chat/completions`: without a key,
to one router, and most of them without a retry. Behind this address such a request is the client's: it has the pool's
key, goes over TLS where the pool has that, follows the pool when it moves, and is sent again when a worker dies.

The address has a path of random letters in it, so that no other user of the machine can use the pool by it.
"""

import json
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from rewardpool._client.pool import Pool
from rewardpool.errors import DeadlineError, PoolError, RewardPoolError, SampleError
from rewardpool_runtime.http_server import Runner, read_body

MAX_REQUEST_BYTES = 16 << 20
HOST = "127.0.0.1"


@asynccontextmanager
async def open_door(pool: Pool) -> AsyncIterator[str]:
    """Listen, and yield the address: host, port and path, without a scheme and without a slash at its end."""
    secret = secrets.token_urlsafe(24)

    async def forward(request: web.Request) -> web.Response:
        return await _answer(pool, request)

    application = web.Application(client_max_size=MAX_REQUEST_BYTES)
    application.router.add_post(f"/{secret}/{{path:.+}}", forward)
    runner = Runner(application)
    await runner.setup()
    try:
        site = web.TCPSite(runner, HOST, 0)
        await site.start()
        yield f"{HOST}:{runner.addresses[0][1]}/{secret}"
    finally:
        await runner.cleanup()


async def _answer(pool: Pool, request: web.Request) -> web.Response:
    try:
        content = json.loads(await read_body(request))
    except (ValueError, RecursionError):
        return _refusal(400, "the body is not JSON")
    if not isinstance(content, dict):
        return _refusal(400, "the body is not a JSON object")
    try:
        return web.json_response(await pool.post("/" + request.match_info["path"], content))
    except RewardPoolError as error:
        return _refusal(_status_of(error), str(error))


def _status_of(error: RewardPoolError) -> int:
    """A status that says whether the same request may do later; it was retried already."""
    match error:
        case DeadlineError():
            return 504
        case PoolError():
            return 503
        case SampleError():
            return 422
        case _:
            return 500


def _refusal(status: int, message: str) -> web.Response:
    return web.json_response({"error": {"message": message}}, status=status)
