"""Fixtures of more than one room. What is expensive to start is shared by the whole session."""

import signal

from support.api_server import control_plane
from support.vllm_server import vllm_server

__all__ = ["control_plane", "vllm_server"]

# A shell without job control has its background jobs ignore Ctrl-C, and every program they start inherits that: those
# that a test interrupts would not hear it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
