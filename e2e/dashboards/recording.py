"""A run on a cluster, as Prometheus saw it: recorded beside it, kept as one small file, and given back to a Prometheus.

The file is OpenMetrics text, gzipped: what `promtool tsdb dump` says of every series that a dashboard names.
"""

import gzip
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final

import yaml

from autoscaling.manifests import FUNCTION, NAMESPACE
from cluster import binaries
from cluster.contract import Cluster
from cluster.processes import ClusterError, Daemon, free_port, kill, output_of
from cluster.progress import Say
from dashboards.panels import Query, dashboards, metric_names
from dashboards.prometheus import Prometheus, Series, prometheus
from installation import NAMESPACE as OPERATOR_NAMESPACE
from rewardpool_api import names

RECORDED: Final = Path(__file__).with_name("recorded_run.om.gz")
SCRAPE_SECONDS: Final = 5
LOOK_SECONDS: Final = 2.0
RATE_INTERVAL: Final = f"{4 * SCRAPE_SECONDS}s"
"""What Grafana makes of `$__rate_interval` at this interval."""
VARIABLES: Final = {"__rate_interval": RATE_INTERVAL, "namespace": NAMESPACE, "pool": FUNCTION}
"""What Grafana fills in, and what a person chooses above a dashboard, in the recorded run."""

_LINE: Final = re.compile(r"^\{__name__=\"(?P<name>[^\"]+)\"(?:, )?(?P<labels>.*)\} (?P<value>\S+) (?P<millis>\d+)$")

_BETWEEN_LABELS: Final = re.compile(r'(?<!\\)", ')


@dataclass(frozen=True)
class Recording:
    """A run that a Prometheus has in its database."""

    storage: Path
    start: float
    """Of its first sample, in seconds since 1970."""
    end: float


@contextmanager
def recorder(cluster: Cluster, *, namespace: str, folder: Path, say: Say) -> Iterator[None]:
    """Scrape the operator, and the routers and workers of a namespace, into `folder`/data while the context lasts.

    Prometheus is not in the cluster, so it reaches them through the API server; the labels are those that the chart's
    ServiceMonitor and PodMonitor lead to. Debian's Prometheus has no discovery for Kubernetes, so the pods are listed
    for it every `LOOK_SECONDS`.
    """
    port = free_port()
    api_server = f"127.0.0.1:{port}"
    kubectl = binaries.ensure("kubectl", say=say)["kubectl"]
    proxy = Daemon(
        "kubectl proxy",
        [kubectl, "proxy", f"--port={port}"],
        log=folder / "proxy.log",
        environment={"KUBECONFIG": str(cluster.kubeconfig)},
    )
    stopped = Event()

    def look() -> None:
        while not stopped.wait(LOOK_SECONDS):
            try:
                _write_targets(cluster, api_server, namespace=namespace, folder=folder)
            except ClusterError as error:
                say(f"  Prometheus keeps its targets: {error}")

    looking = Thread(target=look, name="targets", daemon=True)
    try:
        with prometheus(folder / "data", config=_configuration(folder), log=folder / "prometheus.log"):
            looking.start()
            yield
    finally:
        stopped.set()
        if looking.ident is not None:
            looking.join()
        kill([proxy])


def keep(folder: Path, path: Path) -> None:
    """Write what `recorder` left in `folder` to `path`, less what no dashboard names."""
    named = {name for board in dashboards() for panel in board.panels for query in panel.queries
             for name in metric_names(query.filled(VARIABLES))}  # fmt: skip
    lines = []
    for line in output_of("promtool", "tsdb", "dump", folder / "data").splitlines():
        found = _LINE.match(line)
        # Where a series ends, its marker for that reads NaN, and would be a number that is none in all sums after it.
        if found and found["name"] in named and found["value"] != "NaN":
            seconds = int(found["millis"]) / 1000
            # OpenMetrics has no space there, and the dump has.
            labels = _BETWEEN_LABELS.sub('",', found["labels"])
            lines.append(f"{found['name']}{{{labels}}} {found['value']} {seconds:.3f}")
    with path.open("wb") as file, gzip.GzipFile(filename="", fileobj=file, mode="wb", mtime=0) as zipped:
        zipped.write("\n".join([*lines, "# EOF", ""]).encode())


