"""In continuous integration a test is skipped for the reasons listed here; a skip for any other reason is a failure.

A missing program shows there as a failed test, instead of as one line among thousands.
"""

import os
from collections.abc import Generator
from typing import Final

import pytest

ONE_USER: Final = "only root starts a process as another user"
NO_NAMESPACES: Final = "user and mount namespaces may not be made here"
ALLOWED: Final = (
    ONE_USER,
    NO_NAMESPACES,
    *(f"{source} is on no package index" for source in ("slime", "miles", "NeMo-RL", "prime-rl", "SkyRL")),
)
"""How the reasons begin: rights that the machine does not give, and sources that no package index has."""


def refusal(reason: str) -> str | None:
    """Why a skip for this reason is a failure; None where it is allowed, or outside of continuous integration."""
    if os.environ.get("CI") != "true" or reason.startswith(ALLOWED):
        return None
    return (
        f"skipped in continuous integration: {reason}\n"
        "Have a target of the Makefile install or build what is missing, or list the reason in tests/support/skips.py."
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    fail_if_refused(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    fail_if_refused(report)
    return report


def fail_if_refused(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Turn a skip whose reason is not allowed into a failure."""
    if report.skipped and isinstance(report.longrepr, tuple):
        file, line, said = report.longrepr
        if why := refusal(said.removeprefix("Skipped: ")):
            report.outcome = "failed"
            report.longrepr = f"{file}:{line}: {why}"
