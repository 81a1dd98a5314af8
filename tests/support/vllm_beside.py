"""The modules of vLLM that the middleware imports in vLLM's own process, for tests in a process without it."""

import sys
from types import ModuleType, SimpleNamespace

import pytest


@pytest.fixture
def vllm_beside(monkeypatch: pytest.MonkeyPatch) -> None:
    """The modules that an image has."""
    vllm, parameters = ModuleType("vllm"), ModuleType("vllm.sampling_params")
    vllm.SamplingParams = dict  # type: ignore[attr-defined]
    parameters.RequestOutputKind = SimpleNamespace(FINAL_ONLY="final")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "vllm", vllm)
    monkeypatch.setitem(sys.modules, "vllm.sampling_params", parameters)
