"""The API server, asked with the viewers' own tokens: the page has no credentials, and shows nobody more than kubectl.

Where an operator that is run by hand serves the page, even its client certificate is no part of these calls: the API
server would take that for who asks.
"""

import json
import os
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import aiohttp

from rewardpool_kube.configuration import Configuration, proxy_of_environment
from rewardpool_kube.resources import Object
from rewardpool_runtime.bounded import AnswerTooLargeError, read_text

TIMEOUT: Final = aiohttp.ClientTimeout(total=10, sock_connect=3)
CONNECTIONS: Final = 8
MAX_REFUSAL_BYTES: Final = 64 << 10


class ApiServerAwayError(OSError):
    """The API server does not answer."""


@dataclass(frozen=True, kw_only=True)
class Address:
    """Address of the API server, without credentials."""

    url: str
    authority: str | None = None
    """File of the certificates that it is known by; None for those of the system."""
    verifies: bool = True
    proxy: str | None = None

    @classmethod
    def from_configuration(cls, configuration: Configuration) -> Self:
        return cls(
            url=configuration.host,
            authority=configuration.ssl_ca_cert,
            verifies=configuration.verify_ssl,
            proxy=configuration.proxy,
        )

    @classmethod
    def of_pod(cls, authority: Path | None, environ: Mapping[str, str] = os.environ) -> Self:
        """Return that which every pod is given by its environment.

        Raises:
            SystemExit: This is no pod.
        """
        host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT")
        if not host or not port:
            raise SystemExit("the page needs a pod: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set")
        url = f"https://{f'[{host}]' if ':' in host else host}:{port}"
        return cls(url=url, authority=None if authority is None else str(authority))


class ApiServer:
    """Connections to the API server without credentials of their own."""

    def __init__(self, session: aiohttp.ClientSession, url: str, *, proxy: str | None = None) -> None:
        self._session = session
        self._url = url.rstrip("/")
        self._proxy = proxy

    @classmethod
    @asynccontextmanager
    async def open(cls, address: Address) -> AsyncIterator[Self]:
        connector = aiohttp.TCPConnector(ssl=_trust(address), limit=CONNECTIONS)
        async with aiohttp.ClientSession(connector=connector, timeout=TIMEOUT) as session:
            yield cls(session, address.url, proxy=address.proxy or proxy_of_environment(address.url))

    @asynccontextmanager
    async def request(
        self, path: str, *, token: str, query: Mapping[str, str] | None = None, body: Object | None = None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a GET, or with a body a POST, as the token's owner.

        Raises:
            ApiServerAwayError: It does not answer, or not to its end; also where the answer is read.
        """
        try:
            async with self._session.request(
                "GET" if body is None else "POST",
                f"{self._url}{path}",
                params=query,
                json=body,
                headers={"Authorization": f"Bearer {token}"},
                proxy=self._proxy,
                allow_redirects=False,
            ) as response:
                yield response
        except (aiohttp.ClientError, TimeoutError) as error:
            # Not the error's own words: a header that could not be sent would be in them.
            raise ApiServerAwayError(f"the API server does not answer ({type(error).__name__})") from None


async def refusal_of(response: aiohttp.ClientResponse) -> str:
    """Return the message of a refusal; empty where it has none."""
    try:
        said: Any = json.loads(await read_text(response, limit_bytes=MAX_REFUSAL_BYTES))
    except (AnswerTooLargeError, ValueError):
        return ""
    return str(said.get("message") or "") if isinstance(said, dict) else ""


def _trust(address: Address) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=address.authority)
    if not address.verifies:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
