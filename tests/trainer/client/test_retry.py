from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewardpool._backoff import LONGEST_PAUSE_SECONDS
from rewardpool._client.rules.retry import Kind, kind_of_status, pause_before, retry_after_seconds


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, None),
        (401, "unauthorized"),
        (403, "unauthorized"),
        (404, "not_found"),
        (408, "busy"),
        (405, "not_found"),
        (409, None),
        (413, None),
        (422, None),
        (429, "busy"),
        (500, "worker"),
        (501, None),
        (502, "busy"),
        (503, "busy"),
        (504, "busy"),
        (505, None),
        (599, "worker"),
        (302, None),
    ],
)
def test_a_status_is_retried_only_where_that_may_help(status: int, kind: Kind | None) -> None:
    assert kind_of_status(status) == kind


@given(retries=st.integers(1, 10_000), part=st.floats(0, 1))
def test_a_pause_never_leaves_its_bounds(retries: int, part: float) -> None:
    pause = pause_before(retries, "busy", uniform=lambda low, high: low + part * (high - low))
    assert 0 <= pause <= LONGEST_PAUSE_SECONDS


def test_pauses_double_until_the_longest() -> None:
    longest = [pause_before(retries, "busy", uniform=lambda _, high: high) for retries in range(1, 8)]
    assert longest == [0.25, 0.5, 1.0, 2.0, 4.0, 5.0, 5.0]


@pytest.mark.parametrize("kind", ["unauthorized", "invalid_response"])
def test_pauses_stay_short_where_every_other_attempt_or_so_succeeds(kind: Kind) -> None:
    assert pause_before(9, kind, uniform=lambda _, high: high) == 1.0


@given(retries=st.integers(1, 1000), part=st.floats(0, 1))
def test_pauses_for_a_worker_keep_an_even_pace(retries: int, part: float) -> None:
    pause = pause_before(retries, "waiting", uniform=lambda low, high: low + part * (high - low))
    assert 1.0 <= pause <= 3.0


NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, None),
        ("3", 3.0),
        (" 120 ", 120.0),
        ("Thu, 01 Jan 2026 00:00:10 GMT", 10.0),
        ("Wed, 31 Dec 2025 23:00:00 GMT", 0.0),
        ("soon", None),
        ("-1", None),
        ("Thu, 99 Jan 2026 00:00:10 GMT", None),
    ],
)
def test_retry_after_is_seconds_or_a_date(header: str | None, seconds: float | None) -> None:
    assert retry_after_seconds(header, now=NOW) == seconds
