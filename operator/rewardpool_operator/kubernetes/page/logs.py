"""The end of a pod's log, read with the viewer's own token."""

import json
from typing import Any, Final

import aiohttp

from rewardpool_kube.resources import PODS
from rewardpool_operator.kubernetes.page.api_server import ApiServer
from rewardpool_page.source import MAX_LOG_BYTES, LogNotFoundError
from rewardpool_runtime.bounded import AnswerTooLargeError, read_text

TAIL_LINES: Final = 1000
LIMIT_BYTES: Final = 1 << 20
"""Bytes of a log whose lines are long."""
MAX_REFUSAL_BYTES: Final = 64 << 10
"""Bytes of a Status object, whose message says why there is no log."""


async def end_of_log(server: ApiServer, namespace: str, pod: str, container: str, *, token: str) -> str:
    """Return the last `MAX_LOG_BYTES` of the log, as far as its last lines are not longer.

    Raises:
        LogNotFoundError: there is none yet, or the token may not read it; the API server's words say so.
        OSError: the API server does not answer.
    """
    query = {"container": container, "tailLines": str(TAIL_LINES), "limitBytes": str(LIMIT_BYTES)}
    async with server.asked(PODS.path(namespace, pod, "log"), token=token, query=query) as response:
        if response.status != 200:
            raise LogNotFoundError(await _refusal(response) or f"no log ({response.status})")
        text = bytearray()
        async for part in response.content.iter_any():
            text = (text + part)[-MAX_LOG_BYTES:]
    return text.decode(errors="replace")


async def _refusal(response: aiohttp.ClientResponse) -> str:
    """Return the message of a refusal; empty where it has none."""
    try:
        said: Any = json.loads(await read_text(response, limit_bytes=MAX_REFUSAL_BYTES))
    except (AnswerTooLargeError, ValueError):
        return ""
    return str(said.get("message") or "") if isinstance(said, dict) else ""
