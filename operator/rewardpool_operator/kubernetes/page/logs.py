"""The end of a pod's log, read with the viewer's own token."""

from typing import Final

from rewardpool_kube.resources import PODS
from rewardpool_operator.kubernetes.page.api_server import ApiServer, refusal_of
from rewardpool_page.source import MAX_LOG_BYTES, NotShownError

TAIL_LINES: Final = 1000
LIMIT_BYTES: Final = 1 << 20


async def end_of_log(server: ApiServer, namespace: str, pod: str, container: str, *, token: str) -> str:
    """Return the last `MAX_LOG_BYTES` of the log, as far as its last lines are not longer.

    Raises:
        NotShownError: there is none yet, or the token may not read it; the API server's words say so.
        OSError: the API server does not answer.
    """
    query = {"container": container, "tailLines": str(TAIL_LINES), "limitBytes": str(LIMIT_BYTES)}
    async with server.request(PODS.path(namespace, pod, "log"), token=token, query=query) as response:
        if response.status != 200:
            raise NotShownError(await refusal_of(response) or f"no log ({response.status})")
        text = bytearray()
        async for part in response.content.iter_any():
            text = (text + part)[-MAX_LOG_BYTES:]
    return text.decode(errors="replace")
