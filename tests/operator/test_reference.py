"""The page of conditions, events and metrics says what the program says."""

import re
from pathlib import Path

from rewardpool_api.reasons import ConditionReason, EventReason
from rewardpool_api.status import CONDITION_TYPES
from rewardpool_operator.metrics import Metrics
from rewardpool_operator.reference import page
from rewardpool_worker.engine_side.worker_metrics import WorkerMetrics

PAGE = Path(__file__).parents[2] / "docs" / "reference-status.md"


def test_the_page_is_as_the_code_makes_it():
    assert PAGE.read_text() == page(), "run `make reference`"


def test_every_condition_reason_and_metric_is_on_the_page():
    listed = set(re.findall(r"^\| `?([A-Za-z_]+)`? \|", page(), re.MULTILINE))
    assert {
        *CONDITION_TYPES,
        *ConditionReason,
        *EventReason,
        *Metrics().described(),
        *WorkerMetrics(places=1).described(),
    } <= listed


def test_labels_of_metrics_are_told():
    assert "| `rewardpool_kube_requests_total` | counter | `verb`, `code` |" in page()
    assert "| `rewardpool_pool_requests` | gauge | `namespace`, `pool`, `state` |" in page()
