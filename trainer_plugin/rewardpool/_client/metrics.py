"""A pool's report and a trainer's waits for Prometheus, read when they are scraped; nothing runs in between.

prometheus_client.REGISTRY.register(ReportCollector(pool))
prometheus_client.REGISTRY.register(ScoreWaitCollector(waits))
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from rewardpool._score_waits import PARTS, ScoreWaits

if TYPE_CHECKING:
    from rewardpool._client.blocking import BlockingPool
    from rewardpool._client.pool import Pool

# Counted attributes of a `Report`, with a line of help for each.
COUNTS = {
    "samples": "Samples and judgements whose first attempt was due",
    "scored": "Samples with a score from a worker",
    "penalties": "Failed samples that got the penalty for the policy's faults",
    "unscored": "Failed samples, raised or handed back",
    "cancelled": "Samples given up by the caller",
    "attempts": "Requests sent",
    "retried": "Samples of which an attempt failed and another followed",
    "hedges": "Requests beside stragglers",
    "hedges_won": "Requests beside stragglers that were answered first",
    "batched_samples": "Samples sent in a request with others",
    "batch_fallbacks": "Requests for several samples that had no usable answer",
    "exposed_wait_seconds": "Seconds in which a stream's reader waited for the next outcome",
    "rediscoveries": "Times the pool's address or key was looked up again",
}


class ReportCollector(Collector):
    """Metrics `rewardpool_client_*` of one entered pool, labelled with its name."""

    def __init__(self, pool: "Pool | BlockingPool") -> None:
        """`pool` has been entered."""
        self._pool = pool

    def collect(self) -> Iterator[Metric]:
        report, name = self._pool.report(), self._pool.endpoint.pool
        for field, meaning in COUNTS.items():
            counter = CounterMetricFamily(f"rewardpool_client_{field}", meaning, labels=["pool"])
            counter.add_metric([name], getattr(report, field))
            yield counter
        retries = CounterMetricFamily(
            "rewardpool_client_retries", "Failed attempts that another one followed", labels=["pool", "kind"]
        )
        for kind, count in report.retries.items():
            retries.add_metric([name, kind], count)
        yield retries
        failures = CounterMetricFamily(
            "rewardpool_client_failures", "Failed samples, with a penalty or unscored", labels=["pool", "fault", "kind"]
        )
        for fault, kinds in report.failures.items():
            for kind, count in kinds.items():
                failures.add_metric([name, fault, kind], count)
        yield failures
        concurrency = GaugeMetricFamily(
            "rewardpool_client_concurrency", "Requests that may be in flight now", labels=["pool"]
        )
        concurrency.add_metric([name], report.concurrency)
        yield concurrency
        latency = GaugeMetricFamily(
            "rewardpool_client_latency_seconds",
            "From a scored sample's first request to its score, over the last 10,000",
            labels=["pool", "quantile"],
        )
        for quantile, seconds in (("0.5", "p50"), ("0.9", "p90"), ("0.99", "p99")):
            latency.add_metric([name, quantile], getattr(report.latency, seconds))
        yield latency


class ScoreWaitCollector(Collector):
    """Metric `rewardpool_client_score_wait` of a trainer: the parts of its latest step's `ScoreWait`, each labelled."""

    def __init__(self, waits: ScoreWaits) -> None:
        self._waits = waits

    def collect(self) -> Iterator[Metric]:
        """The step's parts, which add up to the share; none before the end of a step."""
        gauge = GaugeMetricFamily(
            "rewardpool_client_score_wait",
            "Share of the latest step in which the trainer waited for nothing but scores, by where these were",
            labels=["part"],
        )
        if (step := self._waits.latest) is not None:
            for part in (*PARTS, "other"):
                gauge.add_metric([part], getattr(step, part))
        yield gauge