def restore(path: Path, folder: Path) -> Recording:
    """Make a database of a kept recording in `folder`/data."""
    text = gzip.decompress(path.read_bytes()).decode()
    (plain := folder / "recorded_run.om").write_text(text)
    output_of("promtool", "tsdb", "create-blocks-from", "openmetrics", plain, folder / "data", deadline_seconds=120)
    times = _times(text.splitlines())
    return Recording(storage=folder / "data", start=min(times), end=max(times))


def asking(server: Prometheus, run: Recording) -> Callable[[Query], list[Series]]:
    """A function that asks for a query's series over the whole of a run."""

    def ask(query: Query) -> list[Series]:
        return server.query_range(query.filled(VARIABLES), start=run.start, end=run.end, step_seconds=SCRAPE_SECONDS)

    return ask


def names_of(path: Path) -> frozenset[str]:
    """The metrics of a kept recording."""
    lines = gzip.decompress(path.read_bytes()).decode().splitlines()
    return frozenset(line.partition("{")[0] for line in lines if not line.startswith("#"))


def _times(lines: Sequence[str]) -> list[float]:
    return [float(line.rpartition(" ")[2]) for line in lines if not line.startswith("#")]


def _configuration(folder: Path) -> str:
    def job(name: str, *, honor_labels: bool) -> dict[str, object]:
        files = [{"files": [str(_targets_file(folder, name))]}]
        return {"job_name": name, "honor_labels": honor_labels, "file_sd_configs": files}

    scraping = {"scrape_interval": f"{SCRAPE_SECONDS}s", "scrape_timeout": f"{SCRAPE_SECONDS}s"}
    jobs = [job("operator", honor_labels=True), job("pools", honor_labels=False)]
    return yaml.safe_dump({"global": scraping, "scrape_configs": jobs})


def _targets_file(folder: Path, job: str) -> Path:
    return folder / f"{job}.json"


def _write_targets(cluster: Cluster, api_server: str, *, namespace: str, folder: Path) -> None:
    for job, of in (("operator", OPERATOR_NAMESPACE), ("pools", namespace)):
        pods = json.loads(cluster.kubectl("get", "pods", f"--namespace={of}", "-o", "json"))["items"]
        path = _targets_file(folder, job)
        (written := path.with_suffix(".new")).write_text(json.dumps(list(_targets(pods, api_server, of=of))))
        written.replace(path)


def _targets(pods: Sequence[Mapping[str, Any]], api_server: str, *, of: str) -> Iterator[dict[str, object]]:
    """What tells metrics of running pods, with the labels that a PodMonitor gives it."""
    for pod in pods:
        # Engines tell theirs where they are asked for scores.
        labels = pod["metadata"].get("labels", {})
        told_by = "http" if labels.get(names.LABEL_COMPONENT) == names.COMPONENT_WORKER else "metrics"
        ports = [port for container in pod["spec"]["containers"] for port in container.get("ports", ())]
        for number in (port["containerPort"] for port in ports if port.get("name") == told_by):
            name = pod["metadata"]["name"]
            if pod["status"]["phase"] == "Running":
                own = {
                    "__metrics_path__": f"/api/v1/namespaces/{of}/pods/{name}:{number}/proxy/metrics",
                    "instance": f"{pod['status']['podIP']}:{number}",
                    "namespace": of,
                    "pod": name,
                }
                pool = {"rewardpool_dev_pool": labels[names.LABEL_POOL]} if names.LABEL_POOL in labels else {}
                yield {"targets": [api_server], "labels": {**own, **pool}}
