"""StandInMetricsAdapter: serves external metrics to a real HPA, which prometheus-adapter or KEDA would do on a cluster.

It speaks `external.metrics.k8s.io/v1beta1` behind an APIService, takes calls from the API server alone (by the front
proxy's certificate, as every extension API server does), and asks for the figure at the very moment of a call: a
metrics pipeline without any lag, which no real one is.
"""

import asyncio
import base64
import ssl
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import urlsplit

import yaml
from aiohttp import web

from cluster.certificates import Authority
from cluster.processes import free_port

GROUP: Final = "external.metrics.k8s.io"
VERSION: Final = "v1beta1"
NAMESPACE: Final = "kube-system"
SERVICE: Final = "stand-in-metrics-adapter"
_ROOT: Final = f"/apis/{GROUP}/{VERSION}"
_START_SECONDS: Final = 30.0

Read = Callable[[str, str, Mapping[str, str]], float | None]
"""From namespace, metric name and labels to the figure; None where there is none. Called in a thread."""


class StandInMetricsAdapter:
    """An adapter in a thread of its own, listening where the API server does; a context manager.

    Args:
        kubectl: runs kubectl as an administrator of a cluster whose API server runs on this machine.
        folder: for keys.
        read: gives the figures.
    """

    def __init__(self, kubectl: Callable[..., str], folder: Path, *, read: Read) -> None:
        self._kubectl = kubectl
        self._folder = folder
        self._read = read
        self._runner: web.AppRunner | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="stand-in-metrics-adapter")

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        server = self._kubectl("config", "view", "--minify", "-o", "jsonpath={.clusters[0].cluster.server}")
        address = urlsplit(server).hostname or ""
        port = free_port(address)
        authority = Authority(self._folder)
        trust = self._trust(authority)
        self._thread.start()
        try:
            asyncio.run_coroutine_threadsafe(self._listen(address, port, trust), self._loop).result(timeout=10)
            self._kubectl("apply", "-f", "-", input=yaml.safe_dump_all(manifests(address, port, authority)))
            wait = ["wait", "--for=condition=Available", f"apiservice/{VERSION}.{GROUP}"]
            self._kubectl(*wait, f"--timeout={_START_SECONDS:.0f}s")
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            # One that does not answer keeps the garbage collector from knowing all kinds.
            self._kubectl("delete", "apiservice", f"{VERSION}.{GROUP}")
            self._kubectl("delete", "service", SERVICE, f"--namespace={NAMESPACE}")
        finally:
            self._stop()

    def _stop(self) -> None:
        if self._runner is not None:
            asyncio.run_coroutine_threadsafe(self._runner.cleanup(), self._loop).result(timeout=10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=20)
        self._loop.close()

    def _trust(self, authority: Authority) -> ssl.SSLContext:
        certificate, key = authority.issue("server", common_name=SERVICE, hosts=[f"{SERVICE}.{NAMESPACE}.svc"])
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificate, key)
        front_proxy = "jsonpath={.data.requestheader-client-ca-file}"
        where = ["configmap", "extension-apiserver-authentication", f"--namespace={NAMESPACE}"]
        context.load_verify_locations(cadata=self._kubectl("get", *where, "-o", front_proxy))
        context.verify_mode = ssl.CERT_REQUIRED
        return context

    async def _listen(self, address: str, port: int, trust: ssl.SSLContext) -> None:
        app = web.Application()
        app.router.add_get(_ROOT, self._resources)
        app.router.add_get(f"{_ROOT}/namespaces/{{namespace}}/{{metric}}", self._values)
        # A call that waits for its figure is not waited for at the end.
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
        await self._runner.setup()
        await web.TCPSite(self._runner, address, port, ssl_context=trust).start()

    async def _resources(self, _: web.Request) -> web.Response:
        # Nobody looks a metric up here before asking for it.
        return web.json_response(
            {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": f"{GROUP}/{VERSION}", "resources": []}
        )

    async def _values(self, request: web.Request) -> web.Response:
        metric = request.match_info["metric"]
        labels = labels_of(request.query.get("labelSelector", ""))
        value = await asyncio.to_thread(self._read, request.match_info["namespace"], metric, labels)
        found = [] if value is None else [item(metric, labels, value)]
        kind = {"kind": "ExternalMetricValueList", "apiVersion": f"{GROUP}/{VERSION}"}
        return web.json_response({**kind, "metadata": {}, "items": found})


def labels_of(selector: str) -> dict[str, str]:
    """The labels of a selector that demands equality only, such as `pool=a,state=waiting`."""
    return dict(term.split("=", 1) for term in selector.split(",") if term)


def item(metric: str, labels: Mapping[str, str], value: float) -> dict[str, Any]:
    """One value as the API gives it, exact to a thousandth."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"metricName": metric, "metricLabels": dict(labels), "timestamp": now, "value": f"{round(value * 1000)}m"}


def manifests(address: str, port: int, authority: Authority) -> list[dict[str, Any]]:
    """The APIService, and the Service by which the API server finds an address outside of the cluster."""
    return [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": SERVICE, "namespace": NAMESPACE},
            "spec": {"type": "ExternalName", "externalName": address},
        },
        {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": f"{VERSION}.{GROUP}"},
            "spec": {
                "group": GROUP,
                "version": VERSION,
                "groupPriorityMinimum": 100,
                "versionPriority": 100,
                "caBundle": base64.b64encode(authority.certificate.read_bytes()).decode(),
                "service": {"name": SERVICE, "namespace": NAMESPACE, "port": port},
            },
        },
    ]
