"""The page of conditions, events and metrics, made from the program: `python docs/reference_status.py FILE`."""

import inspect
import sys
from collections.abc import Iterable

from prometheus_client import Metric

from rewardpool_api import status
from rewardpool_api.generated import write_or_check
from rewardpool_api.reasons import ConditionReason, EventReason
from rewardpool_operator.metrics import Metrics
from rewardpool_worker.engine_side.worker_metrics import WorkerMetrics

HEADER = """\
# Conditions, events and metrics of a pool

Made from the code by `make reference`; edit the code, not this page.
"""
CONDITIONS = """\
## Conditions

In `status.conditions`; each is always there once the operator has seen the pool. `reason` is one word for machines,
`message` is for people. `rewardpool explain POOL` says what to do.
"""
PASSED_ON = """
What Kubernetes says of a container, such as `CreateContainerConfigError`, is in the message of `PodNotStarting`. No
other word is ever a reason, whatever a container, an event or a controller says.
"""
EVENTS = """\
## Events

`kubectl describe rewardpool POOL` shows them. What is said again within ten minutes is counted in the event that said
it first; a pool that floods is cut off at 50 events, and gets room for another one every 20 s.
"""
METRICS = """
## Metrics

`rewardpool operator run --metrics-port PORT` serves them at `/metrics`, as Prometheus text or OpenMetrics. Series with
the label `pool` end with the pool. Beside these there are those of the process (`process_resident_memory_bytes` …).
Routers, vLLM and SGLang have metrics of their own.
"""
WORKER_METRICS = """
## Metrics of workers

Workers of the engines `python` and `transformers` serve these at `/metrics` of their port, without a key. Requests are
those that reach the server itself: with `transformers` the probes of readiness are among them, and requests that the
score middleware refuses are not. vLLM and SGLang serve their own at the same path. The chart's value
`metrics.workerPodMonitor` has Prometheus collect all of them ([the chart](helm.md#metrics-of-workers)).
"""


def page() -> str:
    """The page as Markdown."""
    metrics = sorted(Metrics().described().items())
    parts = [
        HEADER,
        CONDITIONS,
        *_conditions(),
        "\n### Reasons of conditions\n",
        *_table(("reason", "means"), ((f"`{reason}`", reason.meaning) for reason in ConditionReason)),
        PASSED_ON,
        EVENTS,
        *_table(("reason", "means"), ((f"`{reason}`", reason.meaning) for reason in EventReason)),
        METRICS,
        *_table(("metric", "type", "labels", "means"), (_metric(name, *described) for name, described in metrics)),
        WORKER_METRICS,
        *_table(
            ("metric", "type", "labels", "means"),
            (
                _metric(name, *described)
                for name, described in sorted(WorkerMetrics(places=lambda: 1).described().items())
            ),
        ),
    ]
    return "\n".join(parts) + "\n"


def _conditions() -> list[str]:
    lines = (inspect.getdoc(status) or "").splitlines()
    return [line for line in lines if line.startswith("|")]


def _metric(name: str, family: Metric, labels: tuple[str, ...]) -> tuple[str, ...]:
    return f"`{name}`", family.type, ", ".join(f"`{label}`" for label in labels), family.documentation


def _table(titles: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    lines = [titles, tuple("---" for _ in titles), *rows]
    return ["| " + " | ".join(cells) + " |" for cells in lines]


if __name__ == "__main__":
    sys.exit(write_or_check(page(), description=__doc__, target="reference"))
