"""The page of conditions, events and metrics has all that there are; `make lint` compares it with the code."""

import re
from pathlib import Path

from rewardpool_api.reasons import ConditionReason, EventReason
from rewardpool_api.status import CONDITION_TYPES
from rewardpool_operator.metrics import Metrics
from rewardpool_worker.engine_side.worker_metrics import WorkerMetrics

PAGE = (Path(__file__).parents[2] / "docs" / "reference-status.md").read_text()


def test_every_condition_reason_and_metric_is_on_the_page():
    listed = set(re.findall(r"^\| `?([A-Za-z_]+)`? \|", PAGE, re.MULTILINE))
    assert {
        *CONDITION_TYPES,
        *ConditionReason,
        *EventReason,
        *Metrics().described(),
        *WorkerMetrics(places=1).described(),
    } <= listed


def test_labels_of_metrics_are_on_the_page():
    assert "| `rewardpool_kube_requests_total` | counter | `verb`, `code` |" in PAGE
    assert "| `rewardpool_pool_requests` | gauge | `namespace`, `pool`, `state` |" in PAGE
