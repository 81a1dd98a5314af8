"""The operator that is measured: `rewardpool operator run` as it is, with the rights it asks for and no others."""

import sys
from collections.abc import Iterable
from math import inf
from pathlib import Path

import aiohttp
import psutil
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families
from support.operator_process import restricted_kubeconfig

from cluster.control_plane import ControlPlane
from cluster.processes import Daemon, free_port

MEGABYTE = 1_000_000.0


class OperatorUnderTest:
    """A process that serves one namespace; with a `profile` under Python's profiler, which writes there in the end.

    Attributes:
        daemon: the process.
        rss_mb: most memory that `sample` saw, in megabytes.
    """

    def __init__(self, plane: ControlPlane, *, namespace: str, profile: Path | None = None) -> None:
        kubeconfig = restricted_kubeconfig(plane, namespace, url=plane.url)
        self._metrics = f"http://127.0.0.1:{(metrics_port := free_port())}/metrics"
        self._health = f"http://127.0.0.1:{(health_port := free_port())}/healthz"
        profiler: list[str | Path] = [sys.executable, "-m", "cProfile", "-o", profile] if profile else []
        command: list[str | Path] = [*profiler, Path(sys.executable).with_name("rewardpool"), "operator", "run"]
        command += [f"--namespace={namespace}"]
        command += [f"--health-port={health_port}", f"--metrics-port={metrics_port}"]
        log = plane.directory / "operator.log"
        self.daemon = Daemon("operator", command, log=log, environment={"KUBECONFIG": str(kubeconfig)})
        self.rss_mb = 0.0
        self._process = psutil.Process(self.daemon.pid)

    def end(self) -> None:
        """End it in order, so that a profile is written."""
        self.daemon.terminate()
        self.daemon.join()

    def sample(self) -> None:
        """Look at its memory."""
        self.rss_mb = max(self.rss_mb, self._process.memory_info().rss / MEGABYTE)

    def cpu_seconds(self) -> float:
        """User and system time since its start."""
        times = self._process.cpu_times()
        return times.user + times.system

    async def answers(self) -> bool:
        """Whether it runs and says that it is well."""
        try:
            async with aiohttp.ClientSession() as session, session.get(self._health) as answer:
                return answer.status == 200
        except aiohttp.ClientConnectionError:
            return False

    async def metrics(self) -> list[Metric]:
        """What it tells Prometheus."""
        async with aiohttp.ClientSession(raise_for_status=True) as session, session.get(self._metrics) as answer:
            return list(text_string_to_metric_families(await answer.text()))


def buckets_of(metrics: Iterable[Metric], name: str) -> dict[float, float]:
    """A histogram without labels: upper bound -> observations that are no greater."""
    samples = (sample for metric in metrics for sample in metric.samples if sample.name == f"{name}_bucket")
    return {float(sample.labels["le"]): sample.value for sample in samples}


def quantile(share: float, buckets: dict[float, float]) -> float | None:
    """The value below which that share of the observations lies, as Prometheus' `histogram_quantile` works it out.

    Inside a bucket the observations are taken for evenly spread; one beyond the last finite bound counts as that bound.
    None without observations.
    """
    bounds = sorted(buckets)
    if not bounds or buckets[bounds[-1]] == 0:
        return None
    rank = share * buckets[bounds[-1]]
    lower, before = 0.0, 0.0
    for bound in bounds:
        if buckets[bound] >= rank:
            if bound == inf:
                return lower
            return lower + (bound - lower) * (rank - before) / (buckets[bound] - before)
        lower, before = bound, buckets[bound]
    return lower


def since(now: dict[float, float], before: dict[float, float]) -> dict[float, float]:
    """The observations that came between two readings of one histogram."""
    return {bound: count - before.get(bound, 0.0) for bound, count in now.items()}
