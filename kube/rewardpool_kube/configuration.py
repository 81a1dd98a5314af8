"""Where the API server is, and by what credentials and proxy it is reached."""

import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from kubernetes_asyncio import client as kubernetes_client
from kubernetes_asyncio import config as kubernetes_config

from rewardpool_kube.kubeconfig import load_kubeconfig


async def load_configuration(environ: Mapping[str, str] = os.environ) -> kubernetes_client.Configuration:
    """Credentials: $KUBECONFIG where it is set, else the pod's ServiceAccount, else `~/.kube/config`.

    Raises:
        kubernetes_config.ConfigException: none of them is there or usable.
    """
    configuration = kubernetes_client.Configuration()
    if "KUBECONFIG" not in environ and "KUBERNETES_SERVICE_HOST" in environ:
        kubernetes_config.load_incluster_config(client_configuration=configuration)
    elif "KUBECONFIG" not in environ and not (Path.home() / ".kube" / "config").exists():
        # The library would say that a file that nobody named lacks a key.
        raise kubernetes_config.ConfigException("none is configured; set $KUBECONFIG, or run in a pod")
    else:
        # Named here: the library reads the variable once, when it is imported.
        await load_kubeconfig(configuration, files=environ.get("KUBECONFIG"))
    return configuration


def proxy_of_environment(url: str) -> str | None:
    """The proxy that the environment names for a URL; None where it names none."""
    parts = urlsplit(url)
    if parts.hostname is None or proxy_bypass(parts.hostname):
        return None
    return getproxies().get(parts.scheme)
