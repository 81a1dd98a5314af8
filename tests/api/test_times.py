"""Times of a status: RFC 3339 in JSON, times in memory."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from rewardpool_api.status import DesiredAt
from rewardpool_api.times import EARLIEST, LATEST

ZONES = st.integers(-14, 14).map(lambda hours: timezone(timedelta(hours=hours)))
TIMES = st.datetimes(
    EARLIEST.replace(tzinfo=None) + timedelta(days=1), LATEST.replace(tzinfo=None) - timedelta(days=1), timezones=ZONES
)


@given(at=TIMES)
def test_a_time_that_is_written_is_read_as_the_same(at: datetime) -> None:
    written = DesiredAt(time=at, replicas=1).model_dump(mode="json")
    assert written["time"].endswith("Z")
    assert DesiredAt.model_validate(written).time == at


def test_seconds_without_a_fraction_are_a_time() -> None:
    read = DesiredAt.model_validate({"time": "2026-01-01T12:00:00Z", "replicas": 1})
    assert read.time == datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(("text", "read"), [("0001-01-01T00:00:00+14:00", EARLIEST), ("9999-12-31T23:59:59Z", LATEST)])
def test_a_time_too_far_away_to_be_added_to_is_read_as_the_nearest(text: str, read: datetime) -> None:
    assert DesiredAt.model_validate({"time": text, "replicas": 1}).time == read


@pytest.mark.parametrize("value", ["never", "", 0, 1.5, True, None, [], datetime(2026, 1, 1)])
def test_what_is_not_a_time_is_refused_by_its_path(value: object) -> None:
    with pytest.raises(ValidationError, match=r"time\n.*not an RFC 3339 time, such as"):
        DesiredAt.model_validate({"time": value, "replicas": 1})
