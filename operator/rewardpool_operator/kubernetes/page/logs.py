"""The end of a pod's log, read with the viewer's own token: the page shows nobody more of it than kubectl would.

The operator's own credentials are no part of these calls, not even its client certificate where it has one: the API
server would take that for who asks. So it needs no right to read logs.
"""

import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final, Self

import aiohttp

from rewardpool_kube.configuration import Configuration, proxy_of_environment
from rewardpool_kube.resources import PODS
from rewardpool_page.source import MAX_LOG_BYTES, LogNotFoundError
from rewardpool_runtime.bounded import AnswerTooLargeError, read_text

TAIL_LINES: Final = 1000
LIMIT_BYTES: Final = 1 << 20
"""Of a log whose lines are long."""
MAX_REFUSAL_BYTES: Final = 64 << 10
"""Of a Status object, whose message says why there is no log."""
TIMEOUT: Final = aiohttp.ClientTimeout(total=10, sock_connect=3)


class PodLogs:
    """An API server, asked for logs."""

    def __init__(self, session: aiohttp.ClientSession, host: str, *, proxy: str | None = None) -> None:
        self._session = session
        self._host = host.rstrip("/")
        self._proxy = proxy

    @classmethod
    @asynccontextmanager
    async def open(cls, configuration: Configuration) -> AsyncIterator[Self]:
        """With connections of its own."""
        host = configuration.host
        connector = aiohttp.TCPConnector(ssl=_trust(configuration), limit=8)
        async with aiohttp.ClientSession(connector=connector, timeout=TIMEOUT) as session:
            yield cls(session, host, proxy=configuration.proxy or proxy_of_environment(host))

    async def end(self, namespace: str, pod: str, container: str, *, token: str) -> str:
        """The last `MAX_LOG_BYTES` of the log, as far as its last lines are not longer.

        Raises:
            LogNotFoundError: there is none yet, or the token may not read it; the API server's words say so.
            OSError: the API server does not answer.
        """
        query = {"container": container, "tailLines": str(TAIL_LINES), "limitBytes": str(LIMIT_BYTES)}
        url, headers = f"{self._host}{PODS.path(namespace, pod, 'log')}", {"Authorization": f"Bearer {token}"}
        try:
            async with self._session.get(
                url, params=query, headers=headers, proxy=self._proxy, allow_redirects=False
            ) as response:
                if response.status != 200:
                    raise LogNotFoundError(
                        _words(await read_text(response, limit_bytes=MAX_REFUSAL_BYTES))
                        or f"no log ({response.status})"
                    )
                text = bytearray()
                async for part in response.content.iter_any():
                    text = (text + part)[-MAX_LOG_BYTES:]
        except (aiohttp.ClientError, AnswerTooLargeError, TimeoutError) as error:
            # Not the error's own words: a header that could not be sent would be in them.
            raise OSError(f"the API server does not answer ({type(error).__name__})") from None
        return text.decode(errors="replace")


def _trust(configuration: Configuration) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _words(text: str) -> str:
    """The message of a refusal."""
    try:
        said: Any = json.loads(text)
    except ValueError:
        return ""
    return str(said.get("message") or "") if isinstance(said, dict) else ""
