"""Metrics of the two servers that are RewardPool's own: those for functions and for `transformers`.

vLLM and SGLang tell their own metrics at the same path of the same port. Labels are words of fixed lists: nothing of a
sample is ever told. Mounted into stock images with `transformers_server.py`; needs prometheus_client, which those of
vLLM and SGLang have.
"""

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

METRICS_PATH = "/metrics"
_ODD_VERSION = re.compile(r"version\s*=(?!\d{1,4}(\.\d{1,4})*\s*([;,]|$))")

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)

PLACES = "rewardpool_worker_places"
FAILURES = {
    "sample_too_long": ("policy",),
    "invalid_sample": ("verifier",),
    "function_failed": ("verifier", "policy"),
    "wrong_model": ("infra",),
    "starved": ("infra",),
    "no_score": ("infra",),
    "abandoned": ("infra",),
}
"""Kinds of failures and their faults, in the words of the metric's labels: the contract's codes, `no_score` of a model
that raises or computes no finite number, `starved` of a function whose machine has too much to do, and requests that
the caller abandoned."""


class WorkerMetrics:
    """All metrics of one server process, in a registry of their own."""

    def __init__(self, *, places: Callable[[], int] | None = None) -> None:
        """`places` returns how many calls run at once, where that is known."""
        # A second series for every counter, with the time of its making, which nobody reads.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = registry = CollectorRegistry()
        self._requests = Counter(
            "rewardpool_worker_requests_total", "Scoring requests that came in.", registry=registry
        )
        self._samples = Counter("rewardpool_worker_samples_total", "Samples that were scored.", registry=registry)
        self._in_flight = Gauge(
            "rewardpool_worker_in_flight", "Scoring requests that are not answered yet.", registry=registry
        )
        self._seconds = Histogram(
            "rewardpool_worker_request_seconds",
            "Seconds from a scoring request to its answer, of whatever kind.",
            buckets=SECONDS,
            registry=registry,
        )
        self._failures = Counter(
            "rewardpool_worker_failures_total",
            "Scoring requests without scores: refused by a code of the contract, no_score of the model, or abandoned.",
            ("kind", "fault"),
            registry=registry,
        )
        for kind, faults in FAILURES.items():
            for fault in faults:
                self._failures.labels(kind, fault)
        if places is not None:
            self._places = Gauge(PLACES, "Calls of the function that run at once.", registry=registry)
            self._places.set_function(places)

    def described(self) -> dict[str, tuple[Metric, tuple[str, ...]]]:
        """Every family with its labels, by the name of its series; for documentation."""
        made = [part for part in vars(self).values() if isinstance(part, MetricWrapperBase)]
        found = [(family, tuple(wrapper._labelnames)) for wrapper in made for family in wrapper.describe()]
        return {family.name + "_total" * (family.type == "counter"): (family, labels) for family, labels in found}

    @contextmanager
    def request(self) -> Iterator[None]:
        began = time.perf_counter()
        self._requests.inc()
        self._in_flight.inc()
        try:
            yield
        finally:
            self._in_flight.dec()
            self._seconds.observe(time.perf_counter() - began)

    def scored(self, samples: int) -> None:
        self._samples.inc(samples)

    def failed(self, kind: str, fault: str) -> None:
        """Count a request without scores, by a kind and a fault of FAILURES."""
        self._failures.labels(kind, fault).inc()

    def exposition(self, accept: str) -> tuple[bytes, str]:
        """Body and content type of an answer, in the format that the scraper's `Accept` header asks for."""
        encode, content_type = encoder_for(accept)
        return encode(self.registry), content_type


def encoder_for(accept: str) -> tuple[Callable[[Collector], bytes], str]:
    """Return the format that a scraper's `Accept` header asks for, and its content type; plain text for nonsense."""
    # prometheus_client compares versions part by part, and fails at one that is no number.
    is_odd = _ODD_VERSION.search(accept) or not accept.isascii()
    return choose_encoder("" if is_odd else accept)
