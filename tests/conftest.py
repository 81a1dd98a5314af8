"""Fixtures of more than one room. What is expensive to start is shared by the whole session."""

from support.api_server import control_plane
from support.vllm_server import vllm_server

__all__ = ["control_plane", "vllm_server"]
