"""The table of what `explain` says: every reason of a condition has a row, and every row can be filled in."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args

import pytest

from rewardpool_api import RewardPool
from rewardpool_api.reasons import DOWNLOAD_REASONS, NOTHING_WANTED, ConditionReason
from rewardpool_api.status import Limit
from rewardpool_cli.explain import Evidence, Explanation, advice, explain
from rewardpool_cli.explain.advice import CAUSES, KINDS, ROWS, cause_of, explanation

ROLLOUTS = {"ParityExceeded", "GoldenSetUnusable", "RolledBack", "ProgressDeadlineExceeded"}
STARTING = {"Starting", "NoScore", "RouterNotReady"}
STOPPED = {"Stopped", "GaveUp", "SupervisorGone", "SupervisorFailed"}
PASSED_ON = [
    *(("Degraded", "True", reason) for reason in ConditionReason if reason not in ROLLOUTS | STARTING | STOPPED),
    *(("Serving", "False", reason) for reason in ConditionReason if reason not in NOTHING_WANTED | STARTING | STOPPED),
]
"""Type, status and reason of conditions that are told by their reason where no pod is seen."""


def seen(*conditions: dict[str, Any], **fields: Any) -> Evidence:
    """A pool of one replica with these conditions, none of whose pods were seen."""
    pool = {
        "metadata": {"name": "rm", "namespace": "rl", "generation": 1},
        "spec": {"model": {"source": "hf://org/model"}, "replicas": 1},
        "status": {"observedGeneration": 1, "conditions": conditions},
    }
    return Evidence(now=datetime(2026, 1, 1, 12, 10, tzinfo=UTC), pool=RewardPool.model_validate(pool), **fields)


def told(kind: str, status: str, reason: str, message: str) -> Explanation:
    """What is said of a pool with this condition."""
    time = "2026-01-01T12:00:00Z"
    (found,) = explain(
        seen({"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": time})
    )
    return found


@pytest.mark.parametrize(("kind", "status", "reason"), PASSED_ON)
def test_each_reason_is_told_with_its_meaning_and_what_to_do(kind: str, status: str, reason: ConditionReason) -> None:
    found = told(kind, status, reason, "its message")
    assert (found.cause, found.kind, found.said) == (cause_of(reason), "problem", "its message")
    assert reason.meaning in found.what or found.cause == "Refused"
    assert found.next


@pytest.mark.parametrize("reason", sorted(STARTING))
def test_a_pool_that_starts_is_waited_for(reason: str) -> None:
    found = told("Serving", "False", reason, "0 of 1 replicas serve")
    assert (found.cause, found.kind, found.what) == ("Starting", "waiting", "Workers or routers are starting")


@pytest.mark.parametrize("reason", sorted(STOPPED))
def test_a_pool_that_stopped_can_be_started(reason: str) -> None:
    found = told("Serving", "False", reason, "since then")
    assert (found.cause, found.said, found.next) == ("Stopped", f"{reason}: since then", ("rewardpool up -f MANIFEST",))


def test_rows_stand_for_reasons_that_exist_and_each_for_others() -> None:
    reasons = [reason for row in ROWS.values() for reason in row.get("reasons", [])]
    assert sorted(reasons) == sorted(set(reasons) & {member.value for member in ConditionReason})
    assert {cause_of(reason) for reason in DOWNLOAD_REASONS} == {"Download", "ModelNotFound"}


@pytest.mark.parametrize("name", ROWS)
def test_a_row_has_words_of_one_kind(name: str) -> None:
    row = ROWS[name]
    assert len(row.keys() & set(KINDS)) == 1
    assert row.keys() <= {"cause", "next", "reasons", *KINDS}
    assert row.get("cause", name) in CAUSES


def test_each_row_is_chosen_by_a_module_a_reason_or_a_limit() -> None:
    modules = "".join(path.read_text() for path in Path(advice.__file__).parent.glob("*.py"))
    by_data = {name for name, row in ROWS.items() if "reasons" in row} | set(get_args(Limit))
    assert {name for name in ROWS if f'"{name}"' not in modules} <= by_data


def test_each_limit_of_a_size_has_a_row() -> None:
    others = {"MetricsUnavailable", "Unschedulable", "MaxReplicas"}
    assert {limit for limit in get_args(Limit) if limit not in ROWS} <= others


def test_a_command_and_a_patch_are_written_out() -> None:
    evidence = seen(program="kubectl rewardpool")
    assert explanation(evidence, "Other", reason="Hung", meaning="").next == ("kubectl rewardpool logs rl/rm",)
    assert explanation(evidence, "Paused").next == (
        """kubectl patch rewardpool rm -n rl --type merge -p '{"spec":{"rollout":{"paused":false}}}'""",
    )
