"""Detection of callers outside a pool's cluster, for whom its address leads nowhere."""

import asyncio
import socket
from urllib.parse import urlsplit

from rewardpool._discovery.endpoint import Endpoint
from rewardpool._discovery.pool_sources import KubernetesSource
from rewardpool.errors import PoolAccessError
from rewardpool_api import names


async def check_address(endpoint: Endpoint) -> None:
    """Raise PoolAccessError where a kubeconfig led to a pool whose address is not known here."""
    # A pod's name server may be away for a moment; there the samples wait for it, within their deadlines.
    if not isinstance(endpoint.source, KubernetesSource) or endpoint.source.is_in_pod:
        return
    address = urlsplit(endpoint.url)
    try:
        await asyncio.get_running_loop().getaddrinfo(address.hostname, address.port)
    except socket.gaierror as error:
        if error.errno == socket.EAI_AGAIN:
            return
        service, namespace = (address.hostname or "").partition(".")[0], endpoint.pool.partition("/")[0]
        secure = f", ${names.ENV_CA_FILE} and that name in /etc/hosts" if address.scheme == "https" else ""
        raise PoolAccessError(
            f"RewardPool {endpoint.pool} ({endpoint.origin}) is at {endpoint.url}, a name that only the cluster's pods"
            f" know ({error.strerror}). Run this in a pod, or forward the port, `kubectl --namespace {namespace}"
            f" port-forward service/{service} {address.port}`, and set ${names.ENV_URL} and"
            f" ${names.ENV_KEY_FILE}{secure}"
            " (docs/production.md, From outside the cluster)"
        ) from error
