"""The containers of a pool's pods, and their ports, by name: what is rendered, and what is read in a pod."""

from typing import Final

CONTAINER_WORKER: Final = "worker"
CONTAINER_ROUTER: Final = "router"
CONTAINER_GATEWAY: Final = "gateway"
CONTAINER_DOWNLOAD: Final = "download"
ADAPTER_DOWNLOAD: Final = "download-adapter-"
PORT_HTTP: Final = "http"
PORT_METRICS: Final = "metrics"


def is_download(container: str) -> bool:
    """Return whether an init container of this name is a download of ours."""
    return container == CONTAINER_DOWNLOAD or container.startswith(ADAPTER_DOWNLOAD)
