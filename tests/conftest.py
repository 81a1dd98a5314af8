"""Fixtures of more than one room. What is expensive to start is shared by the whole session."""

import signal
from importlib.util import find_spec

from support.api_server import control_plane
from support.skips import pytest_make_collect_report, pytest_runtest_makereport
from support.tried import pytest_terminal_summary
from support.vllm_server import judge_server, vllm_server

__all__ = [
    "control_plane",
    "judge_server",
    "pytest_make_collect_report",
    "pytest_runtest_makereport",
    "pytest_terminal_summary",
    "vllm_server",
]

# A shell without job control has its background jobs ignore Ctrl-C, and every program they start inherits that: those
# that a test interrupts would not hear it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

if find_spec("hypothesis") is not None:  # which the environments of the actor and of the frameworks do without
    from hypothesis import settings

    # A property that holds, holds on a machine that is busy as well. `--hypothesis-profile=default` draws more.
    settings.register_profile("untimed", deadline=None, max_examples=50)
    settings.load_profile("untimed")
