"""What the log says of a decision."""

import logging

import pytest

from rewardpool_api import RewardPoolStatus
from rewardpool_api.status import Limit, ScalingStatus
from rewardpool_operator.kubernetes.events.recorder import log_scaling


def status(desired: int, *, recommended: int | None = None, limit: Limit | None = None) -> RewardPoolStatus:
    return RewardPoolStatus(
        scaling=ScalingStatus(desired=desired, recommended_replicas=recommended, limit=limit, reason="90 requests")
    )


def test_a_change_of_size_is_a_line_with_its_figures(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    log_scaling(status(1), status(4, recommended=9, limit="Budget"))
    (record,) = caplog.records
    assert record.getMessage() == "from 1 to 4 replicas, 9 recommended, limit Budget: 90 requests"
    assert vars(record)["fields"] == {"scaling": {"from": 1, "to": 4, "recommended": 9, "limit": "Budget"}}


def test_what_stays_as_it_was_is_no_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    log_scaling(status(4), status(4, recommended=5, limit="Tolerance"))
    assert caplog.records == []
