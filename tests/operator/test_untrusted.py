"""What is made of words, times and counts from outside; and of what makes no sense at all."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewardpool_api import Condition, RewardPoolStatus
from rewardpool_api.times import time_of
from rewardpool_operator.left_out import readable, with_sane_status
from rewardpool_operator.metrics import METRICS
from rewardpool_runtime.untrusted import count_of, printable, without_secrets

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=8,
)
NOW = "2026-01-01T12:00:00Z"


@given(value=ANYTHING | st.text(st.characters(categories=["Cs", "Cc", "Cf", "Co"])), most=st.integers(0, 60))
def test_any_text_becomes_one_that_can_be_written(value: object, most: int) -> None:
    for text in (printable(value, most=most), printable(value, most=most, keep="tail")):
        assert len(text) <= most
        json.loads(json.dumps(text).encode())
        Condition(type="Ready", status="True", reason="x", message=text, last_transition_time=NOW)


def test_a_text_that_can_be_written_stays_as_it_is() -> None:
    assert printable("zwölf\n\tSchüsse 🚀", most=100) == "zwölf\n\tSchüsse 🚀"
    assert (printable("abcdef", most=3), printable("abcdef", most=3, keep="tail")) == ("abc", "def")


@given(value=ANYTHING)
def test_a_time_is_one_that_can_be_used_or_none(value: object) -> None:
    moment = time_of(value)
    assert moment is None or moment - timedelta(days=400) < moment + timedelta(days=400)


@pytest.mark.parametrize("text", ["", "yesterday", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"])
def test_a_time_of_no_calendar_is_none(text: str) -> None:
    assert time_of(text) is None
    assert time_of(NOW) == datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize("value", [True, -1, 10**30, 1.0, float("nan"), "3", None, []])
def test_what_is_no_number_of_things_is_none(value: object) -> None:
    assert count_of(value) is None
    assert count_of(3) == 3


def test_what_cannot_be_read_is_left_out_counted_and_told_once(caplog: pytest.LogCaptureFixture) -> None:
    def left_out() -> float:
        return METRICS.registry.get_sample_value("rewardpool_left_out_total", {"kind": "leases"}) or 0.0

    before = left_out()
    for _ in range(3):
        assert readable("leases", ["1", "odd", "3"], int, name=lambda text: text) == [1, 3]
    assert left_out() - before == 3
    assert len(caplog.records) == 1
    assert "leases odd is left out" in caplog.text


@given(status=ANYTHING | st.dictionaries(st.sampled_from([*RewardPoolStatus.model_fields, "scaling"]), ANYTHING))
def test_a_status_that_somebody_spoilt_is_read_as_far_as_it_makes_sense(status: object) -> None:
    RewardPoolStatus.model_validate(
        with_sane_status({"status": status}, now=datetime.now(UTC))["status"], extra="ignore"
    )


def test_a_part_of_a_status_with_a_time_that_is_none_is_left_out_and_the_others_stay() -> None:
    spoilt: dict[str, Any] = {"desired": 3, "reason": "so", "idleSince": "never"}
    status = {"scaling": spoilt, "currentRevision": "abc", "rollout": {"targetRevision": "abc", "silentSince": NOW}}
    kept = with_sane_status({"status": status}, now=datetime.now(UTC))["status"]
    assert kept == {"currentRevision": "abc", "rollout": {"targetRevision": "abc", "silentSince": NOW}}


KEY = "Wm9vLXh5el8wMTIzNDU2Nzg5YWJjZGVmZ2hpamtsbW4"


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("nothing of it", "nothing of it"),
        (f"the key is {KEY}, and again {KEY}", "the key is [key], and again [key]"),
        (f"{KEY[9:]} began before the cut", "[key] began before the cut"),
        (f"cut at {KEY[:-7]}", "cut at [key]"),
        (KEY[:11], KEY[:11]),
    ],
)
def test_what_is_told_has_no_secret_and_no_part_of_one(text: str, left: str) -> None:
    assert without_secrets(text, [None, "", KEY]) == left
