"""After which ends the pauses before the next start grow; pure."""

import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewardpool_local.supervised_process import HEALTHY_SECONDS, failures_after


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_kills_from_outside_of_a_process_that_served_make_no_pause_longer(number: signal.Signals) -> None:
    failures = 0
    for _ in range(50):
        failures = failures_after(failures, code=-number, served_seconds=3.0, ended_by_us=False)
    assert failures == 1


@pytest.mark.parametrize(
    ("code", "served_seconds", "ended_by_us"),
    [
        (1, 3.0, False),
        (-signal.SIGSEGV, 3.0, False),
        (-signal.SIGABRT, 3.0, False),
        (-signal.SIGKILL, 3.0, True),  # it hung
        (-signal.SIGKILL, None, False),  # out of memory, say
    ],
)
def test_its_own_crashes_do(code: int, served_seconds: float | None, ended_by_us: bool) -> None:
    assert failures_after(4, code=code, served_seconds=served_seconds, ended_by_us=ended_by_us) == 5


@given(st.integers(0, 100), st.integers(-64, 255), st.booleans())
def test_long_service_forgives_whatever_ended_it(failures: int, code: int, ended_by_us: bool) -> None:
    assert failures_after(failures, code=code, served_seconds=HEALTHY_SECONDS, ended_by_us=ended_by_us) == 1
