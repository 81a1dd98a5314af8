"""Parsing of a router's metrics (Prometheus text format). A figure that is not a count is missing, with a line in the
log.

Both routers count for every worker the answers that they took for good ones: a score, or the sample's own fault.
Callers who hung up, attempts that failed and health checks are not among them. So what a worker does can be had from
the text that is fetched anyway, without a request to the workers.

The counts begin at 0 when the router starts. When a worker is taken off its list, sglang-router goes on counting for
its address and smg forgets the count: see `throughput.py`.
"""

import logging
import math
from collections.abc import Callable, Iterator
from typing import Final

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from rewardpool_page.source import Counts
from rewardpool_runtime.untrusted import MAX_COUNT

log = logging.getLogger(__name__)

AT_WORKERS: Final = "smg_worker_requests_active"
OUTCOMES: Final = "smg_worker_cb_outcomes_total"
# Requests for workers, without those for a router's own list and health.
DURATIONS: Final = "smg_router_request_duration_seconds"


def are_a_routers(text: str) -> bool:
    """Return whether a router wrote this in answer to a request for its list, which it counts too."""
    return any(line.startswith("smg_http_") for line in text.splitlines())


def total(text: str, name: str, *, of: Callable[[Sample], bool] = lambda _: True) -> int | None:
    """Return the sum of a metric's samples; 0 when there are none, None when one of them is not a count.

    Raises:
        ValueError: this is not the format.
    """
    counts = [_count(sample.value, name) for sample in _samples(text, name) if of(sample)]
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def answered(text: str) -> dict[str, int | None]:
    """Requests that each worker answered, by its URL; one that answered none yet is left out, nonsense is None.

    Raises:
        ValueError: this is not the format.
    """
    return {
        worker: _count(sample.value, OUTCOMES)
        for sample in _samples(text, OUTCOMES)
        if sample.labels.get("outcome") == "success" and (worker := sample.labels.get("worker"))
    }


def in_flight(text: str) -> dict[str, int | None]:
    """Requests that are at each worker now, by its URL; one of which the router says nothing is left out.

    Raises:
        ValueError: this is not the format.
    """
    return {
        worker: _count(sample.value, AT_WORKERS)
        for sample in _samples(text, AT_WORKERS)
        if (worker := sample.labels.get("worker"))
    }


def counts(text: str) -> Counts:
    """Return how many requests the router answered, and within which times.

    Raises:
        ValueError: this is not the format, or a count is not a number of requests.
    """
    answered, seconds = total(text, f"{DURATIONS}_count"), 0.0
    if answered is None:
        raise ValueError(f"{DURATIONS}_count is not a number of requests")
    within: dict[float, int] = {}
    for sample in _samples(text, f"{DURATIONS}_bucket"):
        bound = float(sample.labels.get("le", "nan"))
        count = _count(sample.value, DURATIONS)
        if math.isnan(bound) or count is None:
            raise ValueError(f"{DURATIONS}_bucket is not a number of requests")
        within[bound] = within.get(bound, 0) + count
    for sample in _samples(text, f"{DURATIONS}_sum"):
        if not math.isfinite(sample.value) or sample.value < 0:
            raise ValueError(f"{DURATIONS}_sum is {sample.value}, which is not a time")
        seconds += sample.value
    return Counts(answered=answered, seconds=seconds, within=within)


def _samples(text: str, name: str) -> Iterator[Sample]:
    # Only the lines that count: a router has a thousand others, and there may be a thousand routers.
    lines = "".join(line for line in text.splitlines(keepends=True) if line.startswith(name))
    families = text_string_to_metric_families(lines)
    return (sample for family in families for sample in family.samples if sample.name == name)


def _count(value: float, name: str) -> int | None:
    if not math.isfinite(value) or not 0 <= value <= MAX_COUNT:
        log.warning("the router's metric %s is %s, which is not a number of requests: left out", name, value)
        return None
    return int(value)
